"""Attention with a table bias in blocks of queries: no tensor of (H, N, M) exists, forward or backward.

Two custom operators, so that ``torch.compile`` sees one node each and no loop over blocks. The forward keeps the
log-sum-exp of each row; the backward computes each block's weights again from it, and adds what flows back into a bias
straight to its table.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from medattn.attention.table_rows import add_rows, backward_rows, blocks, bounds
from medattn.geometry.grid import Triple

QUERIES = 256
"""About how many queries a block has."""


class _Block(NamedTuple):
    """Queries ``start`` to ``stop`` of samples ``batch``, and what is added to their logits, the last query first.

    Attributes:
        bias: (1 or b, H, n, M), -inf where the mask forbids; None if nothing is added.
        empty: (b or 1, H or 1, n, 1), rows that may attend to nothing; None if there are none.
        fold: where gradients of ``bias`` go: number of the table, its block, and the columns of its grid.
    """

    batch: slice
    start: int
    stop: int
    bias: Tensor | None
    empty: Tensor | None
    fold: tuple[int, object, slice] | None


def _blocks(
    q: Tensor, memories: int, tables: list[Tensor], shapes: list[int], prefix: int, mask: Tensor | None, causal: bool
) -> Iterator[_Block]:
    triples: list[Triple] = [(shapes[n], shapes[n + 1], shapes[n + 2]) for n in range(0, len(shapes), 3)]
    for number, (table, shape) in enumerate(zip(tables, triples, strict=True)):
        batch = slice(None) if len(tables) == 1 else slice(number, number + 1)
        end = prefix + math.prod(shape)
        columns = slice(prefix, end)
        outside = [(0, prefix), *((s, min(s + QUERIES, q.shape[2])) for s in range(end, q.shape[2], QUERIES))]
        for start, stop in outside:
            if start < stop:
                yield _masked(q, batch, start, stop, None, None, mask, causal, memories)
        cast = table.to(q.dtype)
        for block in blocks(shape, QUERIES):
            first, last = bounds(block, shape)
            rows = backward_rows(cast, shape, block)
            if (prefix, end) != (0, memories):
                rows = torch.nn.functional.pad(rows, (prefix, memories - end))
            fold = (number, block, columns)
            yield _masked(q, batch, prefix + first, prefix + last, rows[None], fold, mask, causal, memories)


def _masked(
    q: Tensor,
    batch: slice,
    start: int,
    stop: int,
    bias: Tensor | None,
    fold: tuple[int, object, slice] | None,
    mask: Tensor | None,
    causal: bool,
    memories: int,
) -> _Block:
    if mask is None and not causal:
        return _Block(batch, start, stop, bias, None, fold)
    allowed = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=q.device)
    if mask is not None:
        own = mask[batch] if mask.shape[0] > 1 else mask
        allowed = own[:, :, start:stop].flip(2) if mask.shape[2] > 1 else own
    if causal:
        numbers = torch.arange(stop - 1, start - 1, -1, device=q.device)
        allowed = allowed & (torch.arange(memories, device=q.device) <= numbers[:, None])
    empty = ~allowed.any(-1, keepdim=True)
    bias = torch.zeros(1, 1, 1, 1, dtype=q.dtype, device=q.device) if bias is None else bias
    return _Block(batch, start, stop, torch.where(allowed | empty, bias, -math.inf), empty, fold)


def _has_cpu_kernel(q: Tensor) -> bool:
    return q.device.type == "cpu" and hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu")


def _bias_for_kernel(block: _Block, q: Tensor, memories: int) -> Tensor | None:
    if block.bias is None:
        return None
    return block.bias.expand(q.shape[0], q.shape[1], q.shape[2], memories)


def _attend_block(q: Tensor, k: Tensor, v: Tensor, block: _Block, scale: float) -> tuple[Tensor, Tensor]:
    """Output (b, H, n, D) and log-sum-exp (b, H, n) of queries ``q``, the last one first."""
    if _has_cpu_kernel(q):
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = kernel(q, k, v, 0.0, False, attn_mask=_bias_for_kernel(block, q, k.shape[2]), scale=scale)
    else:
        logits = _logits(q, k, block, scale)
        lse = logits.logsumexp(-1)
        out = ((logits - lse[..., None]).exp() @ v.to(logits.dtype)).to(q.dtype)
    return (out if block.empty is None else out.masked_fill(block.empty, 0.0)), lse


def _logits(q: Tensor, k: Tensor, block: _Block, scale: float) -> Tensor:
    work = torch.promote_types(q.dtype, torch.float32)
    logits = q.to(work) @ k.to(work).mT * scale
    return logits if block.bias is None else logits + block.bias.to(work)


@torch.library.custom_op("medattn::blocked_attention", mutates_args=())
def blocked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tables: list[Tensor],
    shapes: list[int],
    prefix: int,
    mask: Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Output (B, H, N, D) and log-sum-exp (B, H, N) of softmax(scale q k^T + bias, where allowed) v.

    Args:
        q, k, v: (B, H, N, D), of equal widths.
        tables, shapes, prefix: see ``TableBias``; three numbers in ``shapes`` for each table.
        mask: boolean (B or 1, H or 1, N or 1, M), True = may attend.
    """
    out, lse = torch.empty_like(q, memory_format=torch.contiguous_format), _empty_lse(q)
    for block in _blocks(q, k.shape[2], tables, shapes, prefix, mask, causal):
        b, rows = block.batch, slice(block.start, block.stop)
        found, sums = _attend_block(q[b, :, rows].flip(2), k[b], v[b], block, scale)
        out[b, :, rows], lse[b, :, rows] = found.flip(2), sums.flip(2)
    return out, lse


