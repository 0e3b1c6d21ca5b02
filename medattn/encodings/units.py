"""What one unit of a frame's coordinates counts for in mm: the calibration between an index arm and its mm twin.

An encoding is specified in mm in every frame. Coordinates in "index", "fraction" and "sequence" are first brought to mm
by a constant, so that at the reference the same parameters compute the same function in each of these frames.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame
from medattn.geometry.grid import as_spacing_mm


class Millimetres(nn.Module):
    """Brings coordinates, or displacements, to mm by a constant factor for each axis of ``frame``.

    Args:
        reference_spacing_mm: mm that one voxel counts for in frame "index" (one number or three).
        reference_extent_mm: mm that the whole field of view counts for in frame "fraction" (one number or three).
        reference_step_mm: mm that one step along the token list counts for in frame "sequence".

    Raises:
        ValueError: if a reference is not positive and finite.
    """

    factors: Tensor

    def __init__(
        self,
        frame: Frame,
        *,
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = 250.0,
        reference_step_mm: float = 4.0,
    ) -> None:
        super().__init__()
        spacing = as_spacing_mm(reference_spacing_mm, "reference_spacing_mm")
        extent = as_spacing_mm(reference_extent_mm, "reference_extent_mm")
        step = as_spacing_mm(reference_step_mm, "reference_step_mm")[:1]
        factors = {Frame.INDEX: spacing, Frame.FRACTION: extent, Frame.SEQUENCE: step}.get(frame, (1.0, 1.0, 1.0))
        self.register_buffer("factors", torch.tensor(factors, dtype=torch.float64), persistent=False)

    def forward(self, coords: Tensor) -> Tensor:
        """``coords`` (..., A) in mm."""
        return coords * self.factors.to(coords.dtype)
