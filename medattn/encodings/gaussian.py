"""Gaussian locality: logits that fall with the square of the distance, as inner products of a few extra channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medattn.coordinates import Frame
from medattn.encodings.base import About, Invariance, PositionalEncoding
from medattn.encodings.channels import Channels
from medattn.encodings.frequencies import log_spaced
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal
from medattn.encodings.units import Millimetres
from medattn.geometry.grid import Triple


@dataclass(frozen=True)
class GaussianChannels(Channels):
    """-|u - w|^2 / 2 = u w - |u|^2 / 2 - |w|^2 / 2 for places u of queries and w of keys.

    In half precision each factor is the sum of three numbers of that precision, and all products of them down to the
    order of 2^-24 have channels of their own; the sum is then as exact as in float32.

    Attributes:
        places: (B, H, N, A), positions over sigma.
        placed: (N,), 0 for tokens without a place, 1 for others.
    """

    places: Tensor
    placed: Tensor

    def queries(self, q: Tensor) -> Tensor:
        squares = self._squares()
        if q.dtype in (torch.float32, torch.float64):
            return torch.cat([self.places, squares, self._ones()], dim=-1).to(q.dtype)
        high, middle, low = _thirds(self.places, q.dtype)
        products = [high, high, middle, high, low, middle]
        return torch.cat([*products, *_thirds(squares, q.dtype), *[self._ones().to(q.dtype)] * 3], dim=-1)

    def keys(self, dtype: torch.dtype) -> Tensor:
        squares = self._squares()
        if dtype in (torch.float32, torch.float64):
            return torch.cat([self.places, self._ones(), squares], dim=-1).to(dtype)
        high, middle, low = _thirds(self.places, dtype)
        products = [high, middle, high, low, high, middle]
        return torch.cat([*products, *[self._ones().to(dtype)] * 3, *_thirds(squares, dtype)], dim=-1)

    def _squares(self) -> Tensor:
        return -0.5 * self.places.square().sum(-1, keepdim=True)

    def _ones(self) -> Tensor:
        return self.placed[:, None].to(self.places.dtype).expand(*self.places.shape[:-1], 1)

    def to(self, device: torch.device, dtype: torch.dtype) -> GaussianChannels:
        fine = torch.promote_types(dtype, torch.float32)
        return GaussianChannels(self.places.to(device, fine), self.placed.to(device))

    def with_prefix(self, count: int) -> GaussianChannels:
        return replace(self, places=F.pad(self.places, (0, 0, count, 0)), placed=F.pad(self.placed, (count, 0)))


def _thirds(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Three numbers of ``dtype`` whose sum is ``x``, to about 2^-24 of it."""
    high = x.to(dtype)
    rest = x - high.to(x.dtype)
    middle = rest.to(dtype)
    return high, middle, (rest - middle.to(x.dtype)).to(dtype)


@register("gaussian")
class GaussianEncoding(PositionalEncoding):
    """-|x - y|^2 / (2 sigma_h^2) on the logits of head h: each head looks around within its own sigma.

    Written as extra channels of queries and keys, so that any fused attention takes it and no bias is ever stored. No
    parameters, unless the sigmas are ``learned`` (as logarithms).

    Args:
        sigma_mm: sigma of the first and of the last head, log-spaced in between.
        axis_ratio: sigma along each axis over the head's, for anisotropic precision; None for isotropic.
        learned: train the sigmas, one a head, or one a head and axis with ``axis_ratio``.
        reference_spacing_mm, reference_extent_mm, reference_step_mm: see ``Millimetres``.
    """

    about = About(
        formula=r"s_h(x, y) \mathrel{+}= -\tfrac12 \sum_a (x_a - y_a)^2 / \sigma_{ha}^2",
        source="Guo et al. 2019 (Gaussian Transformer), in mm; as channels: this project",
        when="For locality of known size at the cost of five channels a head, on any device and in half precision.",
    )

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        sigma_mm: Sequence[float] = (16.0, 128.0),
        axis_ratio: Sequence[float] | None = None,
        learned: bool = False,
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
        first, last = _positive("sigma_mm", sigma_mm, 2)
        sigmas = log_spaced(first, last, num_heads)[:, None]
        if axis_ratio is not None:
            sigmas = sigmas * torch.tensor(_positive("axis_ratio", axis_ratio, 3)[:axes], dtype=torch.float64)
        if learned:
            self.log_sigma = nn.Parameter(sigmas.log().float())
        else:
            self.register_buffer("log_sigma", sigmas.log(), persistent=False)
        self.is_isotropic = axis_ratio is None and len(set(self.units.factors.tolist())) == 1

    @property
    def sigmas_mm(self) -> Tensor:
        """(H, 1) or (H, A)."""
        return self.log_sigma.exp()

    @property
    def invariances(self) -> frozenset[Invariance]:
        same = {Invariance.AXIS_PERMUTATION, Invariance.ROTATION} if self.is_isotropic else set()
        return frozenset({Invariance.TRANSLATION, Invariance.FLIP, *same})

    def layer_macs(self, shape: Triple, prefix: int = 0) -> int:
        channels = len(self.units.factors) + 2  # of the product, and one for each token's own square
        return 2 * channels * (prefix + math.prod(shape)) ** 2 * self.num_heads

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Extra channels of queries and keys."""
        places = self.units(coords)[:, None] / self.sigmas_mm.to(coords.dtype)[:, None]
        placed = torch.ones(coords.shape[1], device=coords.device)
        return PositionSignal(channels=GaussianChannels(places, placed))


def _positive(name: str, value: Sequence[float], count: int) -> list[float]:
    items = [float(v) for v in value] if isinstance(value, Sequence) else []
    if len(items) != count or not all(0 < v < math.inf for v in items):
        raise ValueError(f"{name} must be {count} positive finite numbers, got {value!r}")
    return items
