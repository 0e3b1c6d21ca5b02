"""Boolean attention masks; True = may attend."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from medattn.geometry.grid import Triple


def causal_mask(queries: int, memories: int, *, device: torch.device | str | None = None) -> Tensor:
    """(queries, memories): memory j is allowed for query i if j <= i."""
    return torch.ones(queries, memories, dtype=torch.bool, device=device).tril()


def axis_causal_mask(shape: Triple, axis: int, *, device: torch.device | str | None = None) -> Tensor:
    """(N, N) for the tokens of a grid of ``shape`` in raster order: a token may attend to its own slab along ``axis``
    and to those before it, as if the scan arrived slab by slab.

    Raises:
        ValueError: if ``axis`` is not 0, 1 or 2.
    """
    if axis not in (0, 1, 2):
        raise ValueError(f"axis must be 0, 1 or 2, got {axis!r}")
    slab = torch.arange(shape[axis], device=device).reshape([-1 if a == axis else 1 for a in range(3)])
    numbers = slab.expand(shape).flatten()
    return numbers[None, :] <= numbers[:, None]


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """(B, size): True for the first ``lengths[b]`` places, the real tokens of sample b.

    Raises:
        ValueError: if a length is below 0 or above ``size``.
    """
    if bool(((lengths < 0) | (lengths > size)).any()):
        raise ValueError(f"lengths must be between 0 and {size}, got {lengths.tolist()}")
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def combined_mask(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor:
    """``mask`` and the causal one together, of rank 2 or more."""
    if mask is not None and not causal:
        return torch.atleast_2d(mask)
    lower = causal_mask(q.shape[-2], k.shape[-2], device=q.device)
    return lower if mask is None else torch.atleast_2d(mask) & lower


def shielded(x: Tensor, mask: Tensor | None, causal: bool, q: Tensor) -> tuple[Tensor, Tensor | None]:
    """Memories ``x`` (B, H, M, D) that cannot spoil queries which may not attend to them: 0 x NaN is NaN.

    A mask that is the same for all queries zeroes the memories that it excludes. Where it differs, what is not finite
    is zeroed, and the second result (B, H, N, 1) says which queries may attend to such a memory, to be spoilt after.
    """
    if not causal and (mask is None or mask.ndim < 2 or mask.shape[-2] == 1):
        used = None if mask is None else torch.atleast_2d(mask).transpose(-2, -1)
        return x if used is None else torch.where(used, x, x.new_zeros(())), None
    finite = x.isfinite()
    bad = ~finite.all(-1)
    if mask is None:  # causal alone: without an (N, M) table
        last = torch.arange(q.shape[-2], device=x.device).clamp(max=x.shape[-2] - 1)
        spoilt = (bad.cumsum(-1) > 0)[..., last]
    else:
        spoilt = (combined_mask(mask, causal, q, x) & bad[..., None, :]).any(-1)
    return torch.where(finite, x, x.new_zeros(())), spoilt[..., None]


def spoil(x: Tensor, spoilt: Tensor | None) -> Tensor:
    """What attention would give the queries that do attend to a memory which is not finite."""
    return x if spoilt is None else x.masked_fill(spoilt, math.nan)
