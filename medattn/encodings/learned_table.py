"""A learned vector for each token of a grid, interpolated when the grid becomes another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medattn.coordinates import Frame
from medattn.encodings.base import About, PositionalEncoding
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal
from medattn.geometry.grid import as_triple


@register("learned_table")
class LearnedTableEncoding(PositionalEncoding):
    """One learned vector for each token of a grid of ``table_shape``, its nodes at the centres of those tokens.

    Another grid takes its values by trilinear interpolation: in "fraction" the table is stretched over the field of
    view, in "index" it keeps its nodes ``table_step`` voxels apart and its centre on the centre of the volume. In
    "sequence" its rows are taken by number, in raster order. Beyond the outermost nodes the value stays that of the
    border, as everywhere in the outer half of the border tokens: **tokens further out look alike**, so choose a table
    that covers the largest volume.

    Args:
        table_shape: tokens (I, J, K) of the grid that the table is of, one integer or three.
        table_step: voxels from one of these tokens to the next (their patch size); used by "index" alone.
    """

    about = About(
        formula=r"z(x) \mathrel{+}= \sum_{c \in \{0, 1\}^3} T\big[\lfloor u \rfloor + c\big]"
        r" \prod_a \big|1 - c_a - (u_a - \lfloor u_a \rfloor)\big|, \quad u = \text{place of } x \text{ in the table}",
        source="Dosovitskiy et al. 2020 (ViT), arXiv:2010.11929; its interpolation in three dimensions",
        when="For weights that were trained with such a table. It has learned nothing where it saw no token, and on a "
        "new spacing it is stretched or cut as if the anatomy were.",
    )
    defined_frames = (Frame.SEQUENCE, Frame.INDEX, Frame.FRACTION)
    why_undefined = (
        "a table has one entry for each token of a grid and no place in mm; "
        "use 'fourier' or 'mlp', which are learned functions of mm"
    )

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        table_shape: int | Sequence[int] = 16,
        table_step: int | Sequence[int] = 4,
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        self.table_shape = as_triple(table_shape, "table_shape", minimum=1)
        self.table_step = as_triple(table_step, "table_step", minimum=1)
        self.table = nn.Parameter(0.02 * torch.randn(*self.table_shape, dim))

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Additive signal (B, N, dim)."""
        table = self.table.flatten(0, 2) if self.frame is Frame.SEQUENCE else self.table
        return PositionSignal(additive=interpolated(table, self._places(coords)))

    def _places(self, coords: Tensor) -> Tensor:
        """Coordinates counted in nodes of the table: 0 is the first one, fractions lie in between."""
        if self.frame is Frame.SEQUENCE:
            return coords
        shape, step = (coords.new_tensor(value) for value in (self.table_shape, self.table_step))
        nodes = coords * shape if self.frame is Frame.FRACTION else coords / step
        return nodes + (shape - 1) / 2


def interpolated(table: Tensor, places: Tensor) -> Tensor:
    """Values (..., D) of ``table`` (n_1, ..., n_A, D) at ``places`` (..., A), linear along each axis.

    A place is counted in nodes from 0; one beyond the first or last node counts as that node.
    """
    shape = table.shape[:-1]
    last = [n - 1 for n in shape]
    places = torch.minimum(places.clamp(min=0), places.new_tensor(last))
    low = places.floor()
    fraction, lower = places - low, low.long()
    rows, out = table.flatten(0, -2), None
    for corner in itertools.product((0, 1), repeat=len(shape)):
        index, weight = lower.new_zeros(()), fraction.new_ones(())
        for axis, upper in enumerate(corner):
            node = (lower[..., axis] + upper).clamp(max=last[axis])
            index = index * shape[axis] + node
            weight = weight * (fraction[..., axis] if upper else 1 - fraction[..., axis])
        part = weight[..., None] * F.embedding(index, rows)
        out = part if out is None else out + part
    assert out is not None and math.prod(shape) == len(rows)
    return out
