"""Attention by PyTorch's ``flex_attention``: biases are read from their tables inside the kernel."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from medattn.attention.masks import combined_mask
from medattn.encodings.bias import TableBias

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(score, sample, head, query, memory) -> score, for one pair."""


def attend_by_flex(
    q: Tensor, k: Tensor, v: Tensor, bias: TableBias | None, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """softmax(scale q k^T + bias, where allowed) v; see ``attend``.

    On CUDA it is compiled, once for all numbers of tokens. Elsewhere, and in float64, it is written out, and holds
    (B, H, N, M).

    Raises:
        ValueError: on the CPU for what needs a gradient, which ``flex_attention`` does not have there.
    """
    if q.device.type == "cpu":
        if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
            raise ValueError("backend 'flex' has no gradients on the CPU: use 'auto' there, or torch.no_grad()")
        q, k, v = q.detach(), k.detach(), v.detach()  # it refuses leaves even where no gradient is asked for
    allowed = _of_four_axes(combined_mask(mask, causal, q, k)) if mask is not None else None
    empty = None if allowed is None else ~allowed.any(-1, keepdim=True)
    run: Any = _compiled() if _can_compile(q) else flex_attention
    out: Tensor = run(q, k, v, score_mod=score_mod(bias, allowed, empty, causal and mask is None), scale=scale)
    return out if empty is None else out.masked_fill(empty, 0.0)


def score_mod(bias: TableBias | None, allowed: Tensor | None, empty: Tensor | None, causal: bool) -> ScoreMod:
    """What is added to a score; -inf where a query may not attend, except in the rows ``empty`` (B, H, N, 1)."""
    added = None if bias is None else _lookup(bias)

    def score_of(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if added is not None:
            score = score + added(b, h, i, j)
        if allowed is not None and empty is not None:
            score = torch.where(_entry(allowed, b, h, i, j) | _entry(empty, b, h, i, j), score, -math.inf)
        return torch.where(j <= i, score, -math.inf) if causal else score

    return score_of


def _lookup(bias: TableBias) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The entry of the sample's own table, all tables lying behind each other; 0 for tokens outside of its grid."""
    device, prefix = bias.device, bias.prefix
    flat = torch.cat([table.flatten(1) for table in bias.tables], dim=1)
    sizes = [table[0].numel() for table in bias.tables]
    starts = torch.tensor(sizes, device=device).cumsum(0) - torch.tensor(sizes, device=device)
    shapes = torch.tensor(bias.shapes, device=device)
    shared = len(bias.tables) == 1

    def added(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        sample = torch.zeros_like(b) if shared else b
        height, depth, width = shapes[sample, 0], shapes[sample, 1], shapes[sample, 2]
        q, m = i - prefix, j - prefix
        along_i = m // (depth * width) - q // (depth * width) + height - 1
        along_j = m // width % depth - q // width % depth + depth - 1
        along_k = m % width - q % width + width - 1
        place = (along_i * (2 * depth - 1) + along_j) * (2 * width - 1) + along_k
        count = height * depth * width
        inside = (q >= 0) & (m >= 0) & (q < count) & (m < count)
        return torch.where(inside, flat[h, starts[sample] + torch.where(inside, place, 0)], 0.0)

    return added


def _of_four_axes(mask: Tensor) -> Tensor:
    return mask[(None,) * (4 - mask.ndim)]


def _entry(x: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Of what is broadcastable to (B, H, N, M)."""
    zero = torch.zeros_like(b)
    places = [zero if size == 1 else place for size, place in zip(x.shape, (b, h, i, j), strict=True)]
    return x[places[0], places[1], places[2], places[3]]


def _can_compile(q: Tensor) -> bool:
    return q.device.type == "cuda" and q.dtype != torch.float64 and not torch.compiler.is_compiling()


@functools.cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)
