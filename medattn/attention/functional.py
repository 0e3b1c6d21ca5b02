"""Scaled dot-product attention as pure functions. Shapes: B batch, H heads, N queries, M memories, D head width."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from medattn.attention.masks import causal_mask

Backend = Literal["auto", "fused", "reference"]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    temperature: float = 1.0,
    dropout: float = 0.0,
    backend: Backend = "auto",
) -> Tensor:
    """softmax(q k^T / (sqrt(D) temperature) + bias, over the allowed memories) v.

    Args:
        q: (B, H, N, D); k: (B, H, M, D); v: (B, H, M, E). E need not equal D.
        bias: added to the logits, broadcastable to (B, H, N, M).
        mask: boolean, broadcastable to (B, H, N, M); True = may attend. A query that may attend to nothing gives 0,
            with finite gradients. What is stored at a memory that no query may attend to, NaN included, has no effect.
        causal: memory j is allowed for query i only if j <= i.
        temperature: divides the logits before the bias; the weights maximise sum(a s) + temperature x entropy(a)
            for s = q k^T / sqrt(D).
        dropout: probability of dropping a weight. The caller passes 0 outside training.
        backend: "fused" is ``scaled_dot_product_attention``, "reference" the written-out softmax; "auto" is fused.

    Returns:
        (B, H, N, E).

    Raises:
        ValueError: for shapes that do not fit (both are named), a non-boolean mask, or bad settings.
    """
    scale = _checked_scale(q, k, temperature)
    if v.shape[-2] != k.shape[-2]:
        raise ValueError(f"k and v must have as many memories, got k {tuple(k.shape)} and v {tuple(v.shape)}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")
    if backend not in ("auto", "fused", "reference"):
        raise ValueError(f"backend must be auto, fused or reference, got {backend!r}")
    if backend == "reference":
        weights = attention_weights(q, k, bias=bias, mask=mask, causal=causal, temperature=temperature)
        return F.dropout(weights, dropout) @ _without_unused(v, mask)
    if mask is None and bias is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal, scale=scale)
    allowed, has_any = _allowed(mask, causal, q, k)
    k, v = _without_unused(k, mask), _without_unused(v, mask)
    attn_mask = allowed if bias is None else _masked_bias(bias, allowed, q)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=dropout, scale=scale)
    return out if has_any is None else out.masked_fill(~has_any, 0.0)


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    temperature: float = 1.0,
) -> Tensor:
    """The weights (B, H, N, M) that ``attend`` uses, same arguments; a row without an allowed memory is all 0."""
    scale = _checked_scale(q, k, temperature)
    allowed, has_any = _allowed(mask, causal, q, k)
    logits = q @ _without_unused(k, mask).transpose(-2, -1) * scale
    if bias is not None:
        logits = logits + bias
    if allowed is None:
        return logits.softmax(-1)
    weights = logits.masked_fill(~allowed, -math.inf).softmax(-1)
    return weights if has_any is None else weights.masked_fill(~has_any, 0.0)


def _checked_scale(q: Tensor, k: Tensor, temperature: float) -> float:
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same width, got {q.shape[-1]} (q) and {k.shape[-1]} (k)")
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite, got {temperature!r}")
    return 1.0 / (math.sqrt(q.shape[-1]) * temperature)


def _allowed(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """(mask in which every row allows something, rows that really do): keeps softmax and its gradient finite."""
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean (True = may attend), got {mask.dtype}")
    mask = mask[None] if mask is not None and mask.ndim == 1 else mask
    if causal:
        lower = causal_mask(q.shape[-2], k.shape[-2], device=q.device)
        mask = lower if mask is None else mask & lower
    if mask is None:
        return None, None
    has_any = mask.any(-1, keepdim=True)
    return mask | ~has_any, has_any


def _without_unused(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zero the memories (B, H, M, D) that no query may attend to: 0 x NaN is NaN, so a weight of 0 is not enough."""
    if mask is None:
        return x
    used = (mask.any(-2) if mask.ndim > 1 else mask)[..., None]
    return torch.where(used, x, x.new_zeros(()))


def _masked_bias(bias: Tensor, allowed: Tensor | None, q: Tensor) -> Tensor:
    bias = bias.to(q.dtype)
    return bias if allowed is None else bias.masked_fill(~allowed, -math.inf)
