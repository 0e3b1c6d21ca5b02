"""A small perceptron of the coordinates, added to the tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from medattn.coordinates import Frame
from medattn.encodings.base import About, PositionalEncoding
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal
from medattn.encodings.units import Millimetres
from medattn.geometry.grid import Triple


def checked_hidden_dim(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"hidden_dim must be a positive integer, got {value!r}")
    return value


class Perceptron(nn.Module):
    """Linear layers of ``widths`` with a GELU between any two, computed in the precision of their input."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.macs = sum(a * b for a, b in zip(widths[:-1], widths[1:], strict=True))
        """Multiply-accumulates for one input."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., first width) -> (..., last width)."""
        for n, layer in enumerate(self.layers):
            assert isinstance(layer, nn.Linear)
            x = F.linear(F.gelu(x) if n else x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
        return x


@register("mlp")
class CoordinateMLPEncoding(PositionalEncoding):
    """A perceptron of the position in units of ``scale_mm``, with one hidden layer and a GELU.

    Args:
        hidden_dim: width of the hidden layer.
        scale_mm: the length that counts as 1; about half of the field of view.
        reference_spacing_mm, reference_extent_mm, reference_step_mm: see ``Millimetres``.
    """

    about = About(
        formula=r"z(x) \mathrel{+}= W_2\, \mathrm{GELU}(W_1 x / \ell + b_1) + b_2",
        source="the coordinate network of Li et al. 2021, arXiv:2106.02795, without its Fourier features",
        when="For smooth dependence on place (which part of the body is this). It learns fine detail slowly: for that "
        "take 'fourier'.",
    )

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        hidden_dim: int = 128,
        scale_mm: float = 100.0,
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = 250.0,
        reference_step_mm: float = 4.0,
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        if not 0 < scale_mm < math.inf:
            raise ValueError(f"scale_mm must be positive and finite, got {scale_mm!r}")
        self.scale_mm = float(scale_mm)
        self.units = Millimetres(
            self.frame,
            reference_spacing_mm=reference_spacing_mm,
            reference_extent_mm=reference_extent_mm,
            reference_step_mm=reference_step_mm,
        )
        self.mlp = Perceptron((1 if self.frame is Frame.SEQUENCE else 3, checked_hidden_dim(hidden_dim), dim))

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Additive signal (B, N, dim)."""
        return PositionSignal(additive=self.mlp(self.units(coords) / self.scale_mm))

    def signal_macs(self, shape: Triple) -> int:
        return math.prod(shape) * self.mlp.macs
