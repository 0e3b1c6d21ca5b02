"""Reading DICOM segmentations as labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.dicom.elements import integer, quiet, text
from medattn.volumes.dicom.format import pixel_format
from medattn.volumes.dicom.header import BIG_ENDIAN, KEYWORDS, NATIVE, Header
from medattn.volumes.dicom.pixels import read_frames
from medattn.volumes.dicom.seg_frames import place_frames
from medattn.volumes.dicom.seg_segments import Segments, read_segments, segment_metadata
from medattn.volumes.dicom.series import series_metadata
from medattn.volumes.errors import VolumeError, library_errors
from medattn.volumes.stored import Metadata, ReadOptions, Stored, check_size

if TYPE_CHECKING:
    from pydicom.dataset import FileDataset

_KEYWORDS = (
    *("SegmentationType", "SegmentSequence", "MaximumFractionalValue", "PixelPaddingValue"),
    *("TotalPixelMatrixColumns", "DimensionOrganizationType"),
)
_BITS = {"BINARY": (1, 8), "FRACTIONAL": (8,), "LABELMAP": (8, 16)}  # 8 for BINARY is what some compressors leave
_GREY = "MONOCHROME2"


class _Kind(NamedTuple):
    """What the pixels mean: ``maximum`` is inside for sure; in a label map ``background`` is no segment's number."""

    name: str
    maximum: int = 1
    background: int = 0


def read_segmentation(header: Header, options: ReadOptions) -> Stored:
    """Segment numbers as labels (1, I, J, K), 0 where there is no segment; k ascends along row x column direction.

    Slices that the file leaves out are 0. A fractional segmentation is labels only if every voxel is wholly in or out
    of a segment: where to draw the line between is not for a reader to say. Names and codes of the segments are
    metadata: "segment_labels", each "number: name", and "segment_codes", each "number: scheme code meaning".

    Raises:
        VolumeError: if ``options.labels`` is false, if segments overlap or are fractional, if the frames are tiles of
            a larger image or lie on no regular grid, or for anything else that makes the file unusable.
    """
    if not options.labels:
        raise VolumeError("a DICOM segmentation holds labels and no image: load it with labels=True")
    header = _with_segments(header)
    kind = _kind(header.elements)
    segments = read_segments(header.elements, kind.background if kind.name == "LABELMAP" else None)
    shape = _size(header.elements, "Columns"), _size(header.elements, "Rows")
    grid, numbers, slices, notes = place_frames(header, shape)
    keys = list(zip(numbers, slices, strict=True))
    _check_keys(keys, segments, kind)
    check_size((1, *grid.shape), np.dtype(np.int64).itemsize, options.max_bytes)
    frames = _pixels(header, shape, len(keys))
    first = next(frames)  # a compressed picture is found to have another size before labels are allocated
    labels = np.zeros(tuple(reversed(grid.shape)), np.int64)
    for frame, ((number, k), pixels) in enumerate(zip(keys, chain([first], frames), strict=True), start=1):
        if kind.name == "LABELMAP":
            labels[k] = _segment_numbers(pixels, segments, kind, frame)
        else:
            _add(labels[k], _is_inside(pixels, kind, frame), number, segments, k)
    metadata: Metadata = {**series_metadata(header.elements), **segment_metadata(segments)}
    return Stored(labels.T[None], grid, notes=notes, metadata=metadata)


def _with_segments(header: Header) -> Header:
    """With the elements that only segmentations have. A palette only colours numbers, so they are called grey."""
    from pydicom import dcmread
    from pydicom.tag import Tag

    with header.file.open() as stream, library_errors(f"reading the segments of {header.file.name}"), quiet():
        tags = [Tag(keyword) for keyword in (*KEYWORDS, *_KEYWORDS)]
        elements = dcmread(stream, stop_before_pixels=True, force=True, specific_tags=tags)
        if text(elements, "PhotometricInterpretation") == "PALETTE COLOR":
            found: Any = elements.get_item("PhotometricInterpretation")  # as it lies in the file
            elements["PhotometricInterpretation"] = found._replace(value=_GREY.encode())
    return replace(header, elements=elements)


def _kind(elements: FileDataset) -> _Kind:
    name = text(elements, "SegmentationType")
    if name not in _BITS:
        raise VolumeError(f"SegmentationType must be one of {', '.join(_BITS)}, got {name!r}")
    if "TotalPixelMatrixColumns" in elements or text(elements, "DimensionOrganizationType").startswith("TILED"):
        raise VolumeError("the frames are tiles of a larger image (a slide), which is no volume")
    photometric = text(elements, "PhotometricInterpretation")
    if photometric != _GREY:
        raise VolumeError(f"PhotometricInterpretation must be {_GREY} in a segmentation, got {photometric!r}")
    for keyword, allowed in (("BitsAllocated", _BITS[name]), ("SamplesPerPixel", (1,)), ("PixelRepresentation", (0,))):
        if integer(elements, keyword) not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise VolumeError(f"{keyword} must be {wanted} in a segmentation, got {integer(elements, keyword)}")
    if name == "FRACTIONAL":
        return _Kind(name, maximum=_size(elements, "MaximumFractionalValue"))
    return _Kind(name, background=integer(elements, "PixelPaddingValue") or 0) if name == "LABELMAP" else _Kind(name)


