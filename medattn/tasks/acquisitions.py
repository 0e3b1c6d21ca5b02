"""The grids on which a subject is acquired: many for training, a few named ones for evaluation, all cached."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from medattn.acquisition import flip_array, permuted_spacing_header, truncate
from medattn.files import replacing
from medattn.geometry import VoxelGrid
from medattn.geometry.grid import as_spacing_mm
from medattn.tasks.subject import Scan, Subject

CACHE_VERSION = 2  # raise it when what ``Subject.acquire`` computes changes


def training_spacings(
    count: int,
    *,
    seed: int,
    range_mm: Sequence[float],
    held_out_mm: Sequence[float],
    stretched_fraction: float,
    max_stretch: float,
) -> list[tuple[float, float, float]]:
    """Spacings in mm: log-uniform isotropic ones, a fraction of them with one random axis made coarser.

    Args:
        range_mm: (lowest, highest) isotropic spacing; ``held_out_mm``: an open interval inside it that is never drawn.
        stretched_fraction: share (the first ones, rounded) whose one axis is multiplied by exp(U(0, log max_stretch)).

    Raises:
        ValueError: if the ranges are not ordered, or the held-out interval leaves nothing.
    """
    (low, high), (gap_low, gap_high) = _ordered("range_mm", range_mm), _ordered("held_out_mm", held_out_mm)
    if gap_low <= low and gap_high >= high:
        raise ValueError(f"held_out_mm {gap_low, gap_high} leaves nothing of range_mm {low, high}")
    if max_stretch < 1 or not 0 <= stretched_fraction <= 1:
        got = f"got {max_stretch}, {stretched_fraction}"
        raise ValueError(f"max_stretch must be >= 1 and stretched_fraction in [0, 1], {got}")
    generator = torch.Generator().manual_seed(seed)
    spacings: list[tuple[float, float, float]] = []
    while len(spacings) < count:
        draw, stretch, axis = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        base = math.exp(math.log(low) + draw * math.log(high / low))
        if gap_low < base < gap_high:
            continue
        spacing = [base] * 3
        if len(spacings) < round(stretched_fraction * count):
            spacing[int(axis * 3)] *= math.exp(stretch * math.log(max_stretch))
        spacings.append((spacing[0], spacing[1], spacing[2]))
    return spacings


def _ordered(name: str, value: Sequence[float]) -> tuple[float, float]:
    if len(value) != 2 or not 0 < value[0] <= value[1] < math.inf:
        raise ValueError(f"{name} must be two positive numbers (lowest, highest) in mm, got {list(value)}")
    return float(value[0]), float(value[1])


@dataclass(frozen=True)
class Acquisition:
    """One named evaluation acquisition.

    Attributes:
        spacing_mm: true spacing along the subject's R, A and S axes.
        flip_axis: array axis stored in reverse (the affine follows), or None.
        drop_superior: share of the field of view cut off at the top.
        header_order: the model is told these axes' spacings instead of the true ones, for example (2, 0, 1); or None.

    Raises:
        ValueError: naming the acquisition and the attribute that does not fit.
    """

    name: str
    spacing_mm: tuple[float, float, float]
    flip_axis: int | None = None
    drop_superior: float = 0.0
    header_order: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        as_spacing_mm(self.spacing_mm, f"{self.name}: spacing_mm")
        if self.flip_axis not in (None, 0, 1, 2):
            raise ValueError(f"{self.name}: flip_axis must be 0, 1, 2 or none, got {self.flip_axis}")
        if not 0 <= self.drop_superior < 1:
            raise ValueError(f"{self.name}: drop_superior must be at least 0 and below 1, got {self.drop_superior}")
        if self.header_order is not None and sorted(self.header_order) != [0, 1, 2]:
            raise ValueError(f"{self.name}: header_order must be a permutation of 0, 1, 2, got {self.header_order}")


@dataclass(frozen=True, eq=False)
class ToldScan:
    """A scan and the grid that the model is told, which a wrong header makes another than the true one."""

    scan: Scan
    told: VoxelGrid


def acquire(subject: Subject, acquisition: Acquisition, cache: Path | None) -> ToldScan:
    """Acquire ``subject`` as ``acquisition`` says."""
    scan = acquire_cached(subject, subject.grid.resampled(acquisition.spacing_mm), cache)
    if acquisition.drop_superior:
        scan = _changed(scan, truncate, axis_code="S", fraction=acquisition.drop_superior)
    if acquisition.flip_axis is not None:
        scan = _changed(scan, flip_array, axis=acquisition.flip_axis)
    order = acquisition.header_order
    return ToldScan(scan, scan.grid if order is None else permuted_spacing_header(scan.grid, order))


def _changed(scan: Scan, change: Any, **options: Any) -> Scan:
    image, grid = change(scan.image, scan.grid, **options)
    labels, _ = change(scan.labels, scan.grid, **options)
    return Scan(image, labels, grid)


def acquire_cached(subject: Subject, target: VoxelGrid, cache: Path | None) -> Scan:
    """``subject.acquire(target)``, kept as a file under ``cache`` (None: not kept)."""
    if cache is None:
        return subject.acquire(target)
    text = f"{CACHE_VERSION} {subject.fingerprint} {target.shape} {target.affine.tolist()}"
    path = cache / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.safetensors"
    if not path.is_file():
        scan = subject.acquire(target)
        with replacing(path) as temporary:
            save_file({"image": scan.image.contiguous(), "labels": scan.labels.to(torch.int16).contiguous()}, temporary)
        return scan
    stored = load_file(path)
    return Scan(stored["image"], stored["labels"].long(), target)
