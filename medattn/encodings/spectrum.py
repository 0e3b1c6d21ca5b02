"""Which frequencies of an encoding can do something on given scans, and which wavelengths would.

A band is one frequency vector k, in radians per mm: it turns by k . d over a displacement d. On a scan it is

- aliased, if it turns by more than half a turn between two neighbouring tokens: its wavelength is shorter than twice
  the token pitch along its direction, and a step forward looks like a step back (Nyquist);
- dead, if it turns by less than a quarter of a turn over the whole field of view: its wavelength is longer than four
  times that, and it hardly tells near from far;
- useful otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from medattn.coordinates import Frame, token_steps
from medattn.encodings.base import PositionalEncoding
from medattn.encodings.units import Millimetres
from medattn.geometry.grid import VoxelGrid, as_triple

DEAD_EXTENTS = 4.0
"""A wavelength longer than so many fields of view is dead: less than a quarter of a turn over the whole of it."""

_ROUNDING = 1e-9
"""Relative: a wavelength of exactly twice the pitch, or four fields of view, is still useful."""


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
        recommended_mm: what the encoding's ``wavelengths_mm`` should be for these scans; None if their tokens are so
            coarse that no wavelength is useful on all of them. See ``recommended_wavelengths_mm``.
    """

    bands: tuple[Band, ...]
    recommended_mm: Wavelengths | None

    def counts(self, *, grid: int | None = None, axis: int | None = None) -> Counts:
        """How many bands are aliased, useful and dead: in all, or on one scan, along one axis, or both."""
        verdicts = [b.verdict for b in self.bands if grid in (None, b.grid) and axis in (None, b.axis)]
        return Counts(*(verdicts.count(verdict) for verdict in Verdict))


def diagnose_spectrum(
    encoding: PositionalEncoding | Sequence[float], grids: Sequence[VoxelGrid], *, patch_size: int | Sequence[int]
) -> Spectrum:
    """Which bands of ``encoding`` are aliased, useful or dead on scans with ``grids``, and what range would be useful.

    In an index or fraction frame a band is so many voxels, or such a part of the field of view, long; its length in mm
    is then another one on each scan.

    Args:
        encoding: one with ``frequency_vectors_mm``; or wavelengths in mm, taken along each array axis (frame "mm").
        grids: the whole volumes, not their tokens.

    Raises:
        ValueError: without grids or wavelengths, for wavelengths that are not positive, and for an encoding that has no
            frequencies, or whose frame is "sequence", where neighbours of two axes lie whole rows apart.
    """
    if not grids:
        raise ValueError("grids must hold at least one VoxelGrid, got none")
    patch = as_triple(patch_size, "patch_size", minimum=1)
    frame, vectors, factors = _frequencies(encoding)
    bands: list[Band] = []
    ranges = []
    for number, grid in enumerate(grids):
        steps, edges = _steps_and_edges(grid, patch, frame)
        unit_mm = _unit_mm(grid, frame)
        bands += _bands(number, vectors * factors / unit_mm, steps * unit_mm, edges * unit_mm)
        ranges.append((steps * factors, edges * factors))
    return Spectrum(tuple(bands), recommended_wavelengths_mm(*zip(*ranges, strict=True)))


def recommended_wavelengths_mm(steps_mm: Sequence[Tensor], edges_mm: Sequence[Tensor]) -> Wavelengths | None:
    """A range in which no band is aliased on any scan, and the longest tells apart all places of the largest scan.

    The shortest is twice the largest step between neighbouring tokens. The longest is the largest field of view: it
    turns once over it, so that no displacement within half of it is mistaken for another. It is dead along an axis
    shorter than a quarter of it, as it must be if one range serves all axes.

    Args:
        steps_mm: (3, A) of each scan: from a token to the next one along each array axis; zeros where there is none.
        edges_mm: (3, A) of each scan: edges of the field of view, along the same axes.
    """
    shortest = 2 * max(float(steps.norm(dim=-1).max()) for steps in steps_mm)
    longest = max(float(edges.norm(dim=-1).max()) for edges in edges_mm)
    return Wavelengths(shortest, longest) if 0 < shortest < longest else None


