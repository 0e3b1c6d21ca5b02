"""Between the two layouts of rotary channel pairs, for weights that were trained elsewhere.

Here channels 2p and 2p + 1 turn together (interleaved). Others turn channels p and p + D/2 (half-split, "rotate half").
The two differ by an order of the channels within a head, so weights of one become weights of the other exactly.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

RotaryLayout = Literal["interleaved", "half"]


def to_interleaved(projection: Tensor, num_heads: int, layout: RotaryLayout) -> Tensor:
    """Rows of a query or key projection, weight (H D, ...) or bias (H D,), for our interleaved pairs.

    Args:
        layout: how the rows lie now: "half" or, with nothing to do, "interleaved".

    Raises:
        ValueError: for an unknown layout, or rows that make no even head width.
    """
    if layout not in ("interleaved", "half"):
        raise ValueError(f"layout must be 'interleaved' or 'half', got {layout!r}")
    return projection if layout == "interleaved" else projection[_order(projection, num_heads)]


def to_half(projection: Tensor, num_heads: int) -> Tensor:
    """The inverse: interleaved rows as a half-split model wants them."""
    return projection[_order(projection, num_heads).argsort()]


def _order(projection: Tensor, num_heads: int) -> Tensor:
    """Which half-split row lies at each interleaved place."""
    rows = len(projection)
    if rows % (2 * num_heads):
        raise ValueError(f"projection must have a multiple of 2 x {num_heads} heads rows, got {rows}")
    width = rows // num_heads
    within = torch.arange(width).unflatten(0, (2, -1)).mT.flatten()
    return (torch.arange(num_heads)[:, None] * width + within).flatten()
