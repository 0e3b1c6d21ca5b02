"""Fixed sinusoidal position features, added to the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from medattn.coordinates import Frame
from medattn.encodings.base import PositionalEncoding, PositionSignal
from medattn.encodings.frequencies import AxialAngles
from medattn.encodings.registry import register


@register("sincos")
class SinCosEncoding(PositionalEncoding):
    """p[2i] = sin(omega_i t), p[2i + 1] = cos(omega_i t), the pairs shared over the axes (32 -> 11, 11, 10).

    No parameters. An odd last channel stays zero. In frame "sequence" this is Vaswani et al. 2017 with
    omega_i = base^(-2i/dim); elsewhere the wavelengths are set in mm (see ``AxialAngles`` for the options).

    Raises:
        ValueError: if ``dim`` is below 6 (2 in "sequence"), so that an axis would have no pair.
    """

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        wavelengths_mm: Sequence[float] = (10.0, 250.0),
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = None,
        base: float = 10000.0,
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        self.angles = AxialAngles(
            self.frame,
            dim // 2,
            owner=self.name,
            width="dim",
            wavelengths_mm=wavelengths_mm,
            reference_spacing_mm=reference_spacing_mm,
            reference_extent_mm=reference_extent_mm,
            base=base,
        )

    def forward(self, coords: Tensor) -> PositionSignal:
        """Additive signal (B, N, dim)."""
        self.check_coords(coords)
        angles = self.angles(coords)
        features = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return PositionSignal(additive=torch.nn.functional.pad(features, (0, self.dim - features.shape[-1])))
