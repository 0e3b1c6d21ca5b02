"""Scaled dot-product attention as pure functions. Shapes: B batch, H heads, N queries, M memories, D head width."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from medattn.attention.backends import Backend, choose_backend, note_choice
from medattn.attention.blocked import QUERIES, blocked_attention
from medattn.attention.checks import check_arguments
from medattn.attention.flex import attend_by_flex
from medattn.attention.masks import combined_mask, shielded, spoil
from medattn.encodings.bias import Bias, TableBias

Channels = tuple[Tensor, Tensor]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | Bias | None = None,
    channels: Channels | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    temperature: float = 1.0,
    dropout: float = 0.0,
    backend: Backend = "auto",
) -> Tensor:
    """softmax(q k^T / (sqrt(D) temperature) + bias + channels, over the allowed memories) v.

    Args:
        q: (B, H, N, D); k: (B, H, M, D); v: (B, H, M, E). E need not equal D.
        bias: added to the logits, a tensor broadcastable to (B, H, N, M), or a ``Bias``, which is never stored whole.
        channels: extra channels (B, H, N, C) of queries and (B or 1, H or 1, M, C) of keys, whose inner product is
            added to the logits, whatever D and temperature.
        mask: boolean, broadcastable to (B, H, N, M); True = may attend. A query that may attend to nothing gives 0,
            with finite gradients. What is stored at a memory has no effect, NaN and inf included, on the queries that
            may not attend to it.
        causal: memory j is allowed for query i only if j <= i.
        temperature: divides the logits before the bias; the weights maximise sum(a s) + temperature x entropy(a)
            for s = q k^T / sqrt(D).
        dropout: probability of dropping a weight. The caller passes 0 outside training.
        backend: "fused" is ``scaled_dot_product_attention``, "blocked" takes queries block by block, so that no
            (H, N, M) exists forward or backward, "flex" is ``flex_attention`` with biases read from their tables in
            the kernel (for CUDA; on the CPU it is written out and has no gradients), "reference" is the written-out
            softmax; "auto" chooses, unless told by ``prefer_backend``, and ``choose_backend`` and ``record_backends``
            tell what and why.

    Returns:
        (B, H, N, E).

    Raises:
        ValueError: for shapes that do not fit (both are named), a non-boolean mask, or bad settings.
    """
    check_arguments(q, k, v, bias, channels, mask, temperature, dropout)
    choice = choose_backend(bias, dropout, backend)
    note_choice(choice)
    k, spoilt_by_k = shielded(k, mask, causal, q)
    v, spoilt_by_v = shielded(v, mask, causal, q)
    q, k, scale = _with_channels(q, k, channels, temperature)
    width = v.shape[-1]
    if choice.name == "reference":
        weights = F.dropout(_weights(q, k, _dense(bias), mask, causal, scale), dropout)
        out = (weights @ v.to(weights.dtype)).to(v.dtype)
    else:
        q, k, v = _of_one_width(q, k, v)
        if choice.name == "flex":
            assert bias is None or isinstance(bias, TableBias)
            out = attend_by_flex(q, k, v, bias, mask, causal, scale)
        elif choice.name == "fused":
            out = _fused(q, k, v, _dense(bias), mask, causal, scale, dropout)
        elif isinstance(bias, TableBias) and dropout == 0:
            out = _from_table(q, k, v, bias, mask, causal, scale)
        else:
            out = _in_blocks(q, k, v, bias, mask, causal, scale, dropout)
        out = out[..., :width]
    return spoil(spoil(out, spoilt_by_k), spoilt_by_v)


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    bias: Tensor | Bias | None = None,
    channels: Channels | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    temperature: float = 1.0,
    queries: Tensor | None = None,
) -> Tensor:
    """The weights (B, H, N, M) that ``attend`` uses, same arguments; a row without an allowed memory is all 0.

    Args:
        queries: numbers (n,) of the queries to give the weights of, (B, H, n, M), without computing others.
    """
    check_arguments(q, k, None, bias, channels, mask, temperature, 0.0)
    k, spoilt = shielded(k, mask, causal, q)
    allowed = combined_mask(mask, causal, q, k) if mask is not None or causal else None
    q, k, scale = _with_channels(q, k, channels, temperature)
    if queries is None:
        return spoil(_weights(q, k, _dense(bias), allowed, False, scale).to(q.dtype), spoilt)
    some, own = _rows(bias, allowed, queries, k.shape[2])
    weights = _weights(q[:, :, queries], k, some, own, False, scale).to(q.dtype)
    return spoil(weights, None if spoilt is None else spoilt[..., queries, :])


def _dense(bias: Tensor | Bias | None) -> Tensor | None:
    return bias.dense() if isinstance(bias, Bias) else bias


def _with_channels(q: Tensor, k: Tensor, channels: Channels | None, temperature: float) -> tuple[Tensor, Tensor, float]:
    """Queries and keys with the extra channels, and the scale of their product.

    The extra ones are multiplied by a power of two, which rounds nothing, and the others by what is then missing.
    """
    root = math.sqrt(q.shape[-1]) * temperature
    if channels is None:
        return q, k, 1.0 / root
    power = 2.0 ** round(math.log2(root))
    extra_q, extra_k = channels[0].to(q.dtype) * power, channels[1].to(k.dtype)
    extra_k = extra_k.expand(*k.shape[:2], *extra_k.shape[2:])
    return torch.cat([q * (power / root), extra_q], -1), torch.cat([k, extra_k], -1), 1.0 / power


def _of_one_width(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Padded with zeros to one width: kernels for unequal ones are many times slower."""
    width = max(q.shape[-1], v.shape[-1])
    q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    return q, k, v


