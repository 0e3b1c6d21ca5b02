"""Relative positions axis by axis, that each query weighs for itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medattn.coordinates import Frame
from medattn.encodings.base import About, Invariance, PositionalEncoding
from medattn.encodings.channels import Channels
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.relative_table import WHY_INDEX, check_fits
from medattn.encodings.signal import PositionSignal
from medattn.geometry.grid import Triple, as_triple


@dataclass(frozen=True)
class DecomposedChannels(Channels):
    """q.R_I[di] + q.R_J[dj] + q.R_K[dk]: a query has I + J + K products, a key says which three it takes.

    Attributes:
        tables: for each sample, or for all, the three tables (n, n, D): by the query's place, then the memory's.
        shapes: token grid of each of them.
        length: tokens of the longest sample.
        prefix: tokens in front without a place.
    """

    tables: tuple[tuple[Tensor, Tensor, Tensor], ...]
    shapes: tuple[Triple, ...]
    length: int
    prefix: int = 0

    def queries(self, q: Tensor) -> Tensor:
        parts = [q] if len(self.shapes) == 1 else q.split(1)
        found = [self._products(*each) for each in zip(parts, self.tables, self.shapes, strict=True)]
        return torch.cat([self._padded(x) for x in found])

    def _products(self, q: Tensor, tables: tuple[Tensor, Tensor, Tensor], shape: Triple) -> Tensor:
        """(B, H, I J K, I + J + K)."""
        count = shape[0] * shape[1] * shape[2]
        placed = q[:, :, self.prefix : self.prefix + count].unflatten(2, shape)
        along = [
            torch.einsum(f"bhijkd,{axis}md->bhijkm", placed, table.to(q.dtype))
            for axis, table in zip("ijk", tables, strict=True)
        ]
        return torch.cat(along, dim=-1).flatten(2, 4)

    def keys(self, dtype: torch.dtype) -> Tensor:
        device = self.tables[0][0].device
        found = []
        for shape in self.shapes:
            places = torch.cartesian_prod(*(torch.arange(n, device=device) for n in shape))
            hot = [F.one_hot(places[:, axis], n) for axis, n in enumerate(shape)]
            found.append(self._padded(torch.cat(hot, dim=-1).to(dtype)[None, None]))
        return torch.cat(found)

    def _padded(self, x: Tensor) -> Tensor:
        """``x`` (B, h, n, e) for all tokens, with as many channels as the widest sample."""
        after = self.length - x.shape[2]
        return F.pad(x, (0, max(map(sum, self.shapes)) - x.shape[3], self.prefix, after))

    def to(self, device: torch.device, dtype: torch.dtype) -> DecomposedChannels:
        fine = torch.promote_types(dtype, torch.float32)
        moved = tuple((i.to(device, fine), j.to(device, fine), k.to(device, fine)) for i, j, k in self.tables)
        return replace(self, tables=moved)

    def with_prefix(self, count: int) -> DecomposedChannels:
        return replace(self, prefix=self.prefix + count)


@register("relative_decomposed")
class RelativeDecomposedEncoding(PositionalEncoding):
    """q.R_I[di] + q.R_J[dj] + q.R_K[dk] on the logits, with a learned vector for each displacement along each axis.

    The query is the one before any turn and scale; all heads share the vectors. Realised as I + J + K extra channels of
    queries and keys, so that memory stays linear in the number of tokens.

    Args:
        max_shape: the largest token grid (I, J, K), one integer or three.
    """

    about = About(
        formula=r"s(x, y) \mathrel{+}= q^\top \big(R^I_{n_{y,i} - n_{x,i}} + R^J_{n_{y,j} - n_{x,j}}"
        r" + R^K_{n_{y,k} - n_{x,k}}\big)",
        source="Li et al. 2022 (MViTv2), arXiv:2112.01526; Kirillov et al. 2023 (SAM), arXiv:2304.02643",
        when="For weights of that kind, and where what is near should depend on what is asked, on one spacing.",
    )
    defined_frames = (Frame.INDEX,)
    why_undefined = WHY_INDEX
    needs_layout = True

    def __init__(
        self, *, dim: int, num_heads: int, frame: Frame | str, max_shape: int | Sequence[int] = (16, 16, 16)
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        self.max_shape = as_triple(max_shape, "max_shape", minimum=1)
        self.tables = nn.ParameterList(
            nn.Parameter(0.1 * torch.randn(2 * n - 1, self.head_dim)) for n in self.max_shape
        )

    @property
    def invariances(self) -> frozenset[Invariance]:
        return frozenset({Invariance.TRANSLATION})

    def layer_macs(self, shape: Triple, prefix: int = 0) -> int:
        """Of the queries with the tables, and of the channels that follow."""
        tokens = math.prod(shape)
        return sum(shape) * (tokens * self.dim + 2 * (prefix + tokens) ** 2 * self.num_heads)

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Extra channels of queries and keys.

        Raises:
            ValueError: for a grid larger than ``max_shape``.
        """
        assert layout is not None
        shapes = layout.shapes[:1] if len(set(layout.shapes)) == 1 else layout.shapes
        tables = tuple(self._by_places(shape) for shape in shapes)
        return PositionSignal(channels=DecomposedChannels(tables, shapes, coords.shape[1]))

    def _by_places(self, shape: Triple) -> tuple[Tensor, Tensor, Tensor]:
        check_fits(shape, self.max_shape, self.name)
        found = []
        for table, n, most in zip(self.tables, shape, self.max_shape, strict=True):
            places = torch.arange(n, device=table.device)
            found.append(table[places[None, :] - places[:, None] + most - 1])
        return found[0], found[1], found[2]
