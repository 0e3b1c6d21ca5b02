"""What ``attend`` asks of its arguments."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from medattn.encodings.bias import Bias


def check_arguments(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    bias: Tensor | Bias | None,
    channels: tuple[Tensor, Tensor] | None,
    mask: Tensor | None,
    temperature: float,
    dropout: float,
) -> None:
    """Raise a ValueError that names both sides of what does not fit."""
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same width, got {q.shape[-1]} (q) and {k.shape[-1]} (k)")
    if q.ndim != k.ndim or any(a != b and 1 not in (a, b) for a, b in zip(q.shape[:-2], k.shape[:-2], strict=True)):
        raise ValueError(f"q and k must have the same batch and heads, got q {tuple(q.shape)} and k {tuple(k.shape)}")
    if v is not None and v.shape[-2] != k.shape[-2]:
        raise ValueError(f"k and v must have as many memories, got k {tuple(k.shape)} and v {tuple(v.shape)}")
    if v is not None and v.shape[:-2] != k.shape[:-2]:
        raise ValueError(f"k and v must have the same batch and heads, got k {tuple(k.shape)} and v {tuple(v.shape)}")
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean (True = may attend), got {mask.dtype}")
    logits = (*map(max, zip(q.shape[:-2], k.shape[:-2], strict=True)), q.shape[-2], k.shape[-2])
    _check_terms(q, k, logits, bias, channels, mask)
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite, got {temperature!r}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")


def _check_terms(
    q: Tensor,
    k: Tensor,
    logits: tuple[int, ...],
    bias: Tensor | Bias | None,
    channels: tuple[Tensor, Tensor] | None,
    mask: Tensor | None,
) -> None:
    if isinstance(bias, Bias):
        if (bias.num_tokens, bias.num_tokens) != logits[-2:]:
            raise ValueError(f"bias must be of as many tokens as q and k, got {bias.num_tokens} for logits {logits}")
        bias = None
    for name, x in (("bias", bias), ("mask", mask)):
        if x is not None and not _fits(tuple(x.shape), logits):
            raise ValueError(f"{name} must be broadcastable to the logits' shape {logits}, got {tuple(x.shape)}")
    if channels is not None:
        extra_q, extra_k = (tuple(x.shape) for x in channels)
        if not (_fits(extra_q[:-1], q.shape[:-1]) and _fits(extra_k[:-1], k.shape[:-1]) and extra_q[-1] == extra_k[-1]):
            wanted = f"(B, H, N, C) and (B or 1, H or 1, M, C) for logits {logits}"
            raise ValueError(f"channels must be {wanted}, got {extra_q} and {extra_k}")


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    inner = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape, inner, strict=True))
