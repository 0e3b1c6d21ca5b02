"""Rotary encoding with the channel pairs shared over the axes."""

from __future__ import annotations

import torch
from torch import Tensor

from medattn.encodings.axial import AxialEncoding
from medattn.encodings.base import PositionSignal
from medattn.encodings.registry import register


@register("rotary_axial")
class RotaryAxialEncoding(AxialEncoding):
    """Queries and keys turn by angle = coordinate x frequency, so logits depend on displacements alone.

    RoFormer (arXiv:2104.09864) on three axes: of the ``head_dim // 2`` pairs each axis takes its share (11, 11, 10
    of 32). No parameters; all heads alike. An odd last channel is not turned. Options: see ``AxialEncoding``.

    Invariant to translation of all tokens together.
    """

    shared_width = "head_dim"
    is_translation_invariant = True

    def forward(self, coords: Tensor) -> PositionSignal:
        """Rotary signal (B, 1, N, head_dim // 2, 2)."""
        self.check_coords(coords)
        angles = self.angles(coords)
        return PositionSignal(rotary=torch.stack([angles.cos(), angles.sin()], dim=-1)[:, None])
