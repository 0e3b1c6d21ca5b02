"""What a spectrum is made of: bands, what they can do, and where encodings tell them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor


class Verdict(StrEnum):
    """What a band can do on a scan."""

    ALIASED = "aliased"
    USEFUL = "useful"
    DEAD = "dead"


class Counts(NamedTuple):
    """How many bands are what."""

    aliased: int
    useful: int
    dead: int


class Wavelengths(NamedTuple):
    """A range of wavelengths in mm, as the option ``wavelengths_mm`` of an encoding takes it."""

    shortest: float
    longest: float


@runtime_checkable
class HasFrequencies(Protocol):
    """An encoding that is made of sines, or turns, of fixed or learned frequencies."""

    def frequency_vectors_mm(self) -> Tensor:
        """(P, A), or (H, P, A) if heads differ: radians per mm along each axis of the frame, at the reference."""


@runtime_checkable
class HasFrequenciesPerUnit(Protocol):
    """The same of an encoding that has no reference to bring its frame's unit to mm."""

    def frequency_vectors_per_unit(self) -> Tensor:
        """(P, A), or (H, P, A) if heads differ: radians per unit of the frame."""


@dataclass(frozen=True)
class Band:
    """One frequency vector on one scan.

    Attributes:
        grid: number of the scan among the grids.
        head: None if all heads are alike.
        pair: number of the channel pair.
        direction: unit vector along the frame's axes; zeros for a frequency of 0.
        wavelength_mm: in mm on this scan, also where the frame counts voxels; inf for a frequency of 0.
        pitch_mm: the farthest that two neighbouring tokens are apart along the direction; 0 if no two are.
        extent_mm: length of the field of view along the direction; axes of a single token do not count.
    """

    grid: int
    head: int | None
    pair: int
    direction: tuple[float, ...]
    wavelength_mm: float
    pitch_mm: float
    extent_mm: float
    verdict: Verdict

    @property
    def axis(self) -> int | None:
        """The axis that the band runs along; None if it runs along none."""
        along = [a for a, part in enumerate(self.direction) if abs(part) > 1 - 1e-9]
        return along[0] if along else None


@dataclass(frozen=True)
class Spectrum:
    """What the bands of an encoding are on a set of scans.

    Attributes:
        bands: scan by scan, in it head by head, in it pair by pair.
        recommended_mm: what the encoding's ``wavelengths_mm`` should be for these scans (without a reference to mm:
            what its wavelengths should be on them); None if their tokens are so coarse that no wavelength is useful on
            all of them. See ``recommended_wavelengths_mm``.
    """

    bands: tuple[Band, ...]
    recommended_mm: Wavelengths | None

    def counts(self, *, grid: int | None = None, axis: int | None = None) -> Counts:
        """How many bands are aliased, useful and dead: in all, or on one scan, along one axis, or both."""
        verdicts = [b.verdict for b in self.bands if grid in (None, b.grid) and axis in (None, b.axis)]
        return Counts(*(verdicts.count(verdict) for verdict in Verdict))
