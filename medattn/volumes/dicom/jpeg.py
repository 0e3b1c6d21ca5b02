"""The segments of a JPEG picture, and a strict check of lossless ones.

GDCM, which decodes those, ends the whole process where it finds what it does not expect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from medattn.volumes.errors import VolumeError

_DHT, _SOF3, _SOS, _DRI, _COM = 0xC4, 0xC3, 0xDA, 0xDD, 0xFE
_STANDALONE = {0x01, *range(0xD0, 0xD9)}
_HARMLESS = {*range(0xE0, 0xF0), _COM, _DRI}
_MOST_CODES = 17  # sizes 0 to 16 of a difference
_MARKER_IN_DATA = re.compile(rb"\xff[^\x00\xd0-\xd7]", re.DOTALL)  # neither a stuffed byte nor a restart


class Segment(NamedTuple):
    """A marker, what its segment holds after the length, and where that ends."""

    marker: int
    body: bytes
    end: int


def segments(frame: bytes) -> Iterator[Segment]:
    """The segments of a JPEG or JPEG-LS picture (ITU-T T.81 B.1.1), up to the first start of scan; none if damaged."""
    at = 2 if frame.startswith(b"\xff\xd8") else len(frame)
    while at + 4 <= len(frame) and frame[at] == 0xFF:
        marker = frame[at + 1]
        if marker == 0xFF or marker in _STANDALONE:
            at += 1 if marker == 0xFF else 2
            continue
        end = at + 2 + int.from_bytes(frame[at + 2 : at + 4], "big")
        if end < at + 4 or end > len(frame):
            return
        yield Segment(marker, frame[at + 4 : end], end)
        if marker == _SOS:
            return
        at = end


def check_lossless(frame: bytes) -> None:
    """Make sure that a picture is JPEG lossless with Huffman codes, in one scan, with whole tables.

    Raises:
        VolumeError: if it is not.
    """
    tables, components = set[int](), b""
    for marker, body, end in segments(frame):
        if marker == _DHT:
            tables |= _tables(body)
        elif marker == _SOF3:
            _require(not components and len(body) >= 9 and len(body) == 6 + 3 * body[5], "one frame header")
            components = body[6::3]
        elif marker == _SOS:
            _require(_is_scan(body, components, tables), "one scan of all components, with a table for each")
            _require(not _MARKER_IN_DATA.search(frame[end:-2]), "no marker in its data")
            return
        else:
            _require(marker in _HARMLESS, "only segments of lossless JPEG")
    _require(False, "a scan")


def _is_scan(body: bytes, components: bytes, tables: set[int]) -> bool:
    """The scan header (ITU-T T.81 B.2.3): components with their tables, predictor 1 to 7, 0, point transform."""
    count = len(components)
    whole = 0 < count <= 4 and len(body) == 4 + 2 * count and body[0] == count
    return (
        whole
        and body[1:-3:2] == components
        and {selector >> 4 for selector in body[2:-3:2]} <= tables
        and 1 <= body[-3] <= 7
        and body[-2] == 0
        and body[-1] < 16
    )


def _tables(body: bytes) -> set[int]:
    """Numbers of the Huffman tables (ITU-T T.81 B.2.4.2) that a segment defines."""
    found = set()
    while body:
        counts = body[1:17]
        total = sum(counts)
        space = sum(count << (16 - length) for length, count in enumerate(counts, start=1))
        whole = len(body) >= 17 + total and 0 < total <= _MOST_CODES and space < 1 << 16
        codes = body[17 : 17 + total]
        _require(whole and body[0] < 4 and max(codes, default=99) < _MOST_CODES, "whole tables")
        found.add(body[0])
        body = body[17 + total :]
    return found


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise VolumeError(f"a compressed picture is damaged: lossless JPEG must have {what}")
