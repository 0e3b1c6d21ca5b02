"""Rotary encoding of fractions of the field of view, as DINOv3 has it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from medattn.coordinates import Frame
from medattn.encodings.base import About, Invariance, PositionalEncoding
from medattn.encodings.frequencies import split_pairs
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal
from medattn.encodings.turning import rotary_from_angles


@register("rotary_dino")
class RotaryDinoEncoding(PositionalEncoding):
    """Channel pairs turn by 2 pi u / period, with u = -1 to 1 over the field of view, changed at random in training.

    Of the ``head_dim // 2`` pairs each axis takes its share (11, 11, 10 of 32), with periods base^(i / P_a) for
    i = 0 .. P_a - 1. Patch centres are normalized axis by axis. In training each forward draws, for each sample, one
    shift and one factor an axis and one factor for all axes; the draws come from torch's global generator. Our
    "fraction" runs from -0.5 to 0.5, the published coordinates from -1 to 1: they are twice ours.

    Args:
        base: of the periods; the longest is just below it.
        shift: largest shift of u along each axis, uniform.
        jitter: largest factor of each axis, log-uniform in [1 / jitter, jitter].
        rescale: the same for all axes together.

    Raises:
        ValueError: if the head width is below 6, or an option is out of its range.
    """

    about = About(
        formula=r"s(x, y) = \frac{1}{\sqrt d} \sum_p \mathrm{Re}\big[q_p \bar k_p e^{2 \pi i (u_x - u_y)_{a(p)} / T_p}"
        r"\big], \quad T_p = \beta^{i / P_a}",
        source="Siméoni et al. 2025 (DINOv3), arXiv:2508.10104, in three dimensions",
        when="For weights of that kind. Distances are fractions of the field of view: a crop is another scale to it, "
        "which the augmentation is there to forgive.",
    )
    defined_frames = (Frame.FRACTION,)
    why_undefined = "its periods are fractions of the field of view; 'rotary_axial' is the same in index and in mm"

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        base: float = 100.0,
        shift: float = 0.0,
        jitter: float = 1.0,
        rescale: float = 1.0,
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        if not 1 < base < math.inf:
            raise ValueError(f"base must be above 1 and finite, got {base!r}")
        if not 0 <= shift < math.inf:
            raise ValueError(f"shift must be 0 or more, and finite, got {shift!r}")
        for name, value in (("jitter", jitter), ("rescale", rescale)):
            if not 1 <= value < math.inf:
                raise ValueError(f"{name} must be 1 or more, and finite, got {value!r}")
        self.shift, self.jitter, self.rescale = float(shift), float(jitter), float(rescale)
        counts = split_pairs(self.head_dim // 2, 3, owner=self.name, width="head_dim")
        periods = torch.cat([base ** (torch.arange(n, dtype=torch.float64) / n) for n in counts])
        self.register_buffer("periods", periods, persistent=False)
        self.register_buffer("axis", torch.repeat_interleave(torch.arange(3), torch.tensor(counts)), persistent=False)

    @property
    def invariances(self) -> frozenset[Invariance]:
        return frozenset({Invariance.TRANSLATION})

    def frequency_vectors_per_unit(self) -> Tensor:
        """(P, 3): radians per field of view along each axis, as in eval."""
        along = torch.eye(3, dtype=torch.float64, device=self.get_buffer("axis").device)[self.get_buffer("axis")]
        return along * (4 * math.pi / self.get_buffer("periods"))[:, None]

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Rotary signal (B, 1, N, head_dim // 2, 2)."""
        places = self._changed(2 * coords) if self.training else 2 * coords
        axis, periods = self.get_buffer("axis"), self.get_buffer("periods").to(coords.dtype)
        return PositionSignal(rotary=rotary_from_angles(2 * math.pi * places[..., axis] / periods)[:, None])

    def _changed(self, places: Tensor) -> Tensor:
        """``places`` (B, N, 3) shifted and rescaled at random, each sample in its own way."""

        def uniform(axes: int) -> Any:
            return 2 * torch.rand(len(places), 1, axes, dtype=places.dtype, device=places.device) - 1

        if self.shift:
            places = places + self.shift * uniform(3)
        if self.jitter > 1:
            places = places * torch.exp(math.log(self.jitter) * uniform(3))
        return places * torch.exp(math.log(self.rescale) * uniform(1)) if self.rescale > 1 else places
