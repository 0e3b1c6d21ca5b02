"""Attention written out entry by entry in float64: the definition, with no trick in it."""

import math

import torch
from torch import Tensor


def naive_weights(
    q: Tensor,
    k: Tensor,
    *,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    temperature: float = 1.0,
) -> Tensor:
    """(B, H, N, M) float64; differentiable."""
    q, k = q.double(), k.double()
    shape = (*q.shape[:-1], k.shape[-2])
    added = torch.zeros(shape, dtype=torch.float64) if bias is None else bias.double().expand(shape)
    allowed = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    weights = []
    for b, h, n in torch.cartesian_prod(*(torch.arange(size) for size in shape[:3])).tolist():
        places = [m for m in range(shape[3]) if allowed[b, h, n, m] and not (causal and m > n)]
        exponentials = {
            m: ((q[b, h, n] * k[b, h, m]).sum() / math.sqrt(q.shape[-1]) / temperature + added[b, h, n, m]).exp()
            for m in places
        }
        total = sum(exponentials.values(), torch.zeros((), dtype=torch.float64))
        zero = torch.zeros((), dtype=torch.float64)
        weights += [exponentials[m] / total if m in exponentials else zero for m in range(shape[3])]
    return torch.stack(weights).reshape(shape)


def naive_attend(q: Tensor, k: Tensor, v: Tensor, **settings: object) -> Tensor:
    """(B, H, N, E) float64."""
    weights = naive_weights(q, k, **settings)  # type: ignore[arg-type]
    return (weights[..., None] * v.double()[..., None, :, :]).sum(-2)