@blocked_attention.register_fake
def _(q, k, v, tables, shapes, prefix, mask, causal, scale):  # type: ignore[no-untyped-def]
    return torch.empty_like(q, memory_format=torch.contiguous_format), _empty_lse(q)


def _empty_lse(q: Tensor) -> Tensor:
    return q.new_empty(q.shape[:3], dtype=torch.promote_types(q.dtype, torch.float32))


@torch.library.custom_op("medattn::blocked_attention_backward", mutates_args=())
def blocked_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    tables: list[Tensor],
    shapes: list[int],
    prefix: int,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    tables_too: bool,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Gradients of q, k, v, and of the tables if ``tables_too`` (else empty tensors)."""
    work = torch.promote_types(q.dtype, torch.float32)
    dq = torch.empty_like(q, memory_format=torch.contiguous_format)
    dk, dv = (torch.zeros(x.shape, dtype=work, device=x.device) for x in (k, v))
    folded = [torch.zeros(t.shape if tables_too else (0,), dtype=work, device=t.device) for t in tables]
    fused = _has_cpu_kernel(q) and not tables_too
    for block in _blocks(q, k.shape[2], tables, shapes, prefix, mask, causal):
        b, rows = block.batch, slice(block.start, block.stop)
        parts = [x[b, :, rows].flip(2) for x in (grad, q, out, lse)]
        if block.empty is not None:
            parts[0] = parts[0].masked_fill(block.empty, 0.0)
        if fused:
            dq_part, dk_part, dv_part = _fused_backward(parts, k[b], v[b], block, scale)
        else:
            dq_part, dk_part, dv_part, dlogits = _written_out_backward(parts, k[b], v[b], block, scale)
            if tables_too and block.fold is not None:
                number, where, columns = block.fold
                shape = (shapes[3 * number], shapes[3 * number + 1], shapes[3 * number + 2])
                add_rows(folded[number], shape, where, dlogits[..., columns].sum(0))  # type: ignore[arg-type]
        dq[b, :, rows] = dq_part.flip(2).to(q.dtype)
        dk[b] += dk_part
        dv[b] += dv_part
    return dq, dk.to(k.dtype), dv.to(v.dtype), [f.to(t.dtype) for f, t in zip(folded, tables, strict=True)]


@blocked_attention_backward.register_fake
def _(grad, q, k, v, out, lse, tables, shapes, prefix, mask, causal, scale, tables_too):  # type: ignore[no-untyped-def]
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    return dq, dk, dv, [torch.empty_like(t) if tables_too else t.new_empty(0) for t in tables]


def _fused_backward(
    parts: list[Tensor], k: Tensor, v: Tensor, block: _Block, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    grad, q, out, lse = parts
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    bias = _bias_for_kernel(block, q, k.shape[2])
    found: tuple[Tensor, Tensor, Tensor] = kernel(grad, q, k, v, out, lse, 0.0, False, attn_mask=bias, scale=scale)
    return found


def _written_out_backward(
    parts: list[Tensor], k: Tensor, v: Tensor, block: _Block, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the block's queries, of keys and values, and of the logits (b, H, n, M)."""
    work = torch.promote_types(q_dtype := parts[1].dtype, torch.float32)
    assert q_dtype.is_floating_point
    grad, q, out = (x.to(work) for x in parts[:3])
    weights = (_logits(parts[1], k, block, scale) - parts[3][..., None].to(work)).exp()
    dweights = grad @ v.to(work).mT
    dlogits = weights * (dweights - (grad * out).sum(-1, keepdim=True))
    return dlogits @ k.to(work) * scale, dlogits.mT @ q * scale, weights.mT @ grad, dlogits


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    q, k, v, tables, shapes, prefix, mask, causal, scale = inputs
    out, lse = output
    ctx.save_for_backward(q, k, v, out, lse, mask, *tables)
    ctx.settings = (shapes, prefix, causal, scale)
    ctx.tables_too = any(t.requires_grad for t in tables)
    ctx.mark_non_differentiable(lse)


def _backward(ctx, grad, _):  # type: ignore[no-untyped-def]
    q, k, v, out, lse, mask, *tables = ctx.saved_tensors
    shapes, prefix, causal, scale = ctx.settings
    dq, dk, dv, dtables = blocked_attention_backward(
        grad, q, k, v, out, lse, tables, shapes, prefix, mask, causal, scale, ctx.tables_too
    )
    return dq, dk, dv, dtables if ctx.tables_too else [None] * len(tables), None, None, None, None, None


blocked_attention.register_autograd(_backward, setup_context=_save)
