"""Segments of a DICOM segmentation: numbers, names and codes, from its elements and in a volume's metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from medattn.volumes.dicom.elements import integer, items, quiet
from medattn.volumes.errors import VolumeError, library_errors
from medattn.volumes.stored import Metadata

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_CODE = re.compile(r"[^ \\]{1,16}\\[^ \\]{1,64}\\[^\\]{1,64}")


class Code(NamedTuple):
    """A coded concept, such as ("SCT", "10200004", "Liver")."""

    scheme: str
    value: str
    meaning: str


class Segment(NamedTuple):
    """Name of a segment, and the code of what it is, if it has one."""

    name: str
    code: Code | None = None


Segments = Mapping[int, Segment]
"""Segments by number."""


def read_segments(elements: Dataset, background: int | None) -> dict[int, Segment]:
    """The segments that SegmentSequence describes, in the order of numbers, without number ``background``.

    Raises:
        VolumeError: if a segment has no number of its own from 1 on, or its description is damaged.
    """
    segments: dict[int, Segment] = {}
    for item in items(elements, "SegmentSequence"):
        number = integer(item, "SegmentNumber")
        if number is not None and number == background:
            continue
        if number is None or number < 1 or number in segments:
            raise VolumeError(f"segments must have numbers from 1, each its own, got {number} after {list(segments)}")
        with library_errors(f"reading the description of segment {number}"), quiet():
            segments[number] = Segment(str(item.get("SegmentLabel", "")), _code(item))
    return dict(sorted(segments.items()))


def _code(segment: Dataset) -> Code | None:
    for concept in segment.get("SegmentedPropertyTypeCodeSequence") or []:
        value = concept.get("CodeValue") or concept.get("LongCodeValue") or ""
        code = Code(str(concept.get("CodingSchemeDesignator", "")), str(value), str(concept.get("CodeMeaning", "")))
        if _CODE.fullmatch("\\".join(code)):
            return code
    return None


def segment_metadata(segments: Segments) -> dict[str, tuple[str, ...]]:
    """Names ("number: name") and codes ("number: scheme value meaning") of the segments as a volume's metadata."""
    labels = tuple(f"{number}: {segment.name}" for number, segment in segments.items())
    codes = tuple(f"{number}: {' '.join(segment.code)}" for number, segment in segments.items() if segment.code)
    return {"segment_labels": labels, **({"segment_codes": codes} if codes else {})}


def segments_read(metadata: Metadata) -> dict[int, Segment]:
    """Segments from the metadata of a volume, as ``segment_metadata`` makes them."""
    labels, codes = (_by_number(metadata.get(key, ())) for key in ("segment_labels", "segment_codes"))
    known = {number: Code(*code.split(" ", 2)) for number, code in codes.items()}
    return {number: Segment(name, known.get(number)) for number, name in labels.items() if name}


def _by_number(entries: str | tuple[str, ...]) -> dict[int, str]:
    pairs = (entry.partition(": ") for entry in entries)
    return {int(number): rest for number, _, rest in pairs}
