"""Additive biases of the logits as functions of pairs of tokens, so that no (H, N, M) tensor need ever exist.

A displacement is memory minus query. On a grid only (2I-1)(2J-1)(2K-1) displacements are distinct, about 8 N of the
N^2 pairs: ``TableBias`` holds one number a head for each. ``PairBias`` evaluates scattered tokens pair by pair.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from medattn.encodings.layout import TokenLayout
from medattn.geometry.grid import Triple

Kernel = Callable[[Tensor], Tensor]
"""Displacements (..., A) -> bias (..., H)."""


class Bias(ABC):
    """Numbers (B or 1, H or 1, N, M) added to the logits, evaluated for any of their rows and columns."""

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """N = M, prefix tokens and padding included."""

    @abstractmethod
    def pairs(self, queries: Tensor, memories: Tensor) -> Tensor:
        """The bias (B or 1, H or 1, n, m) of ``queries`` (n,) with ``memories`` (m,), both numbers of tokens."""

    @abstractmethod
    def to(self, device: torch.device, dtype: torch.dtype) -> Bias:
        """Moved, and cast to ``dtype`` but to nothing coarser than float32."""

    @abstractmethod
    def with_prefix(self, count: int) -> Bias:
        """With ``count`` tokens in front that have no place in space: no bias to them and from them."""

    def dense(self) -> Tensor:
        """All of it, (B or 1, H or 1, N, N): for small N, and as the truth in tests."""
        every = torch.arange(self.num_tokens, device=self.device)
        return self.pairs(every, every)

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where it is evaluated."""


@dataclass(frozen=True)
class TableBias(Bias):
    """A bias on grids: one number for each head and displacement in tokens.

    Attributes:
        tables: (H, 2I-1, 2J-1, 2K-1) of each sample, or one for all; entry (i + I-1, j + J-1, k + K-1) is for the
            displacement (i, j, k).
        shapes: token grid (I, J, K) of each table.
        length: tokens of the longest sample; what is beyond a sample's own has no bias.
        prefix: tokens in front without a place in space, which have no bias.
    """

    tables: tuple[Tensor, ...]
    shapes: tuple[Triple, ...]
    length: int
    prefix: int = 0

    def __post_init__(self) -> None:
        for table, shape in zip(self.tables, self.shapes, strict=True):
            expected = tuple(2 * n - 1 for n in shape)
            if table.ndim != 4 or tuple(table.shape[1:]) != expected:
                raise ValueError(f"table must be (H, {', '.join(map(str, expected))}), got {tuple(table.shape)}")

    @property
    def num_tokens(self) -> int:
        return self.prefix + self.length

    @property
    def device(self) -> torch.device:
        return self.tables[0].device

    def pairs(self, queries: Tensor, memories: Tensor) -> Tensor:
        samples = [
            _looked_up(table, shape, queries - self.prefix, memories - self.prefix)
            for table, shape in zip(self.tables, self.shapes, strict=True)
        ]
        return torch.stack(samples)

    def to(self, device: torch.device, dtype: torch.dtype) -> TableBias:
        return replace(self, tables=tuple(t.to(device, _fine(dtype)) for t in self.tables))

    def with_prefix(self, count: int) -> TableBias:
        return replace(self, prefix=self.prefix + count)


