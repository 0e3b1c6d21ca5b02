"""Rotary encoding with the channel pairs shared over the axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from medattn.coordinates import Frame
from medattn.encodings.base import PositionalEncoding, PositionSignal
from medattn.encodings.frequencies import AxialAngles
from medattn.encodings.registry import register


@register("rotary_axial")
class RotaryAxialEncoding(PositionalEncoding):
    """Queries and keys turn by angle = coordinate x frequency, so logits depend on displacements alone.

    RoFormer (arXiv:2104.09864) on three axes: of the ``head_dim // 2`` pairs each axis takes its share (11, 11, 10
    of 32), with wavelengths in mm (see ``AxialAngles`` for the options). No parameters; all heads alike. Invariant
    to translation of all tokens together. An odd last channel is not turned.

    Raises:
        ValueError: if the head width ``dim // num_heads`` is below 6 (2 in "sequence").
    """

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        wavelengths_mm: Sequence[float] = (16.0, 250.0),
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = None,
        base: float = 10000.0,
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        self.angles = AxialAngles(
            self.frame,
            self.head_dim // 2,
            owner=self.name,
            width="head_dim",
            wavelengths_mm=wavelengths_mm,
            reference_spacing_mm=reference_spacing_mm,
            reference_extent_mm=reference_extent_mm,
            base=base,
        )

    def forward(self, coords: Tensor) -> PositionSignal:
        """Rotary signal (B, 1, N, head_dim // 2, 2)."""
        self.check_coords(coords)
        angles = self.angles(coords)
        return PositionSignal(rotary=torch.stack([angles.cos(), angles.sin()], dim=-1)[:, None])