def rope_wavelengths(pairs: int, *, base: float = 10000.0) -> list[float]:
    """2 pi base^(i / pairs) for pair i: what RoFormer's frequencies (arXiv:2104.09864) are in the unit of position."""
    return [2 * math.pi * base ** (i / pairs) for i in range(pairs)]


def _frequencies(encoding: PositionalEncoding | Sequence[float]) -> tuple[Frame, Tensor, Tensor]:
    """(frame, radians per reference mm (H or 1, P, A), reference mm per unit of the frame (A,)), float64."""
    if not isinstance(encoding, PositionalEncoding):
        return Frame.MM, _along_each_axis(encoding), torch.ones(3, dtype=torch.float64)
    if not isinstance(encoding, HasFrequencies):
        raise ValueError(f"encoding must be made of frequencies to have a spectrum, got {encoding.name!r}")
    if encoding.frame is Frame.SEQUENCE:
        raise ValueError(
            "encoding must be in a frame of space, got 'sequence': there, neighbours of two axes lie whole rows apart"
        )
    vectors = encoding.frequency_vectors_mm().detach().double().cpu()
    units = [module for module in encoding.modules() if isinstance(module, Millimetres)]
    factors = units[0].factors.double().cpu() if units else torch.ones(vectors.shape[-1], dtype=torch.float64)
    return encoding.frame, vectors if vectors.ndim == 3 else vectors[None], factors


def _along_each_axis(wavelengths_mm: Sequence[float]) -> Tensor:
    """(1, 3 P, 3): all wavelengths along axis 0, then along 1 and 2."""
    lengths = torch.as_tensor(wavelengths_mm, dtype=torch.float64)
    if lengths.ndim != 1 or not len(lengths) or not bool((lengths > 0).all()):
        raise ValueError(f"wavelengths must be positive numbers in mm, at least one, got {wavelengths_mm!r}")
    return torch.kron(torch.eye(3, dtype=torch.float64), (2 * math.pi / lengths)[:, None])[None]


def _steps_and_edges(grid: VoxelGrid, patch: Sequence[int], frame: Frame) -> tuple[Tensor, Tensor]:
    """(3, A) each, in the frame's unit: from a token to the next, and the edges of the field of view.

    Zeros along an axis of a single token: no two tokens differ along it.
    """
    several = torch.tensor([n > 1 for n in grid.patch_grid(patch).shape], dtype=torch.float64)[:, None]
    edges = token_steps(grid, 1, frame) * torch.tensor(grid.shape, dtype=torch.float64)[:, None]
    return token_steps(grid, patch, frame) * several, edges * several


def _unit_mm(grid: VoxelGrid, frame: Frame) -> Tensor:
    """What one unit of each of the frame's axes is on this scan, in mm."""
    if frame is Frame.INDEX:
        return grid.spacing_mm
    return grid.extent_mm if frame is Frame.FRACTION else torch.ones(3, dtype=torch.float64)


def _bands(grid: int, vectors: Tensor, steps_mm: Tensor, edges_mm: Tensor) -> list[Band]:
    """The bands ``vectors`` (H or 1, P, A), in radians per mm of this scan."""
    norm = vectors.norm(dim=-1)
    directions = torch.where(norm[..., None] > 0, vectors / norm[..., None], torch.zeros(()).double())
    wavelengths = 2 * math.pi / norm
    pitches = (directions @ steps_mm.T).abs().amax(-1)
    extents = (directions @ edges_mm.T).abs().sum(-1)
    aliased = wavelengths * (1 + _ROUNDING) < 2 * pitches
    dead = wavelengths * (1 - _ROUNDING) > DEAD_EXTENTS * extents
    found = []
    for at in itertools.product(range(len(vectors)), range(vectors.shape[1])):
        found.append(
            Band(
                grid=grid,
                head=None if len(vectors) == 1 else at[0],
                pair=at[1],
                direction=tuple(directions[at].tolist()),
                wavelength_mm=float(wavelengths[at]),
                pitch_mm=float(pitches[at]),
                extent_mm=float(extents[at]),
                verdict=Verdict.ALIASED if aliased[at] else Verdict.DEAD if dead[at] else Verdict.USEFUL,
            )
        )
    return found