def _size(elements: FileDataset, keyword: str) -> int:
    value = integer(elements, keyword)
    if value is None or value < 1:
        raise VolumeError(f"{keyword} must be a positive integer, got {value}")
    return value


def _check_keys(keys: Sequence[tuple[int, int]], segments: Segments, kind: _Kind) -> None:
    """Each (segment, slice) may be there once, and each segment must be described."""
    seen: dict[tuple[int, int], int] = {}
    for frame, (number, k) in enumerate(keys, start=1):
        if kind.name != "LABELMAP" and number not in segments:
            raise VolumeError(f"frame {frame} is of segment {number}, which SegmentSequence does not describe")
        first = seen.setdefault((number, k), frame)
        if first != frame:
            whose = f", and both are of segment {number}" if number else ""
            raise VolumeError(f"frames {first} and {frame} lie in one place{whose}")


def _pixels(header: Header, shape: tuple[int, int], count: int) -> Iterator[NDArray[Any]]:
    """Pixels (rows, columns) of each frame as stored; what the header says of them is checked at once."""
    if integer(header.elements, "BitsAllocated") == 1:
        return _unpacked(_packed(header, shape, count), shape, count)
    form = pixel_format(header)
    return (pixels for _, pixels in read_frames(header, form, range(count)))


def _packed(header: Header, shape: tuple[int, int], count: int) -> NDArray[np.uint8]:
    """The bytes that hold all frames, the first pixel in the lowest bit of the first."""
    pixels, needed = header.pixels, -(-count * shape[0] * shape[1] // 8)
    if pixels is None or header.syntax not in NATIVE:
        raise VolumeError(f"PixelData of one bit per pixel must be there, and not compressed, got {header.syntax}")
    if pixels.length not in (needed, needed + needed % 2) or needed > pixels.available:
        raise VolumeError(
            f"PixelData must hold {needed} bytes ({count} frames of {shape[0]} x {shape[1]} bits), but its length is "
            f"{pixels.length}, and {pixels.available} bytes are there"
        )
    with header.file.open() as stream, library_errors("reading PixelData"):
        stream.seek(pixels.offset)
        content = stream.read(needed + needed % 2).ljust(needed + needed % 2, b"\0")
    swapped = header.syntax == BIG_ENDIAN and pixels.vr == "OW"
    return np.frombuffer(content, "u2").byteswap().view(np.uint8) if swapped else np.frombuffer(content, np.uint8)


def _unpacked(packed: NDArray[np.uint8], shape: tuple[int, int], count: int) -> Iterator[NDArray[np.uint8]]:
    """One bit per pixel, without gaps between frames: they need not start at a byte."""
    size = shape[0] * shape[1]
    for start in range(0, count * size, size):
        bits = np.unpackbits(packed[start // 8 : -(-(start + size) // 8)], bitorder="little")
        yield bits[start % 8 :][:size].reshape(shape[1], shape[0])


def _segment_numbers(pixels: NDArray[Any], segments: Segments, kind: _Kind, frame: int) -> NDArray[Any]:
    """The frame of a label map, with 0 for the background."""
    found = {int(number) for number in np.flatnonzero(np.bincount(pixels.ravel()))}
    strange = sorted(found - segments.keys() - {kind.background})
    if strange:
        raise VolumeError(f"frame {frame} has pixels of segment {strange[0]}, which SegmentSequence does not describe")
    return np.where(pixels == kind.background, 0, pixels) if kind.background else pixels


def _is_inside(pixels: NDArray[Any], kind: _Kind, frame: int) -> NDArray[np.bool_]:
    if pixels.max() > kind.maximum:
        raise VolumeError(f"pixels must be at most {kind.maximum}, got {pixels.max()} in frame {frame}")
    inside = pixels > 0
    if (pixels[inside] < kind.maximum).any():
        partly = pixels[inside & (pixels < kind.maximum)][0]
        raise VolumeError(
            f"a fractional segmentation is labels only if pixels are 0 or {kind.maximum} (MaximumFractionalValue), got "
            f"{partly} in frame {frame}: make it a BINARY one first"
        )
    return inside


def _add(labels: NDArray[np.int64], inside: NDArray[np.bool_], number: int, segments: Segments, k: int) -> None:
    """Put segment ``number`` into the ``labels`` (J, I) of slice ``k``."""
    taken = labels[inside]
    if taken.any():
        other = int(taken[taken > 0][0])
        both = " and ".join(f"{n} ({segments[n].name!r})" for n in sorted((other, number)))
        raise VolumeError(f"segments {both} overlap in slice {k}, and a voxel has one label")
    labels[inside] = number
