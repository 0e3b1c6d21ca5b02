"""A learned logit for each displacement in tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame
from medattn.encodings.base import About, Invariance, PositionalEncoding
from medattn.encodings.bias import TableBias
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal
from medattn.geometry.grid import Triple, as_triple

WHY_INDEX = (
    "it has an entry for each displacement in tokens and none in mm; use 'continuous_bias' or 'radial_bias' there"
)


@register("relative_table")
class RelativeTableEncoding(PositionalEncoding):
    """One parameter for each head and displacement in tokens, of a table for grids up to ``max_shape``.

    A smaller grid uses the middle of the table.

    Args:
        max_shape: the largest token grid (I, J, K), one integer or three.
    """

    about = About(
        formula=r"s_h(x, y) \mathrel{+}= T_h[n_y - n_x], \quad n = \text{place of the token on its grid}",
        source="Liu et al. 2021 (Swin Transformer), arXiv:2103.14030, in three dimensions",
        when="On grids of one spacing and bounded size. At another spacing the same entry means another distance.",
    )
    defined_frames = (Frame.INDEX,)
    why_undefined = WHY_INDEX
    needs_layout = True

    def __init__(
        self, *, dim: int, num_heads: int, frame: Frame | str, max_shape: int | Sequence[int] = (16, 16, 16)
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        self.max_shape = as_triple(max_shape, "max_shape", minimum=1)
        self.table = nn.Parameter(0.1 * torch.randn(num_heads, *(2 * n - 1 for n in self.max_shape)))

    @property
    def invariances(self) -> frozenset[Invariance]:
        return frozenset({Invariance.TRANSLATION})

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """A table bias.

        Raises:
            ValueError: for a grid larger than ``max_shape``.
        """
        assert layout is not None
        shapes = layout.shapes[:1] if len(set(layout.shapes)) == 1 else layout.shapes
        return PositionSignal(bias=TableBias(tuple(self._middle(s) for s in shapes), shapes, coords.shape[1]))

    def _middle(self, shape: Triple) -> Tensor:
        check_fits(shape, self.max_shape, self.name)
        i, j, k = (slice(most - n, most + n - 1) for most, n in zip(self.max_shape, shape, strict=True))
        return self.table[:, i, j, k]


def check_fits(shape: Triple, max_shape: Triple, name: str) -> None:
    """Raise a ValueError if a token grid of ``shape`` is larger than ``max_shape``."""
    for axis, n, most in zip("ijk", shape, max_shape, strict=True):
        if n > most:
            raise ValueError(
                f"max_shape of {name!r} must be at least the token grid, got {most} on axis {axis} for {n}"
            )
