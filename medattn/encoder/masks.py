"""Which token may attend to which."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from medattn.attention.masks import axis_causal_mask
from medattn.geometry.grid import Triple


def keys_mask(keys: Tensor, prefix: int) -> Tensor:
    """(B, 1, 1, prefix + N): all may attend to the ``prefix`` first tokens and to those of ``keys`` (B, N)."""
    return F.pad(keys, (prefix, 0), value=True)[:, None, None, :]


def causal_token_mask(shapes: Sequence[Triple], axis: int, length: int, prefix: int, device: torch.device) -> Tensor:
    """(B or 1, 1, prefix + N, prefix + N) for token grids ``shapes``, padded to N = ``length``.

    A token may attend to its own layer along ``axis``, to those before it and to the prefix, which comes first of all.
    """
    shapes = shapes[:1] if len(set(shapes)) == 1 else shapes
    mask = torch.zeros(len(shapes), 1, prefix + length, prefix + length, dtype=torch.bool, device=device)
    mask[..., :prefix] = True
    mask[:, :, :prefix, prefix:] = False
    for row, shape in zip(mask, shapes, strict=True):
        own = axis_causal_mask(shape, axis, device=device)
        row[0, prefix : prefix + len(own), prefix : prefix + len(own)] = own
    return mask
