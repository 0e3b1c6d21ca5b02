"""How the tokens of a batch fill their grids: what some encodings need besides coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from medattn.geometry.grid import Triple


@dataclass(frozen=True)
class TokenLayout:
    """Row b of a batch holds the tokens of a grid of shape ``shapes[b]`` in raster order, then padding.

    Attributes:
        shapes: token grid (I, J, K) of each sample.
        steps: (B, 3, A) float64 in the unit of the frame: from a token to the next one along array axis 0, 1, 2. Since
            patches touch, these are also the edges of a patch.

        is_shared: all samples have one shape and the same steps, so that what depends on displacements is the same.

    Raises:
        ValueError: if ``steps`` does not have one (3, A) for each shape.
    """

    shapes: tuple[Triple, ...]
    steps: Tensor
    is_shared: bool = field(init=False)

    def __post_init__(self) -> None:
        if self.steps.ndim != 3 or self.steps.shape[:2] != (len(self.shapes), 3):
            expected = f"({len(self.shapes)}, 3, A) for {len(self.shapes)} shapes"
            raise ValueError(f"steps must be {expected}, got {tuple(self.steps.shape)}")
        same = len(set(self.shapes)) == 1 and bool((self.steps == self.steps[:1]).all())
        object.__setattr__(self, "is_shared", same)

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens each sample has."""
        return tuple(math.prod(shape) for shape in self.shapes)
