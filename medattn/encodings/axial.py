"""What encodings made of sines and cosines along the axes have in common: their options and angles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from medattn.coordinates import Frame
from medattn.encodings.base import PositionalEncoding
from medattn.encodings.frequencies import AxialAngles


class AxialEncoding(PositionalEncoding):
    """Base class: the channel pairs of ``dim`` or ``head_dim`` shared over the axes, with fixed frequencies.

    Args:
        wavelengths_mm: (shortest, longest), log-spaced on each axis.
        reference_spacing_mm, reference_extent_mm: what calibrates "index" and "fraction" with mm.
        base: of the frequencies in frame "sequence".

    ``AxialAngles`` has the details.

    Raises:
        ValueError: if the width is below 6 (2 in "sequence"), so that an axis would have no pair.
    """

    shared_width: ClassVar[str] = "dim"

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        wavelengths_mm: Sequence[float] = (16.0, 250.0),
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = None,
        base: float = 10000.0,
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        self.angles = AxialAngles(
            self.frame,
            getattr(self, self.shared_width) // 2,
            owner=self.name,
            width=self.shared_width,
            wavelengths_mm=wavelengths_mm,
            reference_spacing_mm=reference_spacing_mm,
            reference_extent_mm=reference_extent_mm,
            base=base,
        )

    def frequency_vectors_mm(self) -> Tensor:
        """(P, A): radians per mm along each axis of the frame, at the reference."""
        return self.angles.vectors_mm()
