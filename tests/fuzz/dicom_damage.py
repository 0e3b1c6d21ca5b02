"""Damage to DICOM elements, found in the bytes of a file by their tags."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from numpy.random import Generator
from pydicom.datadict import tag_for_keyword

from tests.fuzz.case import Damage, Files
from tests.fuzz.damage import FLOATS, INTEGERS, TEXTS, pick

GEOMETRY = (
    *("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness", "SpacingBetweenSlices"),
    *("Rows", "Columns", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "SamplesPerPixel"),
    *("PhotometricInterpretation", "PlanarConfiguration", "RescaleSlope", "RescaleIntercept", "NumberOfFrames"),
    *("SeriesInstanceUID", "FrameOfReferenceUID", "SOPClassUID", "TransferSyntaxUID", "InstanceNumber", "PixelData"),
    *("ImageType", "SeriesDescription", "FileMetaInformationGroupLength", "SpecificCharacterSet", "PatientName"),
)
_VRS = (b"US", b"SS", b"UL", b"DS", b"IS", b"LO", b"SQ", b"UN", b"OB", b"OW", b"FD", b"UI", b"AT", b"XX", b"\0\0")
_LONG_VRS = (b"OB", b"OW", b"OF", b"OD", b"OL", b"SQ", b"UN", b"UT", b"UC", b"UR", b"SV", b"UV", b"OV")
_BINARY = {b"US": "H", b"SS": "h", b"UL": "L", b"SL": "l", b"FL": "f", b"FD": "d"}
_TEXTS = (
    *(*TEXTS, "1\\2", "1\\2\\3", "0\\0\\0", "1\\0\\0\\0\\1\\0", "1.2.840.10008.1.2.5", "1.2.840.10008.5.1.4.1.1.66.4"),
    *(
        "1.2.840.10008.1.2.2",
        "1.2.840.10008.1.2.1.99",
        "1.2.840.10008.1.2.4.90",
        "MOSAIC",
        "RGB",
        "YBR_FULL",
        "ISO_IR 192",
    ),
)


class Element(NamedTuple):
    """Where an element lies in bytes: its tag at ``start``, its value from ``begin`` to ``end``."""

    start: int
    begin: int
    end: int
    order: str
    vr: bytes

    @property
    def length_size(self) -> int:
        """Bytes of the length, which stand before the value."""
        return 2 if self.vr and self.vr not in _LONG_VRS else 4


def find_elements(content: bytes, keyword: str) -> Iterator[Element]:
    """Each element of ``keyword``, inside sequences too, in explicit or implicit VR and either byte order."""
    tag = tag_for_keyword(keyword)
    assert tag is not None
    for order in "<>":
        packed, at = struct.pack(f"{order}HH", tag >> 16, tag & 0xFFFF), -1
        while (at := content.find(packed, at + 1)) >= 0 and at + 12 <= len(content):
            vr = content[at + 4 : at + 6]
            vr = vr if vr.isalpha() and vr.isupper() else b""
            length_at, size = (at + 8, 4) if vr in _LONG_VRS else (at + 6, 2) if vr else (at + 4, 4)
            length = int.from_bytes(content[length_at : length_at + size], "little" if order == "<" else "big")
            begin = length_at + size
            yield Element(at, begin, min(begin + length, len(content)), order, vr)


def element_damages(keywords: tuple[str, ...]) -> tuple[Damage, ...]:
    """Damages to one element of one file: its value, length, VR, place, or that it is there."""
    weighted = (_number, _number, _text, _text, _length, _vr, _remove, _repeat, _exchange)
    return tuple(_on_element(change, keywords) for change in weighted)


def _on_element(change: object, keywords: tuple[str, ...]) -> Damage:
    def damage(files: Files, rng: Generator) -> str:
        for _ in range(5):
            if not files:
                return ""
            name, keyword = str(pick(list(files), rng)), str(pick(keywords, rng))
            found = list(find_elements(files[name], keyword))
            if found:
                element = found[int(rng.integers(len(found)))]
                others = list(files.values())
                foreign = list(find_elements(others[int(rng.integers(len(others)))], keyword))
                files[name], what = change(files[name], element, rng, others, foreign)  # type: ignore[operator]
                return f"{keyword} of {name}: {what}"
        return ""

    return damage


def _with_value(content: bytes, element: Element, value: bytes) -> bytes:
    """The value replaced, and the length with it; not those of sequences around it."""
    value += b" " * (len(value) % 2)
    size = element.length_size
    length = (len(value) % (1 << 8 * size)).to_bytes(size, "little" if element.order == "<" else "big")
    return content[: element.begin - size] + length + value + content[element.end :]


def _number(content: bytes, element: Element, rng: Generator, *_: object) -> tuple[bytes, str]:
    """One of the numbers becomes another, in as many bytes where that goes, so that the rest stays whole."""
    old = content[element.begin : element.end]
    if element.vr in _BINARY or (not element.vr and len(old) in (2, 4)):
        kind = _BINARY.get(element.vr, "H")
        size = struct.calcsize(kind)
        if kind in "fd":
            value = float(pick(FLOATS, rng))
            packed = struct.pack(element.order + kind, value if kind == "d" or abs(value) < 3e38 else float("inf"))
        else:
            value = int(pick((*INTEGERS, 4, 6, 8, 12, 16, 32), rng))
            packed = (value % (1 << 8 * size)).to_bytes(size, "little" if element.order == "<" else "big")
        return content[: element.begin] + packed + content[element.begin + size :], f"number {value}"
    parts = old.split(b"\\")
    at = int(rng.integers(len(parts)))
    try:
        number = float(parts[at])
    except ValueError:
        number = 1.0
    changed = pick(
        (number + 1e-3, number * 1.01, number + 0.5, number * 1.5, -number, 0, 1e7, 1e-7, number + 1e-5), rng
    )
    parts[at] = f"{changed:.10g}".encode()
    value_ = b"\\".join(parts)
    if len(value_) <= len(old):
        return content[: element.begin] + value_.ljust(len(old)) + content[element.end :], f"numbers {value_!r}"
    return _with_value(content, element, value_), f"numbers {value_!r}, longer"


def _text(content: bytes, element: Element, rng: Generator, *_: object) -> tuple[bytes, str]:
    text, size = pick(_TEXTS, rng).encode(), element.end - element.begin
    if rng.random() < 0.5:
        text = text[:size].ljust(size)
        return content[: element.begin] + text + content[element.end :], f"same size, {text[:40]!r}"
    return _with_value(content, element, text), f"{text[:40]!r}"


def _length(content: bytes, element: Element, rng: Generator, *_: object) -> tuple[bytes, str]:
    size = element.length_size
    value = int(pick((*INTEGERS, element.end - element.begin + 2, 0xFFFFFFFE), rng)) % (1 << 8 * size)
    packed = value.to_bytes(size, "little" if element.order == "<" else "big")
    return content[: element.begin - size] + packed + content[element.begin :], f"length {value}"


def _vr(content: bytes, element: Element, rng: Generator, *_: object) -> tuple[bytes, str]:
    vr = pick(_VRS, rng)
    return content[: element.start + 4] + vr + content[element.start + 6 :], f"VR {vr!r}"


def _remove(content: bytes, element: Element, *_: object) -> tuple[bytes, str]:
    return content[: element.start] + content[element.end :], "removed"


def _repeat(content: bytes, element: Element, rng: Generator, *_: object) -> tuple[bytes, str]:
    count = int(pick((1, 1, 50), rng))
    return content[: element.end] + content[element.start : element.end] * count + content[element.end :], "repeated"


def _exchange(
    content: bytes, element: Element, rng: Generator, others: list[bytes], foreign: list[Element]
) -> tuple[bytes, str]:
    """The value of the same element elsewhere."""
    for other in others:
        for found in foreign:
            value = other[found.begin : found.end]
            if value and value != content[element.begin : element.end] and len(value) < 1000:
                return _with_value(content, element, value), f"that of another, {value[:40]!r}"
    return content, "no other"


def deep_sequences(files: Files, rng: Generator) -> str:
    """Sequences within sequences, without end."""
    if not files:
        return ""
    name = str(pick(list(files), rng))
    depth = int(pick((3, 60, 3000), rng))
    opening = b"\x08\x00\x40\x11SQ\0\0\xff\xff\xff\xff\xfe\xff\x00\xe0\xff\xff\xff\xff" * depth
    found = list(find_elements(files[name], str(pick(("Modality", "Rows", "PerFrameFunctionalGroupsSequence"), rng))))
    if not found or found[0].order != "<":
        return ""
    at = found[0].start
    files[name] = files[name][:at] + opening + files[name][at:]
    return f"{depth} sequences opened at {at} of {name}"
