"""Fixed sinusoidal position features, added to the tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from medattn.encodings.axial import AxialEncoding
from medattn.encodings.base import About
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal


@register("sincos")
class SinCosEncoding(AxialEncoding):
    """p[2i] = sin(omega_i t), p[2i + 1] = cos(omega_i t), the pairs shared over the axes (32 -> 11, 11, 10).

    No parameters. An odd last channel stays zero. In frame "sequence" this is Vaswani et al. 2017 with
    omega_i = base^(-2i/dim); elsewhere the wavelengths are set in mm (options: see ``AxialEncoding``).
    """

    about = About(
        formula=r"z(x) \mathrel{+}= \big(\sin \omega_i x_{a(i)}, \cos \omega_i x_{a(i)}\big)_i",
        source="Vaswani et al. 2017, arXiv:1706.03762, on three axes",
        when="The classic: absolute positions, no parameters. Relations must be learned from it.",
    )

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Additive signal (B, N, dim)."""
        angles = self.angles(coords)
        features = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return PositionSignal(additive=torch.nn.functional.pad(features, (0, self.dim - features.shape[-1])))
