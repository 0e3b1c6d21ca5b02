"""Angles of sinusoidal encodings: which axis and frequency each channel pair has, and in which unit.

In every frame but "sequence" the frequencies are set by wavelengths in mm, and the frame's coordinates are first
brought to mm by a constant: the reference spacing for "index", the reference extent for "fraction". At the reference
an index arm and its mm twin therefore compute the same angles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame
from medattn.encodings.units import Millimetres


def split_pairs(pairs: int, axes: int, *, owner: str, width: str) -> list[int]:
    """Share ``pairs`` out over ``axes`` as evenly as they go, the first axes taking the rest: 32 -> 11, 11, 10.

    Raises:
        ValueError: if an axis would get none; the error names the smallest width.
    """
    if pairs < axes:
        raise ValueError(f"{owner} needs {width} >= {2 * axes} so that each of {axes} axes has a pair, got {2 * pairs}")
    return [pairs // axes + (axis < pairs % axes) for axis in range(axes)]


def log_spaced(shortest: float, longest: float, count: int) -> Tensor:
    """(count,) wavelengths from shortest to longest in equal ratios; the geometric mean if there is but one."""
    if count == 1:
        return torch.tensor([math.sqrt(shortest * longest)], dtype=torch.float64)
    return torch.logspace(math.log10(shortest), math.log10(longest), count, dtype=torch.float64)


def checked_wavelengths_mm(value: Sequence[float]) -> tuple[float, float]:
    """(shortest, longest) in mm, both positive and in that order."""
    items = [float(v) for v in value]
    if len(items) != 2 or not 0 < items[0] <= items[1] < math.inf:
        raise ValueError(f"wavelengths_mm must be (shortest, longest), positive and finite, got {value!r}")
    return items[0], items[1]


class AxialAngles(nn.Module):
    """Angles (B, N, P) = coordinate of the pair's axis x the pair's frequency.

    Args:
        frame: frame of the coordinates.
        pairs: number P of channel pairs, shared over the axes by ``split_pairs``.
        wavelengths_mm: shortest and longest wavelength, log-spaced on each axis; not used by "sequence".
        reference_spacing_mm: mm that one voxel counts for in frame "index" (one number or three).
        reference_extent_mm: mm that the whole field of view counts for in frame "fraction" (one number or three);
            by default the longest wavelength, so that it spans the field of view once.
        base: frequencies base^(-i/P) per token in frame "sequence" (Vaswani et al. 2017, with P = d/2).
    """

    axis: Tensor
    frequency: Tensor

    def __init__(
        self,
        frame: Frame,
        pairs: int,
        *,
        owner: str,
        width: str,
        wavelengths_mm: Sequence[float],
        reference_spacing_mm: Any,
        reference_extent_mm: Any,
        base: float,
    ) -> None:
        super().__init__()
        counts = split_pairs(pairs, 1 if frame is Frame.SEQUENCE else 3, owner=owner, width=width)
        if frame is Frame.SEQUENCE:
            if not base > 1:
                raise ValueError(f"base must be > 1, got {base!r}")
            self.units = Millimetres(frame)
            frequency = float(base) ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        else:
            shortest, longest = checked_wavelengths_mm(wavelengths_mm)
            extent_mm = longest if reference_extent_mm is None else reference_extent_mm
            self.units = Millimetres(frame, reference_spacing_mm=reference_spacing_mm, reference_extent_mm=extent_mm)
            factors = self.units.factors.tolist()
            banks = [
                2 * math.pi * unit / log_spaced(shortest, longest, n) for unit, n in zip(factors, counts, strict=True)
            ]
            frequency = torch.cat(banks)
        axis = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        self.register_buffer("axis", axis, persistent=False)
        self.register_buffer("frequency", frequency, persistent=False)

    def forward(self, coords: Tensor) -> Tensor:
        """Angles in radians, (B, N, P), in the dtype of ``coords`` (B, N, A)."""
        return coords[..., self.axis] * self.frequency.to(coords.dtype)

    def vectors_mm(self) -> Tensor:
        """(P, A): radians per mm along each axis, at the reference; each pair has one axis."""
        axes = torch.eye(len(self.units.factors), dtype=self.frequency.dtype, device=self.frequency.device)
        return axes[self.axis] * (self.frequency / self.units.factors[self.axis])[:, None]