def _fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    if mask is None and bias is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal, scale=scale)
    attn_mask, empty = _fused_mask(bias, mask, causal, q, k)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=dropout, scale=scale)
    return out.masked_fill(empty, 0.0)


def _from_table(
    q: Tensor, k: Tensor, v: Tensor, bias: TableBias, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    if mask is not None:
        mask = mask[(None,) * (4 - mask.ndim)]
        mask = mask.expand(*mask.shape[:3], k.shape[2])
    sizes = [n for shape in bias.shapes for n in shape]
    out: Tensor = blocked_attention(q, k, v, list(bias.tables), sizes, bias.prefix, mask, causal, scale)[0]
    return out


def _in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | Bias | None,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    """Fused attention of some queries at a time, computed again in the backward pass."""

    def block(q_block: Tensor, k: Tensor, v: Tensor, queries: Tensor) -> Tensor:
        allowed = combined_mask(mask, causal, q, k) if mask is not None or causal else None
        some, own = _rows(bias, allowed, queries, k.shape[2])
        return _fused(q_block, k, v, some, own, False, scale, dropout)

    numbers = torch.arange(q.shape[2], device=q.device)
    outs = [
        checkpoint(block, q[:, :, part], k, v, part, use_reentrant=False, preserve_rng_state=dropout > 0)
        for part in numbers.split(QUERIES)
    ]
    return torch.cat(outs, dim=2)


def _rows(
    bias: Tensor | Bias | None, allowed: Tensor | None, queries: Tensor, memories: int
) -> tuple[Tensor | None, Tensor | None]:
    """Bias and mask of some queries."""
    if isinstance(bias, Bias):
        return bias.pairs(queries, torch.arange(memories, device=queries.device)), _some_rows(allowed, queries)
    return _some_rows(bias, queries), _some_rows(allowed, queries)


def _some_rows(x: Tensor | None, queries: Tensor) -> Tensor | None:
    """Rows of what is broadcastable to (B, H, N, M)."""
    if x is None or x.ndim < 2 or x.shape[-2] == 1:
        return x
    return x[..., queries, :]


def _weights(q: Tensor, k: Tensor, bias: Tensor | None, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """The written-out softmax, for shielded keys, in float32 or better."""
    work = torch.promote_types(q.dtype, torch.float32)
    logits = q.to(work) @ k.to(work).mT * scale
    if bias is None and mask is None and not causal:
        return logits.softmax(-1)
    if bias is not None:
        logits = logits + bias.to(logits.dtype)
    if mask is not None or causal:
        logits = logits.masked_fill(~combined_mask(mask, causal, q, k), -math.inf)
    logits, empty = _without_empty_rows(logits)
    return logits.softmax(-1).masked_fill(empty, 0.0)


def _fused_mask(bias: Tensor | None, mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """(mask or bias in which every row allows something, rows that do not): keeps softmax and its gradient finite."""
    allowed = combined_mask(mask, causal, q, k) if mask is not None or causal else None
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
