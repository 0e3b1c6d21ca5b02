"""Turning queries and keys: pairs of channels by angles, blocks of channels by matrices."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def rotary_from_angles(angles: Tensor) -> Tensor:
    """Cosine and sine, (..., P, 2), of ``angles`` (..., P)."""
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


def rotate_pairs(x: Tensor, rotary: Tensor) -> Tensor:
    """Turn channel pairs (2p, 2p + 1) of ``x`` (B, H, N, D) by the angles in ``rotary`` (B, 1 or H, N, P, 2).

    RoFormer, arXiv:2104.09864, eq. 34. A complex product is the fastest eager form; written out, the same product
    compiles into one kernel and takes any memory layout.
    """
    turned_channels = 2 * rotary.shape[-2]
    pairs = x[..., :turned_channels].to(rotary.dtype).unflatten(-1, (-1, 2))
    if not torch.compiler.is_compiling() and _can_be_complex(pairs) and _can_be_complex(rotary):
        turned = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(rotary))
    else:
        turned = complex_product(pairs, rotary)
    return _with_rest(turned.flatten(-2).to(x.dtype), x)


def complex_product(one: Tensor, other: Tensor) -> Tensor:
    """Of complex numbers (..., 2); the composition of two turns."""
    (a, b), (c, d) = one.unbind(-1), other.unbind(-1)
    return torch.stack([a * c - b * d, a * d + b * c], dim=-1)


def compose_turns(one: Tensor, other: Tensor) -> Tensor:
    """First ``one``, then ``other``, both (B, 1 or H, N, P, 2), of as many pairs as the longer of them."""
    pairs = max(one.shape[-2], other.shape[-2])
    return complex_product(*(_with_still_pairs(rotary, pairs) for rotary in (one, other)))


def multiply_blocks(x: Tensor, matrices: Tensor) -> Tensor:
    """``x`` (B, H, N, D) with its first G b channels, in blocks of b, times ``matrices`` (B, 1 or H, N, G, b, b)."""
    groups, size = matrices.shape[-3:-1]
    blocks = x[..., : groups * size].to(matrices.dtype).unflatten(-1, (groups, size, 1))
    return _with_rest((matrices @ blocks).flatten(-3).to(x.dtype), x)


def _with_rest(turned: Tensor, x: Tensor) -> Tensor:
    """``turned`` with the channels of ``x`` past it."""
    count = turned.shape[-1]
    return turned if count == x.shape[-1] else torch.cat([turned, x[..., count:]], dim=-1)


def _with_still_pairs(rotary: Tensor, pairs: int) -> Tensor:
    cosine, sine = rotary.unbind(-1)
    more = (0, pairs - rotary.shape[-2])
    return torch.stack([F.pad(cosine, more, value=1.0), F.pad(sine, more)], dim=-1)


def _can_be_complex(pairs: Tensor) -> bool:
    """Whether a complex view exists: neighbouring pairs, even strides (an odd head width has odd ones)."""
    return pairs.stride(-1) == 1 and all(step % 2 == 0 for step in (*pairs.stride()[:-1], pairs.storage_offset()))
