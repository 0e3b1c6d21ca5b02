"""Scaled dot-product attention as pure functions. Shapes: B batch, H heads, N queries, M memories, D head width."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from medattn.attention.masks import causal_mask
from medattn.encodings.bias import Bias

Backend = Literal["auto", "fused", "reference"]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | Bias | None = None,
    channels: tuple[Tensor, Tensor] | None = None,
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
            with finite gradients. What is stored at a memory has no effect, NaN and inf included, on the queries that
            may not attend to it.
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
    if isinstance(bias, Bias):
        bias = bias.dense()
    if channels is not None:
        extra = (channels[0] @ channels[1].mT).to(q.dtype)
        bias = extra if bias is None else bias + extra
    scale = _checked_scale(q, k, bias, mask, temperature)
    if v.shape[-2] != k.shape[-2]:
        raise ValueError(f"k and v must have as many memories, got k {tuple(k.shape)} and v {tuple(v.shape)}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")
    if backend not in ("auto", "fused", "reference"):
        raise ValueError(f"backend must be auto, fused or reference, got {backend!r}")
    k, spoilt_by_k = _shielded(k, mask, causal, q)
    v, spoilt_by_v = _shielded(v, mask, causal, q)
    if backend == "reference":
        out = F.dropout(_weights(q, k, bias, mask, causal, scale), dropout) @ v
    elif mask is None and bias is None:
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal, scale=scale)
    else:
        attn_mask, empty = _fused_mask(bias, mask, causal, q, k)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=dropout, scale=scale)
        out = out.masked_fill(empty, 0.0)
    return _spoil(_spoil(out, spoilt_by_k), spoilt_by_v)


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
    scale = _checked_scale(q, k, bias, mask, temperature)
    k, spoilt = _shielded(k, mask, causal, q)
    return _spoil(_weights(q, k, bias, mask, causal, scale), spoilt)


def _weights(q: Tensor, k: Tensor, bias: Tensor | None, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """The written-out softmax, for shielded keys."""
    logits = q @ k.transpose(-2, -1) * scale
    if bias is None and mask is None and not causal:
        return logits.softmax(-1)
    if bias is not None:
        logits = logits + bias.to(logits.dtype)
    if mask is not None or causal:
        logits = logits.masked_fill(~_combined(mask, causal, q, k), -math.inf)
    logits, empty = _without_empty_rows(logits)
    return logits.softmax(-1).masked_fill(empty, 0.0)


def _checked_scale(q: Tensor, k: Tensor, bias: Tensor | None, mask: Tensor | None, temperature: float) -> float:
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same width, got {q.shape[-1]} (q) and {k.shape[-1]} (k)")
    if q.ndim != k.ndim or any(a != b and 1 not in (a, b) for a, b in zip(q.shape[:-2], k.shape[:-2], strict=True)):
        raise ValueError(f"q and k must have the same batch and heads, got q {tuple(q.shape)} and k {tuple(k.shape)}")
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean (True = may attend), got {mask.dtype}")
    logits = (*map(max, zip(q.shape[:-2], k.shape[:-2], strict=True)), q.shape[-2], k.shape[-2])
    for name, x in (("bias", bias), ("mask", mask)):
        if x is not None and not _fits(tuple(x.shape), logits):
            raise ValueError(f"{name} must be broadcastable to the logits' shape {logits}, got {tuple(x.shape)}")
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite, got {temperature!r}")
    return 1.0 / (math.sqrt(q.shape[-1]) * temperature)


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    inner = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape, inner, strict=True))


def _fused_mask(bias: Tensor | None, mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """(mask or bias in which every row allows something, rows that do not): keeps softmax and its gradient finite."""
    allowed = _combined(mask, causal, q, k) if mask is not None or causal else None
    if bias is None:
        assert allowed is not None
        empty = ~allowed.any(-1, keepdim=True)
        return allowed | empty, empty
    bias = torch.atleast_2d(bias.to(q.dtype))
    return _without_empty_rows(bias if allowed is None else bias.masked_fill(~allowed, -math.inf))


def _without_empty_rows(logits: Tensor) -> tuple[Tensor, Tensor]:
    """(``logits`` with 0 in rows that are -inf throughout, which rows (..., 1) those are)."""
    empty = (logits == -math.inf).all(-1, keepdim=True)
    return logits.masked_fill(empty, 0.0), empty


def _combined(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor:
    """``mask`` and the causal one together, of rank 2 or more."""
    if mask is not None and not causal:
        return torch.atleast_2d(mask)
    lower = causal_mask(q.shape[-2], k.shape[-2], device=q.device)
    return lower if mask is None else torch.atleast_2d(mask) & lower


def _shielded(x: Tensor, mask: Tensor | None, causal: bool, q: Tensor) -> tuple[Tensor, Tensor | None]:
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
        spoilt = (_combined(mask, causal, q, x) & bad[..., None, :]).any(-1)
    return torch.where(finite, x, x.new_zeros(())), spoilt[..., None]


def _spoil(x: Tensor, spoilt: Tensor | None) -> Tensor:
    """What attention would give the queries that do attend to a memory which is not finite."""
    return x if spoilt is None else x.masked_fill(spoilt, math.nan)
