"""The header of one DICOM file: the few elements that are needed, and where its pixels lie."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from medattn.volumes.dicom.elements import quiet, text
from medattn.volumes.dicom.files import MARK, MARK_OFFSET, DicomFile
from medattn.volumes.errors import VolumeError, library_errors

if TYPE_CHECKING:
    from pydicom.dataelem import DataElement, RawDataElement
    from pydicom.dataset import FileDataset
    from pydicom.tag import BaseTag

SEGMENTATIONS = ("1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7")
"""SOP classes Segmentation and Label Map Segmentation."""

NATIVE = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2")
"""Transfer syntaxes without compression: implicit VR, explicit VR, and the latter in big-endian order."""

BIG_ENDIAN = NATIVE[2]

_DIRECTORY, _DOSE = "1.2.840.10008.1.3.10", "1.2.840.10008.5.1.4.1.1.481.2"

KEYWORDS = (
    *("SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID"),
    *("Modality", "SeriesDescription", "ImageType", "InstanceNumber", "NumberOfFrames"),
    *("AcquisitionNumber", "EchoTime", "TriggerTime", "TemporalPositionIdentifier", "DiffusionBValue"),
    *("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness", "SpacingBetweenSlices"),
    *("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence", "DimensionIndexSequence"),
    *("Rows", "Columns", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation"),
    *("RescaleSlope", "RescaleIntercept", "ModalityLUTSequence"),
)
"""Elements that are read; nothing about the patient is among them."""

_TEXTS = (*KEYWORDS[:5], "Modality", "ImageType", "PhotometricInterpretation")

_PIXELS = {0x7FE00010: "PixelData", 0x7FE00008: "FloatPixelData", 0x7FE00009: "DoubleFloatPixelData"}
_PIXEL_VRS = (b"OB", b"OW", b"OF", b"OD", b"UN")
_UNDEFINED = 0xFFFFFFFF


class PixelElement(NamedTuple):
    """The element that holds the pixels: its keyword, its VR, and where its content begins.

    Attributes:
        length: of its content, as it says; None if undefined.
        available: how many bytes there are from ``offset`` to the end of the file.
    """

    keyword: str
    vr: str
    offset: int
    length: int | None
    available: int


@dataclass(frozen=True)
class Header:
    """Elements (``KEYWORDS``) of a DICOM file, and its pixels if it has any.

    Attributes:
        syntax: UID of the transfer syntax that its pixels are in; that of deflated ones is of what they inflate to.
        sop_class: SOPClassUID.
    """

    file: DicomFile
    elements: FileDataset
    pixels: PixelElement | None
    syntax: str
    sop_class: str

    @property
    def series(self) -> str:
        """SeriesInstanceUID; empty if there is none."""
        return text(self.elements, "SeriesInstanceUID")

    @property
    def instance(self) -> str:
        """SOPInstanceUID; empty if there is none."""
        return text(self.elements, "SOPInstanceUID")

    @property
    def frame_of_reference(self) -> str:
        """FrameOfReferenceUID; empty if there is none."""
        return text(self.elements, "FrameOfReferenceUID")

    @property
    def kind(self) -> str:
        """The name of its SOP class, such as "CT Image Storage", or the UID of an unknown one."""
        return uid_name(self.sop_class)

    @property
    def is_segmentation(self) -> bool:
        """True for the SOP classes of segmentations."""
        return self.sop_class in SEGMENTATIONS

    @property
    def is_image(self) -> bool:
        """True if it has pixels, which ``read_header`` makes sure of; a dose has them too and counts as none."""
        if self.sop_class in (_DIRECTORY, _DOSE):
            return False
        return self.pixels is not None or "Rows" in self.elements or "Image Storage" in self.kind


def uid_name(uid: str) -> str:
    """The name that DICOM has for a UID; the UID itself if it has none."""
    from pydicom.uid import UID

    with quiet():
        return UID(uid).name


def read_header(file: DicomFile) -> Header | None:
    """The header of ``file``; None if it is no DICOM file, by content and by name.

    Raises:
        VolumeError: if it is damaged, or named as DICOM and is none.
    """
    with file.errors(), file.open() as stream:
        with library_errors("reading the file"):
            marked = stream.read(MARK_OFFSET + len(MARK))[MARK_OFFSET:] == MARK
            stream.seek(0)
        if not (marked or file.is_named_dicom):
            return None
        from pydicom import dcmread

        with library_errors("reading the header"), quiet():
            elements = dcmread(stream, stop_before_pixels=True, force=True, specific_tags=_tags())
            implicit, little = elements.original_encoding
            pixels = _pixel_element(stream, little)
        syntax = text(elements.file_meta, "TransferSyntaxUID") or _native(implicit, little)
        media_class = text(elements.file_meta, "MediaStorageSOPClassUID")  # anonymizers may leave this one only
        sop_class = text(elements, "SOPClassUID") or (media_class if pixels or media_class == _DIRECTORY else "")
        if not sop_class:
            raise VolumeError("there is no SOPClassUID: it is truncated or damaged, or no DICOM file")
        header = Header(file, elements, pixels, syntax, sop_class)
        _check_whole(header)
        return header


def _check_whole(header: Header) -> None:
    for keyword in _TEXTS:
        text(header.elements, keyword)
    if (header.is_image and header.pixels is None) or any(map(_is_cut, header.elements.values())):
        raise VolumeError("it is truncated or damaged: it ends before its pixels")


def _is_cut(element: DataElement | RawDataElement) -> bool:
    from pydicom.dataelem import RawDataElement

    if not isinstance(element, RawDataElement) or element.length == _UNDEFINED:
        return False
    return len(element.value or b"") < element.length


@cache
def _tags() -> list[BaseTag]:
    from pydicom.tag import Tag

    return [Tag(keyword) for keyword in KEYWORDS]


def _native(implicit: bool | None, little: bool | None) -> str:
    """The transfer syntax of a file that names none."""
    return NATIVE[0 if implicit else 1 if little else 2]


def _pixel_element(stream: BinaryIO, little: bool | None) -> PixelElement | None:
    """The element that begins where reading stopped. Whether its VR is written is seen, as the syntax can be wrong."""
    order = "<" if little else ">"
    start = stream.read(8)
    if len(start) < 8:
        return None
    group, element = struct.unpack(order + "HH", start[:4])
    keyword = _PIXELS.get(group << 16 | element)
    if keyword is None:
        return None
    explicit = start[4:6] in _PIXEL_VRS  # these are odd as the lower half of a length, which is even
    vr = start[4:6].decode() if explicit else "OW"
    length = struct.unpack(order + "L", stream.read(4) if explicit else start[4:])[0]
    offset = stream.tell()
    available = stream.seek(0, os.SEEK_END) - offset
    return PixelElement(keyword, vr, offset, None if length == _UNDEFINED else length, available)
