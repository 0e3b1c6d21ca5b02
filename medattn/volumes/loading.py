"""``load_volume``: one door for every format, so that each gives the same array, affine and notes."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import torch

from medattn.geometry import VoxelGrid
from medattn.volumes.errors import VolumeError
from medattn.volumes.notes import Note, NoteKind, VolumeWarning
from medattn.volumes.stored import MAX_BYTES, ReadOptions, Stored
from medattn.volumes.values import image_values, label_values
from medattn.volumes.volume import Volume

PathLike = str | os.PathLike[str]

READERS = {
    ".nii": "nifti",
    ".nii.gz": "nifti",
    ".hdr": "nifti",
    ".img": "nifti",
    ".hdr.gz": "nifti",
    ".img.gz": "nifti",
    ".nrrd": "nrrd",
    ".nhdr": "nrrd",
    ".mha": "metaimage",
    ".mhd": "metaimage",
    ".dcm": "dicom",
    ".zip": "dicom",
}
"""Which module of this package reads files of a suffix. Folders, lists and files with DICOM's mark are DICOM."""

_DICOM_MARK = b"DICM"


class Reader(Protocol):
    """A module that reads one format."""

    def read(self, path: Path | Sequence[Path], options: ReadOptions) -> Stored:
        """What is stored at ``path``; ``VolumeError`` without the path, which the caller adds."""


def load_volume(
    path: PathLike | Sequence[PathLike],
    *,
    labels: bool = False,
    strict: bool = False,
    series: str | None = None,
    regrid: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Volume:
    """Read an image, or a label map, from any supported format.

    NIfTI-1 and NIfTI-2 (.nii, .nii.gz, .hdr with .img), NRRD (.nrrd, .nhdr), MetaImage (.mha, .mhd), and DICOM: a
    folder, a list of files, a .zip, one multi-frame file, or a segmentation (with ``labels=True``).

    Args:
        path: a file or folder, or a list of DICOM files.
        labels: read integers: data is int64 and has one channel. Labels stored as real numbers are rounded if they
            are within 0.1 of an integer.
        strict: refuse a file that leaves anything to be assumed (notes with ``is_assumption``).
        series: SeriesInstanceUID to take where DICOM files of several series lie together.
        regrid: fill missing or unevenly spaced DICOM slices by interpolation; the notes say which.
        max_bytes: refuse voxels that would take more memory than this, as stored.

    Returns:
        Volume with float32 (or int64) ``data`` (C, I, J, K), the same whatever format carried it; time, vector
        components and colours become channels. Scale factors are applied. ``grid`` is in RAS+ mm; what had to be
        assumed is in ``notes``. In memory the voxels stay in the file's order, so ``data`` is in general not
        contiguous: reordering would take as long as reading, and not everyone needs it.

    Raises:
        FileNotFoundError: if there is no such file.
        TypeError: if ``path`` is neither a path nor a list of paths.
        VolumeError: (a ValueError) naming the file, the field, what it must be and what it is.

    Warns:
        VolumeWarning: for each note with ``is_warning``.
    """
    paths = _paths(path)
    name = str(paths) if isinstance(paths, Path) else f"{len(paths)} files"
    options = ReadOptions(labels=labels, series=series, regrid=regrid, max_bytes=max_bytes)
    try:
        form = format_of(paths)
        if series is not None and form != "dicom":
            raise VolumeError(f"series chooses among the series of DICOM files, and this is {form}; got {series!r}")
        stored = _reader(form).read(paths, options)
        values, more = (label_values if labels else image_values)(stored)
        notes = (*stored.notes, *_shear(stored.grid), *more)
        _check_strict(notes, strict)
    except VolumeError as error:
        raise VolumeError(f"{name}: {error}") from error
    for note in notes:
        if note.is_warning:
            warnings.warn(f"{name}: {note.message}", VolumeWarning, stacklevel=2)
    return Volume(torch.from_numpy(values), stored.grid, notes, name, stored.metadata)


def _paths(path: PathLike | Sequence[PathLike]) -> Path | list[Path]:
    if isinstance(path, str | os.PathLike):
        return Path(path)
    if not isinstance(path, Sequence) or not all(isinstance(p, str | os.PathLike) for p in path):
        raise TypeError(f"path must be a path, or a list of paths of DICOM files, got {path!r}")
    return [Path(p) for p in path]


def _check_strict(notes: Sequence[Note], strict: bool) -> None:
    assumed = [f"{note.message} ({note.kind})" for note in notes if note.is_assumption]
    if strict and assumed:
        raise VolumeError(f"strict reading allows no assumption, but: {'; '.join(assumed)}")


def _shear(grid: VoxelGrid) -> list[Note]:
    if grid.is_orthogonal:
        return []
    message = f"the array axes are not orthogonal: direction {(grid.direction.round(decimals=4) + 0.0).tolist()}"
    return [Note(NoteKind.SHEARED, message, {"direction": grid.direction.tolist()})]


def _reader(form: str) -> Reader:
    return cast(Reader, importlib.import_module(f"medattn.volumes.{form}"))


def format_of(path: Path | Sequence[Path]) -> str:
    """Name of the module of this package that reads ``path``.

    Raises:
        FileNotFoundError: if there is no such file.
        VolumeError: if it is no file or folder, or of an unknown kind.
    """
    if not isinstance(path, Path):
        return "dicom"
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    if path.is_dir():
        return "dicom"
    if not path.is_file():
        raise VolumeError("must be a file or a folder, but is a device, a pipe or a socket")
    suffix = file_suffix(path)
    if suffix:
        return READERS[suffix]
    with path.open("rb") as stream:
        start = stream.read(132)
    if start[128:] == _DICOM_MARK:
        return "dicom"
    raise VolumeError(f"the file's name must end in one of {', '.join(READERS)}, or be DICOM, got {path.name!r}")


def file_suffix(path: Path) -> str:
    """The longest suffix of ``READERS`` that the name ends in, in lower case; empty if there is none."""
    found = [suffix for suffix in READERS if path.name.lower().endswith(suffix)]
    return max(found, key=len, default="")
