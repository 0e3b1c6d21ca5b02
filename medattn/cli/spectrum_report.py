"""What ``spectrum`` says about scans: those of one geometry together, as a table or JSON, and an advice."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from medattn.cli.inspect_text import number, shown
from medattn.coordinates import Frame
from medattn.encodings import PositionalEncoding, create_encoding
from medattn.encodings.bands import Band, Counts, Spectrum, Wavelengths
from medattn.encodings.spectrum import diagnose_spectrum
from medattn.geometry import VoxelGrid
from medattn.geometry.grid import Triple, as_triple

AXES = {frame: ("R", "A", "S") if "patient" in frame or "scanner" in frame else ("i", "j", "k") for frame in Frame}
"""Names of each frame's axes."""


class Scan(NamedTuple):
    """A file, or a DICOM series' folder, and its grid."""

    path: Path
    grid: VoxelGrid


class Refused(NamedTuple):
    """A file that could not be read, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Group:
    """Scans of one geometry, and the bands on them."""

    scans: tuple[Scan, ...]
    bands: tuple[Band, ...]

    @property
    def grid(self) -> VoxelGrid:
        return self.scans[0].grid


@dataclass(frozen=True)
class Report:
    """All there is to say.

    Attributes:
        advised: the spectrum with the recommended wavelengths; None if there are none, or the encoding takes none.
    """

    encoding: PositionalEncoding
    patch_size: Triple
    groups: tuple[Group, ...]
    spectrum: Spectrum
    advised: Spectrum | None
    refused: tuple[Refused, ...]

    @classmethod
    def of(
        cls,
        encoding: PositionalEncoding,
        scans: Sequence[Scan],
        refused: Sequence[Refused],
        patch_size: Any,
        options: Mapping[str, Any],
    ) -> Report:
        """The report on ``encoding``, which was built with these ``options``."""
        patch = as_triple(patch_size, "patch_size", minimum=1)
        grouped: dict[Any, list[Scan]] = {}
        for scan in scans:
            grouped.setdefault(_geometry(scan.grid, encoding.frame), []).append(scan)
        alike = list(grouped.values())
        grids = [members[0].grid for members in alike]
        spectrum = diagnose_spectrum(encoding, grids, patch_size=patch)
        bands: list[list[Band]] = [[] for _ in alike]
        for band in spectrum.bands:
            bands[band.grid].append(band)
        groups = tuple(Group(tuple(members), tuple(own)) for members, own in zip(alike, bands, strict=True))
        better = _with_wavelengths(encoding, spectrum.recommended_mm, options)
        advised = None if better is None else diagnose_spectrum(better, grids, patch_size=patch)
        return cls(encoding, patch, groups, spectrum, advised, tuple(refused))

    @property
    def advice(self) -> str:
        """In a sentence or two."""
        coarsest = max(self.groups, key=self._pitch_mm)
        reason = f"{shown(coarsest.scans[0].path)} has tokens {number(self._pitch_mm(coarsest), 3)} mm apart"
        found = f"Bands on all scans: {_told(self.spectrum.counts())}."
        if self.spectrum.recommended_mm is None:
            return f"{found} No wavelength would do for all, since {reason}: take smaller patches, or leave it out."
        shortest, longest = map(_rounded_up, self.spectrum.recommended_mm)
        if self.advised is None:
            return f"{found} Wavelengths of {shortest} to {longest} mm would do for all ({reason})."
        better = _told(self.advised.counts())
        return f"{found} With --wavelengths-mm {shortest} {longest}: {better} ({reason})."

    def _pitch_mm(self, group: Group) -> float:
        """The largest distance of neighbouring tokens; 0 if there is but one."""
        tokens = group.grid.patch_grid(self.patch_size)
        return max(s if n > 1 else 0.0 for s, n in zip(tokens.spacing_mm.tolist(), tokens.shape, strict=True))

    def print_text(self) -> None:
        """A line for each group, and the advice."""
        axes = AXES[self.encoding.frame]
        title = ["scans", "token pitch mm", "field of view mm", *(f"along {axis}" for axis in axes), "oblique", ""]
        rows = [title, *map(self._row, self.groups)]
        if not any(band.axis is None for group in self.groups for band in group.bands):
            rows = [[*row[:-2], row[-1]] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        patch = " x ".join(map(str, self.patch_size))
        print(
            f"{self.encoding.name} in {self.encoding.frame}, patches of {patch} voxels; aliased / useful / dead bands"
        )
        for row in rows:
            cells = [cell.rjust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
            print("  ".join([*cells, row[-1]]).rstrip())
        print(self.advice)

    def _row(self, group: Group) -> list[str]:
        pitch = group.grid.patch_grid(self.patch_size).spacing_mm.tolist()
        counts = [_slashed(group.bands, axis) for axis in (0, 1, 2, None)]
        more = f" and {len(group.scans) - 1} more" if len(group.scans) > 1 else ""
        example = shown(group.scans[0].path) + more
        extent = group.grid.extent_mm.tolist()
        return [str(len(group.scans)), _three(pitch), _three(extent), *counts, example]

    def print_json(self) -> None:
        """Everything."""
        recommended = self.spectrum.recommended_mm
        record = {
            "encoding": self.encoding.name,
            "frame": self.encoding.frame.value,
            "patch_size": list(self.patch_size),
            "counts": self.spectrum.counts()._asdict(),
            "recommended_wavelengths_mm": recommended and list(recommended),
            "counts_as_recommended": self.advised and self.advised.counts()._asdict(),
            "groups": [self._group_record(group) for group in self.groups],
            "refused": [{"path": str(item.path), "reason": item.reason} for item in self.refused],
        }
        print(json.dumps(record, indent=2, allow_nan=False))

    def _group_record(self, group: Group) -> dict[str, Any]:
        return {
            "paths": [str(scan.path) for scan in group.scans],
            "shape": list(group.grid.shape),
            "spacing_mm": group.grid.spacing_mm.tolist(),
            "token_pitch_mm": group.grid.patch_grid(self.patch_size).spacing_mm.tolist(),
            "extent_mm": group.grid.extent_mm.tolist(),
            "bands": [_band_record(band) for band in group.bands],
        }


def _geometry(grid: VoxelGrid, frame: Frame) -> tuple[Any, ...]:
    """What scans must share to be told as one: lengths to a thousandth, and the orientation where the frame sees it."""
    lengths = tuple(float(f"{length:.4g}") for length in grid.spacing_mm.tolist())
    turned = () if frame.is_array_aligned else tuple((grid.direction.round(decimals=3) + 0.0).flatten().tolist())
    return grid.shape, lengths, turned


def _with_wavelengths(
    encoding: PositionalEncoding, wavelengths: Wavelengths | None, options: Mapping[str, Any]
) -> PositionalEncoding | None:
    """The same encoding with these wavelengths, as they would be typed; None if it takes none."""
    if wavelengths is None:
        return None
    chosen = {**options, "wavelengths_mm": tuple(float(_rounded_up(length)) for length in wavelengths)}
    size = {"dim": encoding.dim, "num_heads": encoding.num_heads}
    torch.manual_seed(0)
    try:
        return create_encoding(encoding.name, **size, frame=encoding.frame, **chosen)
    except ValueError:  # it has no option of that name
        return None


def _rounded_up(length: float) -> str:
    """To three significant digits, upwards: a shorter wavelength would be aliased."""
    unit = 10.0 ** (math.floor(math.log10(length)) - 2)
    return number(math.ceil(length / unit - 1e-9) * unit)


def _told(counts: Counts) -> str:
    aliased, useful, dead = counts
    return f"{aliased} aliased, {useful} useful, {dead} dead"


def _slashed(bands: Sequence[Band], axis: int | None) -> str:
    verdicts = [band.verdict for band in bands if band.axis == axis]
    return " / ".join(f"{verdicts.count(v):2d}" for v in ("aliased", "useful", "dead")) if verdicts else "-"  # type: ignore[arg-type]


def _three(lengths: Sequence[float]) -> str:
    return " ".join(f"{number(length, 3):>5}" for length in lengths)


def _band_record(band: Band) -> dict[str, Any]:
    return {
        "head": band.head,
        "pair": band.pair,
        "direction": list(band.direction),
        "wavelength_mm": band.wavelength_mm if math.isfinite(band.wavelength_mm) else None,
        "pitch_mm": band.pitch_mm,
        "extent_mm": band.extent_mm,
        "verdict": band.verdict.value,
    }
