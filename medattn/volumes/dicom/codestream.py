"""Compressed pictures in DICOM files: found, measured and checked before any decoder sees them.

Decoders allocate what a picture's own header asks for, and GDCM writes as much as it holds wherever it is told to, so
that must be what the DICOM header says.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import BinaryIO, NamedTuple

from medattn.volumes.dicom.jpeg import check_lossless, segments
from medattn.volumes.errors import VolumeError, library_errors

RLE = "1.2.840.10008.1.2.5"
_JPEG_2000 = ("1.2.840.10008.1.2.4.90", "1.2.840.10008.1.2.4.91")

PLUGINS = {
    RLE: "pydicom",
    "1.2.840.10008.1.2.4.50": "pillow",  # JPEG baseline
    "1.2.840.10008.1.2.4.51": "pillow",  # JPEG extended, of which no decoder here reads the 12-bit kind
    "1.2.840.10008.1.2.4.57": "gdcm",  # JPEG lossless
    "1.2.840.10008.1.2.4.70": "gdcm",
    "1.2.840.10008.1.2.4.80": "pyjpegls",  # JPEG-LS
    "1.2.840.10008.1.2.4.81": "pyjpegls",
    **dict.fromkeys(_JPEG_2000, "pillow"),
}
"""Transfer syntaxes of compressed pixels, and the one of pydicom's decoders for each: the strictest that there is."""

_ITEM, _END = b"\xfe\xff\x00\xe0", b"\xfe\xff\xdd\xe0"
_EOI = b"\xff\xd9"
_SOF = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}  # start of a frame of JPEG (not tables) or JPEG-LS
_SIZ = b"\xff\x4f\xff\x51"  # start of a JPEG 2000 codestream, and of its sizes
_JP2 = b"\x00\x00\x00\x0cjP  "


class Picture(NamedTuple):
    """What a compressed picture says of itself; ``bits`` per sample."""

    rows: int
    columns: int
    samples: int
    bits: int


def compressed_frames(stream: BinaryIO, available: int, count: int) -> list[bytes]:
    """The ``count`` frames of encapsulated pixel data at ``stream`` (DICOM PS3.5 A.4), ``available`` bytes at most.

    Raises:
        VolumeError: if it is truncated or damaged, or does not tell which of its fragments make a frame.
    """
    table, *fragments = _fragments(stream, available) or [b""]
    if len(fragments) == count:
        return fragments
    if count == 1 and fragments:
        return [b"".join(fragments)]
    starts = [0]
    for fragment in fragments:
        starts.append(starts[-1] + 8 + len(fragment))
    offsets = [offset for (offset,) in struct.iter_unpack("<L", table[: len(table) // 4 * 4])]
    if len(offsets) != count or not set(offsets) <= set(starts[:-1]) or offsets != sorted({0, *offsets}):
        raise VolumeError(
            f"PixelData must hold NumberOfFrames, {count}, compressed frames, but holds {len(fragments)} fragments, "
            "and no table that says which make a frame"
        )
    bounds = [starts.index(offset) for offset in offsets] + [len(fragments)]
    return [b"".join(fragments[first:last]) for first, last in pairwise(bounds)]


def _fragments(stream: BinaryIO, available: int) -> list[bytes]:
    """The items of encapsulated pixel data: a table of offsets, which may be empty, then fragments."""
    found, left = list[bytes](), available
    while True:
        with library_errors("reading PixelData"):
            start = stream.read(8)
        left -= 8
        if start[:4] == _END:
            return found
        if left < 0 or start[:4] != _ITEM:
            raise VolumeError(f"PixelData is truncated or damaged: no item begins after {len(found)} fragments")
        length = int.from_bytes(start[4:], "little")
        if length > left:
            raise VolumeError(f"PixelData is truncated or damaged: a fragment of {length} bytes has {left} left")
        with library_errors("reading PixelData"):
            found.append(stream.read(length))
        left -= length


def check_picture(frame: bytes, syntax: str, wanted: Picture) -> None:
    """Make sure that a compressed frame ends where it should, and is a picture as the DICOM header says.

    Run-length coding has no header of its own; its decoder checks the number of its bytes.

    Raises:
        VolumeError: if it is truncated, no picture, or of another size or kind than ``wanted``.
    """
    if syntax == RLE:
        return
    frame = frame.rstrip(b"\0")
    if not frame.endswith(_EOI):
        raise VolumeError("a compressed picture is truncated: it must end with the marker FF D9")
    found = _jpeg2000(frame) if syntax in _JPEG_2000 else _jpeg(frame)
    if found is None:
        raise VolumeError("a compressed picture is damaged: its header must say how large it is")
    if found[:3] != wanted[:3]:
        raise VolumeError(
            f"a compressed picture must have Rows, Columns and SamplesPerPixel {wanted[:3]}, but is {found[:3]}"
        )
    exact = PLUGINS[syntax] == "gdcm"  # which decodes into a buffer of BitsAllocated
    if exact:
        check_lossless(frame)
    if found.bits > wanted.bits or (exact and -(-found.bits // 8) * 8 != wanted.bits):
        raise VolumeError(f"a compressed picture must fit BitsAllocated, {wanted.bits}, but has {found.bits} bits")


def _jpeg(frame: bytes) -> Picture | None:
    """From the start-of-frame segment (ITU-T T.81 B.2.2, T.87 C.2.2); None if there is none before the data."""
    for marker, body, _ in segments(frame):
        if marker in _SOF and len(body) >= 6:
            bits, rows, columns, samples = struct.unpack(">BHHB", body[:6])
            return Picture(rows, columns, samples, bits)
    return None


def _jpeg2000(frame: bytes) -> Picture | None:
    """From the SIZ segment (ITU-T T.800 A.5.1), of a codestream or of one in a JP2 file; None if there is none."""
    at = frame.find(_SIZ) if frame.startswith(_JP2) else 0
    if at < 0 or frame[at : at + 4] != _SIZ or len(frame) < at + 43:
        return None
    right, bottom, left, top = struct.unpack(">4L", frame[at + 8 : at + 24])
    samples, bits = struct.unpack(">HB", frame[at + 40 : at + 43])
    return Picture(bottom - top, right - left, samples, (bits & 0x7F) + 1)
