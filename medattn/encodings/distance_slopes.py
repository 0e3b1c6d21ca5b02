"""Logits that fall in proportion to the distance."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame
from medattn.encodings.base import About
from medattn.encodings.kernel_encoding import DistanceEncoding
from medattn.encodings.registry import register


@register("distance_slopes")
class DistanceSlopesEncoding(DistanceEncoding):
    """-m_h |x - y| on the logits of head h, with slopes m_h = 2^(-8 h / H) per ``reference_distance_mm``, h = 1 to H.

    ALiBi with Euclidean distances in mm. No parameters, unless the slopes are ``learned`` (as logarithms, so that they
    stay positive).

    Args:
        reference_distance_mm: the distance at which the logits of the first slopes fall by about a half or one.
        learned: train the slopes.
        reference_spacing_mm, reference_extent_mm, reference_step_mm: see ``Millimetres``.
    """

    about = About(
        formula=r"s_h(x, y) \mathrel{+}= -m_h \lVert x - y \rVert, \quad m_h = 2^{-8h/H} / \ell",
        source="Press et al. 2022 (ALiBi), arXiv:2108.12409, with Euclidean distances in mm",
        when="For locality that extrapolates to larger volumes, without parameters. It says how far, and not where to.",
    )

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        reference_distance_mm: float = 16.0,
        learned: bool = False,
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
        if not 0 < reference_distance_mm < math.inf:
            raise ValueError(f"reference_distance_mm must be positive and finite, got {reference_distance_mm!r}")
        heads = torch.arange(1, num_heads + 1, dtype=torch.float64)
        log_slopes = -8 * math.log(2) * heads / num_heads - math.log(reference_distance_mm)
        if learned:
            self.log_slopes = nn.Parameter(log_slopes.float())
        else:
            self.register_buffer("log_slopes", log_slopes, persistent=False)

    @property
    def slopes_per_mm(self) -> Tensor:
        """(H,), all positive."""
        return self.log_slopes.exp()

    def profile(self, distance_mm: Tensor) -> Tensor:
        return -distance_mm * self.slopes_per_mm.to(distance_mm.dtype)
