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

import torch
from torch import Tensor

from medattn.coordinates import Frame, token_steps
from medattn.encodings.bands import Band, HasFrequencies, HasFrequenciesPerUnit, Spectrum, Verdict, Wavelengths
from medattn.encodings.base import PositionalEncoding
from medattn.encodings.units import Millimetres
from medattn.geometry.grid import VoxelGrid, as_triple

DEAD_EXTENTS = 4.0
"""A wavelength longer than so many fields of view is dead: less than a quarter of a turn over the whole of it."""

_ROUNDING = 1e-9
"""Relative: a wavelength of exactly twice the pitch, or four fields of view, is still useful."""


def diagnose_spectrum(
    encoding: PositionalEncoding | Sequence[float], grids: Sequence[VoxelGrid], *, patch_size: int | Sequence[int]
) -> Spectrum:
    """Which bands of ``encoding`` are aliased, useful or dead on scans with ``grids``, and what range would be useful.

    In an index or fraction frame a band is so many voxels, or such a part of the field of view, long; its length in mm
    is then another one on each scan.

    Args:
        encoding: one with ``frequency_vectors_mm`` or ``frequency_vectors_per_unit``; or wavelengths in mm, taken along
            each array axis (frame "mm").
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
        bands += _bands(number, vectors / unit_mm, steps * unit_mm, edges * unit_mm)
        reference = unit_mm if factors is None else factors
        ranges.append((steps * reference, edges * reference))
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


def _frequencies(encoding: PositionalEncoding | Sequence[float]) -> tuple[Frame, Tensor, Tensor | None]:
    """(frame, radians per unit of it (H or 1, P, A), reference mm per unit (A,) if it has any), float64."""
    if not isinstance(encoding, PositionalEncoding):
        return Frame.MM, _along_each_axis(encoding), torch.ones(3, dtype=torch.float64)
    if not isinstance(encoding, HasFrequencies | HasFrequenciesPerUnit):
        raise ValueError(f"encoding must be made of frequencies to have a spectrum, got {encoding.name!r}")
    if encoding.frame is Frame.SEQUENCE:
        raise ValueError(
            "encoding must be in a frame of space, got 'sequence': there, neighbours of two axes lie whole rows apart"
        )
    if isinstance(encoding, HasFrequenciesPerUnit):
        vectors, factors = encoding.frequency_vectors_per_unit(), None
    else:
        units = next(module for module in encoding.modules() if isinstance(module, Millimetres))
        factors = units.factors.double().cpu()
        vectors = encoding.frequency_vectors_mm().double().cpu() * factors
    vectors = vectors.detach().double().cpu()
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
