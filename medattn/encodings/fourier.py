"""Fourier features of the position along random directions, fixed or learned, added to the tokens."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medattn.coordinates import Frame
from medattn.encodings.base import About, PositionalEncoding
from medattn.encodings.coordinate_mlp import Perceptron, checked_hidden_dim
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal
from medattn.encodings.units import Millimetres
from medattn.geometry.grid import Triple, as_spacing_mm


@register("fourier")
class FourierEncoding(PositionalEncoding):
    """cos(2 pi b x) and sin(2 pi b x) for dim // 2 frequency vectors b, drawn from a normal distribution.

    The vectors are part of the state, fixed or learned. All cosines come first, then all sines; an odd last channel
    is zero.

    Args:
        wavelength_mm: the standard deviation of b along an axis is 1 / ``wavelength_mm`` (one number or three).
        learned: train the frequency vectors.
        hidden_dim: if given, the features go through a perceptron with a hidden layer of this width and a GELU.
        reference_spacing_mm, reference_extent_mm, reference_step_mm: see ``Millimetres``.

    Raises:
        ValueError: if ``dim`` is below 2, or an option is out of its range.
    """

    about = About(
        formula=r"z(x) \mathrel{+}= f(\cos 2\pi B x, \sin 2\pi B x), \quad B_{pa} \sim \mathcal N(0, \ell^{-2})",
        source="Tancik et al. 2020, arXiv:2006.10739 (random); Li et al. 2021, arXiv:2106.02795 (learned)",
        when="For detail in any direction, also oblique. The wavelength decides what can be told apart: set it to the "
        "size of the structures, and try several.",
    )

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        wavelength_mm: Any = 100.0,
        learned: bool = False,
        hidden_dim: int | None = None,
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = 250.0,
        reference_step_mm: float = 4.0,
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        if dim < 2:
            raise ValueError(f"fourier needs dim >= 2, a cosine and a sine, got {dim}")
        axes = 1 if self.frame is Frame.SEQUENCE else 3
        wavelengths = torch.tensor(as_spacing_mm(wavelength_mm, "wavelength_mm")[:axes])
        frequencies = torch.randn(dim // 2, axes) / wavelengths
        if learned:
            self.frequencies_per_mm = nn.Parameter(frequencies)
        else:
            self.register_buffer("frequencies_per_mm", frequencies)
        self.units = Millimetres(
            self.frame,
            reference_spacing_mm=reference_spacing_mm,
            reference_extent_mm=reference_extent_mm,
            reference_step_mm=reference_step_mm,
        )
        self.mlp = None
        if hidden_dim is not None:
            self.mlp = Perceptron((2 * (dim // 2), checked_hidden_dim(hidden_dim), dim))

    def frequency_vectors_mm(self) -> Tensor:
        """(P, A): radians per mm along each axis of the frame, at the reference."""
        return 2 * math.pi * self.frequencies_per_mm

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Additive signal (B, N, dim)."""
        cycles = self.units(coords) @ self.frequencies_per_mm.to(coords.dtype).mT
        angles = 2 * math.pi * cycles
        features = torch.cat([angles.cos(), angles.sin()], dim=-1)
        if self.mlp is not None:
            return PositionSignal(additive=self.mlp(features))
        return PositionSignal(additive=F.pad(features, (0, self.dim - features.shape[-1])))

    def signal_macs(self, shape: Triple) -> int:
        return math.prod(shape) * (self.frequencies_per_mm.numel() + (0 if self.mlp is None else self.mlp.macs))
