"""From a NIfTI file to its header and its numbers, with every size checked before anything of it is allocated."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.errors import VolumeError
from medattn.volumes.gzipped import ByteStream, open_bytes
from medattn.volumes.nifti_header import Layout, read_layout
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.stored import ReadOptions, check_size

MAX_TRAILING_BYTES = 16 << 10
"""Bytes after the last voxel: so few may be padding, more mean that the header does not say what the file holds."""

_HALVES = {".hdr": ".img", ".img": ".hdr"}


class Decoded(NamedTuple):
    """``layout`` with the header's fields, numbers (C, I, J, K) exactly as stored, and notes on both."""

    layout: Layout
    values: NDArray[Any]
    notes: list[Note]


def decode(path: Path, options: ReadOptions) -> Decoded:
    """Read a NIfTI-1 or NIfTI-2 file, or a pair of which ``path`` is one half, packed with gzip or not.

    Raises:
        VolumeError: if it is none, or truncated, or longer than its header says, or too large, or one half is missing.
    """
    header_path, voxel_path = _files(path)
    with ExitStack() as files:
        stream = files.enter_context(open_bytes(header_path))
        layout = read_layout(stream, pair=header_path != voxel_path)
        if header_path != voxel_path:
            stream = files.enter_context(open_bytes(voxel_path))
            stream.read(layout.offset)
        values = _values(stream, layout, options)
        notes = layout.notes + _trailing(stream)
    return Decoded(layout, values, notes)


def _files(path: Path) -> tuple[Path, Path]:
    """The file of the header and the file of the voxels, which is the same for .nii."""
    packing = path.suffix if path.suffix.lower() == ".gz" else ""
    unpacked = path.with_name(path.name.removesuffix(packing))
    other = _HALVES.get(unpacked.suffix.lower())
    if other is None:
        return path, path
    base = unpacked.with_suffix(other.upper() if unpacked.suffix.isupper() else other)
    partners = [base, base.with_name(f"{base.name}{packing or '.gz'}")]
    partner = next((p for p in (reversed(partners) if packing else partners) if p.is_file()), None)
    if partner is None:
        names = " or ".join(p.name for p in partners)
        raise VolumeError(f"the other half of a .hdr and .img pair must lie beside it, but there is no {names}")
    return (partner, path) if other == ".hdr" else (path, partner)


def _values(stream: ByteStream, layout: Layout, options: ReadOptions) -> NDArray[Any]:
    """Numbers (C, I, J, K), as the type that is wanted in the end where that changes none."""
    check_size(layout.axes, layout.dtype.itemsize, options.max_bytes)
    wanted = np.dtype(np.int64 if options.labels else np.float32)
    if not (layout.scaling.is_identity and np.can_cast(layout.dtype, wanted, "safe")):
        wanted = layout.dtype.newbyteorder("=")
    values = stream.numbers(math.prod(layout.axes), layout.dtype, wanted).reshape(layout.axes, order="F")
    return np.moveaxis(values, layout.channel_axis, 0)


def _trailing(stream: ByteStream) -> list[Note]:
    """Reads to the end of the file, which makes gzip check its sums."""
    left = len(stream.read(MAX_TRAILING_BYTES + 1))
    if left > MAX_TRAILING_BYTES:
        most = f"at most {MAX_TRAILING_BYTES} bytes may follow the last voxel"
        raise VolumeError(f"{stream.name} holds more than its header says: {most}")
    if left == 0:
        return []
    message = f"{stream.name} holds {left} bytes more than its header says; they were left out"
    return [Note(NoteKind.FIELDS_DISAGREE, message, {"bytes": left})]
