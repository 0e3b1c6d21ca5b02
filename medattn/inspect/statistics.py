"""What attention weights look like: numbers about rows (..., N, M) that sum to 1, or to 0 where nothing is allowed."""

from __future__ import annotations

import torch
from torch import Tensor


def entropy(weights: Tensor) -> Tensor:
    """-sum a log a of each row in nats, (..., N): 0 for one memory alone, log m for m alike (its ceiling)."""
    return -torch.special.xlogy(weights, weights).sum(-1)


def effective_rank(weights: Tensor) -> Tensor:
    """(...): exp of the entropy of the singular values, normalised to sum 1; between 1 and min(N, M).

    Roy and Vetterli 2007, "The effective rank". For rows of some queries it is that of their matrix alone.
    """
    values = torch.linalg.svdvals(weights.to(torch.promote_types(weights.dtype, torch.float32)))
    return entropy(values / values.sum(-1, keepdim=True)).exp()


def attention_distance_mm(
    weights: Tensor, queries_mm: Tensor, memories_mm: Tensor, placed: Tensor | None = None
) -> Tensor:
    """Mean distance in mm at which each query looks, (..., N): sum a |x - y| over memories that have a place.

    Args:
        weights: (..., N, M).
        queries_mm: (N, 3); memories_mm: (M, 3).
        placed: (M,) boolean; memories without a place (prefix tokens, padding) are left out, and the weights of the
            others scaled up to sum 1. Rows that look at none of them are NaN.

    Raises:
        ValueError: if the numbers of queries and memories do not fit.
    """
    if (len(queries_mm), len(memories_mm)) != tuple(weights.shape[-2:]):
        got = f"{len(queries_mm)} queries and {len(memories_mm)} memories"
        raise ValueError(f"positions must be those of weights {tuple(weights.shape)}, got {got}")
    if placed is not None:
        weights = weights * placed
    distances = (queries_mm[:, None] - memories_mm).square().sum(-1).sqrt().to(weights.dtype)
    if placed is not None:
        distances = torch.where(placed, distances, 0.0)
    return (weights * distances).sum(-1) / weights.sum(-1)


def saturation(weights: Tensor) -> Tensor:
    """Mean of a (1 - a) over each row, (..., N): the diagonal of softmax's derivative, near 0 where it is saturated."""
    return (weights * (1 - weights)).mean(-1)


def sink_mass(weights: Tensor) -> Tensor:
    """(...): the largest share of attention, averaged over queries, that one memory takes; 1 / M if all are alike."""
    return weights.mean(-2).amax(-1)


def score_variance(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Variance over all pairs of q.k and of q.k / sqrt(D), each (...), for (..., N, D) and (..., M, D).

    For independent standard normal components they are D and 1.
    """
    variance = (q @ k.mT).flatten(-2).var(-1)
    return variance, variance / q.shape[-1]
