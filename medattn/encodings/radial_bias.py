"""Logits by a learned function of the distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame
from medattn.encodings.base import About
from medattn.encodings.kernel_encoding import DistanceEncoding
from medattn.encodings.registry import register


@register("radial_bias")
class RadialBiasEncoding(DistanceEncoding):
    """A sum of Gaussian bumps over the distance, sum_m w_hm exp(-(|x - y| - c_m)^2 / (2 s^2)), with learned weights.

    The centres c_m are evenly spaced over ``range_mm`` and s is the step between them. H x ``num_basis`` parameters;
    beyond the last centre the bias fades to nothing.

    Args:
        num_basis: bumps, at least 2.
        range_mm: first and last centre.
        reference_spacing_mm, reference_extent_mm, reference_step_mm: see ``Millimetres``.
    """

    about = About(
        formula=r"s_h(x, y) \mathrel{+}= \sum_m w_{hm} \exp\frac{-(\lVert x - y \rVert - c_m)^2}{2 s^2}",
        source="Schuett et al. 2017 (SchNet), arXiv:1706.08566, as a bias of the logits",
        when="For any dependence on distance, also a preferred one. It says how far, and not where to.",
    )

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        num_basis: int = 16,
        range_mm: Sequence[float] = (0.0, 250.0),
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = 250.0,
        reference_step_mm: float = 4.0,
    ) -> None:
        super().__init__(
            dim=dim,
            num_heads=num_heads,
            frame=frame,
            reference_spacing_mm=reference_spacing_mm,
            reference_extent_mm=reference_extent_mm,
            reference_step_mm=reference_step_mm,
        )
        if isinstance(num_basis, bool) or not isinstance(num_basis, int) or num_basis < 2:
            raise ValueError(f"num_basis must be an integer >= 2, got {num_basis!r}")
        first, last = _checked_range_mm(range_mm)
        centres = torch.linspace(first, last, num_basis, dtype=torch.float64)
        self.register_buffer("centres_mm", centres, persistent=False)
        self.weight = nn.Parameter(0.5 * torch.randn(num_basis, num_heads))

    @property
    def kernel_macs(self) -> int:
        return self.weight.numel()

    def profile(self, distance_mm: Tensor) -> Tensor:
        centres: Tensor = self.get_buffer("centres_mm").to(distance_mm.dtype)
        bumps = torch.exp(-0.5 * ((distance_mm - centres) / (centres[1] - centres[0])).square())
        return bumps @ self.weight.to(distance_mm.dtype)


def _checked_range_mm(value: Sequence[float]) -> tuple[float, float]:
    items = [float(v) for v in value]
    if len(items) != 2 or not 0 <= items[0] < items[1] < math.inf:
        raise ValueError(f"range_mm must be (first, last), 0 or more, rising and finite, got {value!r}")
    return items[0], items[1]
