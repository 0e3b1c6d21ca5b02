"""Boolean attention masks; True = may attend."""

from __future__ import annotations

import torch
from torch import Tensor


def causal_mask(queries: int, memories: int, *, device: torch.device | str | None = None) -> Tensor:
    """(queries, memories): memory j is allowed for query i if j <= i."""
    return torch.ones(queries, memories, dtype=torch.bool, device=device).tril()


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """(B, size): True for the first ``lengths[b]`` places, the real tokens of sample b.

    Raises:
        ValueError: if a length is below 0 or above ``size``.
    """
    if bool(((lengths < 0) | (lengths > size)).any()):
        raise ValueError(f"lengths must be between 0 and {size}, got {lengths.tolist()}")
    return torch.arange(size, device=lengths.device) < lengths[:, None]