def _looked_up(table: Tensor, shape: Triple, queries: Tensor, memories: Tensor) -> Tensor:
    """(H, n, m) from ``table``; numbers outside of the grid of ``shape`` have no bias."""
    _, depth, height = shape
    cells = [(t // (depth * height), t // height % depth, t % height) for t in (queries, memories)]
    index = torch.zeros(len(queries), len(memories), dtype=torch.long, device=table.device)
    for q, m, n in zip(*cells, shape, strict=True):
        index = index * (2 * n - 1) + (m[None, :] - q[:, None] + n - 1)
    count = shape[0] * depth * height
    inside = ((queries >= 0) & (queries < count))[:, None] & ((memories >= 0) & (memories < count))[None, :]
    return table.flatten(1)[:, torch.where(inside, index, 0)] * inside


@dataclass(frozen=True)
class PairBias(Bias):
    """A bias of scattered tokens: ``kernel`` of each pair's displacement.

    Attributes:
        coords: (B, N, A).
        kernel: displacements (..., A) -> (..., H).
    """

    coords: Tensor
    kernel: Kernel
    prefix: int = 0

    @property
    def num_tokens(self) -> int:
        return self.prefix + self.coords.shape[1]

    @property
    def device(self) -> torch.device:
        return self.coords.device

    def pairs(self, queries: Tensor, memories: Tensor) -> Tensor:
        q, m = ((tokens - self.prefix).clamp(min=0) for tokens in (queries, memories))
        displacements = self.coords[:, None, m] - self.coords[:, q, None]
        placed = (queries >= self.prefix)[:, None] & (memories >= self.prefix)[None, :]
        return self.kernel(displacements).movedim(-1, 1) * placed

    def to(self, device: torch.device, dtype: torch.dtype) -> PairBias:
        return replace(self, coords=self.coords.to(device, _fine(dtype)))

    def with_prefix(self, count: int) -> PairBias:
        return replace(self, prefix=self.prefix + count)


@dataclass(frozen=True)
class SumBias(Bias):
    """The sum of several."""

    parts: tuple[Bias, ...]

    @property
    def num_tokens(self) -> int:
        return self.parts[0].num_tokens

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    def pairs(self, queries: Tensor, memories: Tensor) -> Tensor:
        total = self.parts[0].pairs(queries, memories)
        for part in self.parts[1:]:
            total = total + part.pairs(queries, memories)
        return total

    def to(self, device: torch.device, dtype: torch.dtype) -> SumBias:
        return SumBias(tuple(part.to(device, dtype) for part in self.parts))

    def with_prefix(self, count: int) -> SumBias:
        return SumBias(tuple(part.with_prefix(count) for part in self.parts))


def kernel_bias(kernel: Kernel, coords: Tensor, layout: TokenLayout | None) -> Bias:
    """``kernel`` of the displacements in ``coords`` (B, N, A): a table on grids, pair by pair without ``layout``."""
    if layout is None:
        return PairBias(coords, kernel)
    steps = layout.steps.to(coords.device, coords.dtype)
    if layout.is_shared:
        steps = steps[:1]
    shapes = layout.shapes[: len(steps)]
    tables = tuple(
        kernel(grid_displacements(shape, step)).movedim(-1, 0) for shape, step in zip(shapes, steps, strict=True)
    )
    return TableBias(tables, shapes, coords.shape[1])


def distinct_displacements(shape: Triple) -> int:
    """How many displacements there are on a grid of ``shape``."""
    return math.prod(2 * n - 1 for n in shape)


def grid_displacements(shape: Triple, steps: Tensor) -> Tensor:
    """The distinct displacements (2I-1, 2J-1, 2K-1, A) on a grid whose neighbours are ``steps`` (3, A) apart."""
    ranges = [torch.arange(1 - n, n, device=steps.device, dtype=steps.dtype) for n in shape]
    return torch.stack(torch.meshgrid(*ranges, indexing="ij"), dim=-1) @ steps


def sum_of_biases(biases: Sequence[Bias]) -> Bias | None:
    """Their sum; tables of the same grids become one table."""
    if len(biases) < 2:
        return biases[0] if biases else None
    first = biases[0]
    if isinstance(first, TableBias) and all(isinstance(b, TableBias) and _alike(first, b) for b in biases[1:]):
        tables = zip(*(b.tables for b in biases if isinstance(b, TableBias)), strict=True)
        return replace(first, tables=tuple(torch.stack(parts).sum(0) for parts in tables))
    return SumBias(tuple(biases))


def _alike(one: TableBias, other: TableBias) -> bool:
    return (one.shapes, one.length, one.prefix) == (other.shapes, other.length, other.prefix)


def _fine(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
