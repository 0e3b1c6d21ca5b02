"""What a DICOM header says of its pixels, checked against the length of the file before any is read."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from medattn.volumes.dicom.codestream import PLUGINS
from medattn.volumes.dicom.elements import integer, text
from medattn.volumes.dicom.header import NATIVE, Header, PixelElement, uid_name
from medattn.volumes.errors import VolumeError

_SAMPLES = {
    "MONOCHROME1": 1,
    "MONOCHROME2": 1,
    "RGB": 3,
    "YBR_FULL": 3,
    "YBR_FULL_422": 3,
    "YBR_ICT": 3,
    "YBR_RCT": 3,
}
"""Photometric interpretations that can be read, and their samples per pixel."""

_FLOATS: dict[str, np.dtype[Any]] = {
    "FloatPixelData": np.dtype(np.float32),
    "DoubleFloatPixelData": np.dtype(np.float64),
}
_INTEGER_BITS = (8, 16, 32)


class PixelFormat(NamedTuple):
    """What the pixels of a file are; all files of a series must agree in this."""

    rows: int
    columns: int
    photometric: str
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a frame: (rows, columns), or (rows, columns, 3) in colour."""
        return (self.rows, self.columns) if self.samples == 1 else (self.rows, self.columns, self.samples)

    @property
    def samples(self) -> int:
        """1, or 3 for colour."""
        return _SAMPLES[self.photometric]


def pixel_format(header: Header) -> PixelFormat:
    """What the header says of its pixels, which are as many as the file holds; colours are always decoded to RGB.

    Raises:
        VolumeError: naming the file and the element that is missing, cannot be read, or contradicts the file's length.
    """
    with header.file.errors():
        assert header.pixels is not None  # ``read_header`` makes sure
        photometric = text(header.elements, "PhotometricInterpretation")
        if photometric not in _SAMPLES:
            raise VolumeError(f"PhotometricInterpretation must be one of {', '.join(_SAMPLES)}, got {photometric!r}")
        samples = _one_of(header, "SamplesPerPixel", [_SAMPLES[photometric]])
        dtype = _dtype(header, header.pixels)
        rows, columns = _size(header, "Rows"), _size(header, "Columns")
        form = PixelFormat(rows, columns, photometric, dtype)
        if samples == 3:
            _one_of(header, "PlanarConfiguration", [0, 1])
        _check_length(header, header.pixels, form)
        return form


def _dtype(header: Header, pixels: PixelElement) -> np.dtype[Any]:
    if pixels.keyword in _FLOATS:
        dtype = _FLOATS[pixels.keyword]
        _one_of(header, "BitsAllocated", [dtype.itemsize * 8])
        return dtype
    bits = _one_of(header, "BitsAllocated", _INTEGER_BITS)
    stored = _one_of(header, "BitsStored", range(1, bits + 1))
    if integer(header.elements, "HighBit") not in (None, stored - 1):
        raise VolumeError(f"HighBit must be BitsStored - 1, {stored - 1}, got {integer(header.elements, 'HighBit')}")
    return np.dtype(f"{'ui'[_one_of(header, 'PixelRepresentation', [0, 1])]}{bits // 8}")


def _one_of(header: Header, keyword: str, allowed: Collection[int]) -> int:
    value = integer(header.elements, keyword)
    if value is None or value not in allowed:
        wanted = f"from {min(allowed)} to {max(allowed)}" if len(allowed) > 3 else " or ".join(map(str, allowed))
        raise VolumeError(f"{keyword} must be {wanted}, got {value}")
    return value


def _size(header: Header, keyword: str) -> int:
    value = integer(header.elements, keyword)
    if value is None or value < 1:
        raise VolumeError(f"{keyword} must be positive, got {value}")
    return value


def frame_count(header: Header) -> int:
    """NumberOfFrames, which a file of one frame may leave out."""
    return integer(header.elements, "NumberOfFrames") or 1


def frame_bytes(header: Header, form: PixelFormat) -> int:
    """Of a native frame; two pixels of YBR_FULL_422 share their two colour differences."""
    samples = 2 if form.photometric == "YBR_FULL_422" else form.samples
    return form.rows * form.columns * samples * form.dtype.itemsize


def _check_length(header: Header, pixels: PixelElement, form: PixelFormat) -> None:
    if header.syntax not in NATIVE:
        if header.syntax not in PLUGINS or pixels.keyword in _FLOATS:
            raise VolumeError(f"{pixels.keyword} in transfer syntax {uid_name(header.syntax)} cannot be read")
        if pixels.length is not None:
            raise VolumeError(f"compressed PixelData must have undefined length, got {pixels.length}")
        return
    count = frame_count(header)
    needed = count * frame_bytes(header, form)
    if pixels.length not in (needed, needed + needed % 2):
        shape = math.prod((count, *form.shape))
        raise VolumeError(
            f"{pixels.keyword} must hold {needed} bytes ({shape} numbers: {count} x {form.shape}), but its length is "
            f"{'undefined' if pixels.length is None else pixels.length}"
        )
    if needed > pixels.available:
        raise VolumeError(f"{pixels.keyword} is truncated: of {needed} bytes, the file holds {pixels.available}")
