"""Rotary encoding with learned directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame
from medattn.encodings.base import About, Invariance, PositionalEncoding
from medattn.encodings.frequencies import checked_wavelengths_mm, log_spaced, split_pairs
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal
from medattn.encodings.turning import rotary_from_angles
from medattn.encodings.units import Millimetres
from medattn.geometry.grid import Triple


@register("rotary_mixed")
class RotaryMixedEncoding(PositionalEncoding):
    """Each head's channel pairs turn by angle = frequency vector . position, with learned frequency vectors.

    At the start a head has the axial frequencies of ``AxialAngles``, turned by a random rotation of its own, so that
    the heads look along different directions. H x (head_dim // 2) x 3 parameters, in radians per mm.

    Args:
        wavelengths_mm: (shortest, longest) at the start, log-spaced on each axis of a head.
        reference_spacing_mm, reference_extent_mm, reference_step_mm: see ``Millimetres``.

    Raises:
        ValueError: if the head width is below 6 (2 in "sequence"), so that an axis would have no pair.
    """

    about = About(
        formula=r"s_h(x, y) = \frac{1}{\sqrt d} \sum_p \mathrm{Re}\big[q_p \bar k_p e^{i \omega_{hp}(x - y)}\big]",
        source="Heo et al. 2024 (RoPE-Mixed), arXiv:2403.13298, in three dimensions and mm",
        when="Where structures lie across the axes, and there is data to learn directions from.",
    )

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        wavelengths_mm: Sequence[float] = (16.0, 250.0),
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = 250.0,
        reference_step_mm: float = 4.0,
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        self.units = Millimetres(
            self.frame,
            reference_spacing_mm=reference_spacing_mm,
            reference_extent_mm=reference_extent_mm,
            reference_step_mm=reference_step_mm,
        )
        axes = len(self.units.factors)
        counts = split_pairs(self.head_dim // 2, axes, owner=self.name, width="head_dim")
        shortest, longest = checked_wavelengths_mm(wavelengths_mm)
        axial = torch.block_diag(*((2 * math.pi / log_spaced(shortest, longest, n))[:, None] for n in counts))
        vectors = axial @ random_rotations(num_heads, axes)
        self.frequencies = nn.Parameter(vectors.float())

    @property
    def invariances(self) -> frozenset[Invariance]:
        return frozenset({Invariance.TRANSLATION})

    def frequency_vectors_mm(self) -> Tensor:
        """(H, P, A): radians per mm along each axis of the frame, at the reference."""
        return self.frequencies

    def signal_macs(self, shape: Triple) -> int:
        return math.prod(shape) * self.frequencies.numel()

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Rotary signal (B, H, N, head_dim // 2, 2)."""
        vectors = self.frequencies.to(coords.dtype)
        angles = self.units(coords)[:, None] @ vectors.mT
        return PositionSignal(rotary=rotary_from_angles(angles))


def random_rotations(count: int, axes: int) -> Tensor:
    """(count, axes, axes) float64, uniform over rotations (for one axis, over the two signs)."""
    q, r = torch.linalg.qr(torch.randn(count, axes, axes, dtype=torch.float64))
    rotations = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]  # uniform over orthogonal matrices
    if axes > 1:
        rotations[..., 0] *= torch.linalg.det(rotations)[:, None]
    return rotations
