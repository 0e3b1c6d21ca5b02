"""Rows of a bias by displacement, copied as strided windows out of its table, and their adjoint.

The bias of query (i, j, k) is the window of the table that starts at (I-1-i, J-1-j, K-1-k): counted backwards, queries
and windows advance together, so all rows of a block, the last query first, are one strided view of the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from medattn.geometry.grid import Triple

Block = tuple[tuple[int, int], tuple[int, int]]
"""(first, last + 1) along i and along j of the queries of a block; all along k."""


def blocks(shape: Triple, most: int) -> Iterator[Block]:
    """Blocks of whole lines along k that cover a grid of ``shape`` in raster order, of about ``most`` queries."""
    along_i, along_j, along_k = shape
    plane = along_j * along_k
    if plane >= most:
        step = max(1, most // along_k)
        yield from (((i, i + 1), (j, min(j + step, along_j))) for i in range(along_i) for j in range(0, along_j, step))
        return
    step = max(1, most // plane)
    yield from (((i, min(i + step, along_i)), (0, along_j)) for i in range(0, along_i, step))


def bounds(block: Block, shape: Triple) -> tuple[int, int]:
    """(first, last + 1) of the block's queries in raster order."""
    (i, i_end), (j, j_end) = block
    _, along_j, along_k = shape
    return (i * along_j + j) * along_k, ((i_end - 1) * along_j + j_end) * along_k


def backward_rows(table: Tensor, shape: Triple, block: Block) -> Tensor:
    """(H, n, I J K): rows of ``table`` (H, 2I-1, 2J-1, 2K-1) for the queries of ``block``, **the last one first**."""
    windows = _windows(table, shape, block)
    return windows.reshape(len(table), math.prod(_counts(block, shape)), math.prod(shape))


def add_rows(table: Tensor, shape: Triple, block: Block, rows: Tensor) -> None:
    """The adjoint of ``backward_rows``: adds ``rows`` to the entries of ``table`` that they came from, in place."""
    counts, starts = _counts(block, shape), _starts(block, shape)
    backwards = rows.reshape(len(table), *counts, *shape)
    for a in range(counts[0]):
        for b in range(counts[1]):
            for c in range(counts[2]):
                i, j, k = (
                    slice(start + n, start + n + size) for start, n, size in zip(starts, (a, b, c), shape, strict=True)
                )
                table[:, i, j, k] += backwards[:, a, b, c]


def _counts(block: Block, shape: Triple) -> Triple:
    (i, i_end), (j, j_end) = block
    return i_end - i, j_end - j, shape[2]


def _starts(block: Block, shape: Triple) -> Triple:
    """Where the window of the block's last query begins."""
    (_, i_end), (_, j_end) = block
    return shape[0] - i_end, shape[1] - j_end, 0


def _windows(table: Tensor, shape: Triple, block: Block) -> Tensor:
    """View (H, n_i, n_j, n_k, I, J, K) of ``table``, queries backwards."""
    heads, i, j, k = table.stride()
    start = sum(a * s for a, s in zip(_starts(block, shape), (i, j, k), strict=True))
    return torch.as_strided(
        table,
        (len(table), *_counts(block, shape), *shape),
        (heads, i, j, k, i, j, k),
        table.storage_offset() + start,
    )
