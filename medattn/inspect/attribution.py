"""What a memory does to an output, measured, and how little its weight says about it.

A weight is routing: it says how much of a value is taken, not whether taking it changes anything. What changes the
output is measured by removal, here for one attention; the rest are estimates of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


def first_order_effects(weights: Tensor, values: Tensor) -> Tensor:
    """a_j (v_j - y), the derivative of the output y = sum a v by each logit: (..., N, M, E).

    Args:
        weights: (..., N, M); values: (..., M, E).
    """
    outputs = weights @ values
    return weights[..., None] * (values[..., None, :, :] - outputs[..., None, :])


def removal_effects(weights: Tensor, values: Tensor) -> Tensor:
    """What each output changes by when memory j is masked, so that the other weights scale up to sum 1: (..., N, M, E).

    y without j is (y - a_j v_j) / (1 - a_j), exactly what attention with a mask gives. Without anything left it is 0.
    """
    outputs = (weights @ values)[..., None, :]
    taken = weights[..., None] * values[..., None, :, :]
    left = 1 - weights[..., None]
    others = torch.where(left > 0, (outputs - taken) / torch.where(left > 0, left, 1.0), 0.0)
    return others - outputs


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """(N, N): products of (A + 1) / 2 over ``layers`` (H, N, N), heads averaged, the first layer first.

    Attention rollout, Abnar and Zuidema 2020, arXiv:2005.00928: it takes the residual path for one half, and values for
    alike. A picture of routes, and no measure of effects.
    """
    total = torch.eye(layers[0].shape[-1], dtype=layers[0].dtype, device=layers[0].device)
    for weights in layers:
        mean = weights.mean(0)
        total = (mean + torch.eye(len(mean), dtype=mean.dtype, device=mean.device)) / 2 @ total
    return total


class Agreement(NamedTuple):
    """How well an estimate predicts effects: rank and linear correlation over ``n`` of them, and the share of the ``k``
    largest effects that are among the k largest estimates."""

    spearman: float
    pearson: float
    top_k: float
    n: int
    k: int


def agreement(estimate: Tensor, effect: Tensor, *, k: int = 10) -> Agreement:
    """Of two tensors of one shape; for effects of vectors pass their lengths.

    Raises:
        ValueError: if the shapes differ, or there are fewer than three.
    """
    if estimate.shape != effect.shape or estimate.numel() < 3:
        got = f"{tuple(estimate.shape)} and {tuple(effect.shape)}"
        raise ValueError(f"estimate and effect must have one shape, of at least three, got {got}")
    one, other = estimate.detach().double().flatten(), effect.detach().double().flatten()
    k = min(k, len(one))
    best = [set(x.argsort(descending=True, stable=True)[:k].tolist()) for x in (one, other)]
    return Agreement(
        spearman=_pearson(ranks(one), ranks(other)),
        pearson=_pearson(one, other),
        top_k=len(best[0] & best[1]) / k,
        n=len(one),
        k=k,
    )


def weights_vs_removal(weights: Tensor, values: Tensor, *, k: int = 10) -> dict[str, Agreement]:
    """How well weights, and first-order effects, predict what removing a memory does to the output, over all pairs.

    Args:
        weights: (..., N, M); values: (..., M, E).

    Returns:
        Agreement of "weights" and of "first_order" with the lengths of the removal effects.
    """
    truth = removal_effects(weights, values).norm(dim=-1)
    return {
        "weights": agreement(weights.expand_as(truth), truth, k=k),
        "first_order": agreement(first_order_effects(weights, values).norm(dim=-1), truth, k=k),
    }


def deletion_curve(output: Callable[[Tensor], Tensor], order: Tensor) -> Tensor:
    """(M + 1,): how far the output moves, as a length, as memories are masked one by one in ``order``.

    Args:
        output: what comes out for a mask (M,), True = kept.
        order: numbers of the memories, the first to go first.
    """
    kept = torch.ones(len(order), dtype=torch.bool, device=order.device)
    whole, moved = output(kept), []
    for number in (None, *order.tolist()):
        if number is not None:
            kept = kept.clone()
            kept[number] = False
        moved.append((output(kept) - whole).norm())
    return torch.stack(moved)


def insertion_curve(output: Callable[[Tensor], Tensor], order: Tensor) -> Tensor:
    """(M + 1,): how far the output still is from the whole one as memories are let in one by one in ``order``."""
    return deletion_curve(output, order.flip(0)).flip(0)


def ranks(x: Tensor) -> Tensor:
    """Ranks from 0 of ``x`` (n,), ties having the mean of theirs."""
    _, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    last = counts.cumsum(0)
    return (last - (counts + 1) / 2.0)[inverse].double()


def _pearson(x: Tensor, y: Tensor) -> float:
    """NaN if one of them does not vary."""
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / (x.norm() * y.norm()))
