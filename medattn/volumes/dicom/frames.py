"""The frames of a DICOM image, of a classic file (one) or a multi-frame one: where each lies, and what its values mean.

In a multi-frame file each frame has functional groups, its own or shared by all (DICOM PS3.3 C.7.6.16).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.dicom.elements import integer, items, number, numbers, text
from medattn.volumes.dicom.header import Header
from medattn.volumes.dicom.slices import MAX_MM, Plane
from medattn.volumes.errors import VolumeError

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

Group = Callable[[str], "Dataset | None"]
"""Gives the functional group of a frame, by the keyword of its sequence; of a classic file, all elements."""

_MARKS = ("EchoTime", "TemporalPositionIdentifier", "DiffusionBValue", "TriggerTime", "AcquisitionNumber", "ImageType")
_PARAMETRIC_MAP = "1.2.840.10008.5.1.4.1.1.30"


class Meaning(NamedTuple):
    """True value = slope * stored + inter (None: not said), or ``table``[stored - ``first``], its ends continued."""

    slope: float | None = None
    inter: float | None = None
    table: NDArray[np.uint16] | None = None
    first: int = 0

    @property
    def kind(self) -> str:
        """Which of these there is, for messages."""
        return "a lookup table" if self.table is not None else "no scale" if self.slope is None else "a scale"

    def looked_up(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Entries of the table for numbers as stored, which are left as they are if there is none."""
        if self.table is None:
            return stored
        places = np.clip(stored.astype(np.int64) - self.first, 0, len(self.table) - 1)
        return np.asarray(self.table[places])


class Frame(NamedTuple):
    """One slice: the file that it is in, which frame of it (from 0), where it lies and what its values mean."""

    header: Header
    number: int
    plane: Plane
    meaning: Meaning


def frames_of(header: Header) -> list[Frame]:
    """All frames of a file, in its order.

    Raises:
        VolumeError: naming the file, if an element is missing, or no number, or if the frames have no positions.
    """
    with header.file.errors():
        return _frames(header)


def _frames(header: Header) -> list[Frame]:
    elements = header.elements
    if "MOSAIC" in text(elements, "ImageType").split("\\"):
        raise VolumeError("the slices of a mosaic image lie side by side in one picture; convert it first")
    count = integer(elements, "NumberOfFrames") or 1
    own = items(elements, "PerFrameFunctionalGroupsSequence")
    if not own:
        if count > 1:
            raise VolumeError(
                f"its {count} frames have no positions (PerFrameFunctionalGroupsSequence is missing), so this "
                f"{header.kind} is no volume"
            )
        return [_frame(header, 0, lambda _: elements)]
    if len(own) != count:
        raise VolumeError(f"PerFrameFunctionalGroupsSequence must have NumberOfFrames, {count}, items, got {len(own)}")
    shared = items(elements, "SharedFunctionalGroupsSequence")[:1]
    return [_frame(header, number, _groups([groups, *shared])) for number, groups in enumerate(own)]


def _groups(sources: list[Dataset]) -> Group:
    def group(sequence: str) -> Dataset | None:
        found = (items(source, sequence) for source in sources)
        return next((members[0] for members in found if members), None)

    return group


def _frame(header: Header, number_in_file: int, group: Group) -> Frame:
    name = header.file.name
    count = integer(header.elements, "InstanceNumber")
    if "PerFrameFunctionalGroupsSequence" in header.elements:
        name = f"frame {number_in_file + 1} of {name}"
    elif count is not None:
        name = f"{name} (instance {count})"
    measures = group("PixelMeasuresSequence")
    plane = Plane(
        name,
        _needed(group, "PlanePositionSequence", "ImagePositionPatient", 3, header),
        _needed(group, "PlaneOrientationSequence", "ImageOrientationPatient", 6, header),
        _needed(group, "PixelMeasuresSequence", "PixelSpacing", 2, header),
        number(measures, "SliceThickness") if measures else None,
        number(measures, "SpacingBetweenSlices") if measures else None,
        _marks(header, group("FrameContentSequence")),
    )
    return Frame(header, number_in_file, plane, _meaning(header, group))


def _needed(group: Group, sequence: str, keyword: str, count: int, header: Header) -> tuple[float, ...]:
    elements = group(sequence)
    values = numbers(elements, keyword, count) if elements is not None else ()
    if not values:
        raise VolumeError(f"{keyword} is missing, so this {header.kind} has no place in space")
    if max(map(abs, values)) >= MAX_MM:
        raise VolumeError(f"{keyword} must be below {MAX_MM:g} mm, got {values}")
    return values


def _marks(header: Header, content: Dataset | None) -> dict[str, str]:
    """What may tell frames at one position apart: for a multi-frame file, its dimensions."""
    elements = header.elements
    if content is None or content is elements:
        return {keyword: text(elements, keyword) for keyword in _MARKS if keyword in elements}
    values = numbers(content, "DimensionIndexValues")
    names = [_dimension(item) for item in items(elements, "DimensionIndexSequence")]
    return {name: f"no. {value:g}" for name, value in zip(names, values, strict=False)}


def _dimension(item: Dataset) -> str:
    from pydicom.datadict import keyword_for_tag

    group, element = numbers(item, "DimensionIndexPointer", 2) or (0, 0)
    return keyword_for_tag((int(group), int(element))) or f"dimension ({int(group):04x},{int(element):04x})"


def _meaning(header: Header, group: Group) -> Meaning:
    prefix, sequence = "Rescale", "PixelValueTransformationSequence"
    if header.sop_class == _PARAMETRIC_MAP:
        prefix, sequence = "RealWorldValue", "RealWorldValueMappingSequence"
    elements = group(sequence)
    if elements is None:
        return Meaning()
    tables = items(elements, "ModalityLUTSequence")
    if tables:
        return _table(tables[0], bool(integer(header.elements, "PixelRepresentation")))
    slope, inter = number(elements, f"{prefix}Slope"), number(elements, f"{prefix}Intercept")
    if slope == 0:
        raise VolumeError(f"{prefix}Slope must not be 0")
    if slope is None and inter is None:
        return Meaning()
    return Meaning(1.0 if slope is None else slope, inter or 0.0)


def _table(item: Dataset, signed: bool) -> Meaning:
    """A modality lookup table (DICOM PS3.3 C.11.1.1)."""
    entries, first, _ = (int(value) for value in numbers(item, "LUTDescriptor", 3) or (0, 0, 0))
    entries = entries or 1 << 16
    values = np.array(numbers(item, "LUTData")).astype(np.int64).astype(np.uint16)  # modulo 2**16
    if 2 * len(values) == entries + entries % 2:  # two 8-bit numbers to a word
        values = values.view(np.uint8)[:entries].astype(np.uint16)
    if len(values) != entries:
        raise VolumeError(f"LUTData must have {entries} entries, as LUTDescriptor says, got {len(values)}")
    return Meaning(table=values, first=first - (1 << 16) if signed and first >= 1 << 15 else first)
