"""From the text at the start of a MetaImage file to its fields, and to how and where its voxels lie.

Source: the MetaIO documentation (itk.org/Wiki/ITK/MetaIO/Documentation) and what ITK 5.4 does with each field.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medattn.volumes.errors import VolumeError
from medattn.volumes.text_header import (
    MAX_HEADER_BYTES,
    MAX_SKIP_BYTES,
    Header,
    lines,
    read_start,
    shown,
    voxel_path,
    wholes,
)
from medattn.volumes.voxel_stream import Packing, offset_from_end

_SEPARATOR = re.compile("[=:]")
_TYPES = {
    "MET_CHAR": "i1",
    "MET_UCHAR": "u1",
    "MET_SHORT": "i2",
    "MET_USHORT": "u2",
    "MET_INT": "i4",
    "MET_UINT": "u4",
    "MET_LONG": "i4",  # 4 bytes, whatever a long is elsewhere
    "MET_ULONG": "u4",
    "MET_LONG_LONG": "i8",
    "MET_ULONG_LONG": "u8",
    "MET_FLOAT": "f4",
    "MET_DOUBLE": "f8",
}
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_KNOWN = frozenset((
    *("ObjectType", "NDims", "DimSize", "HeaderSize", "BinaryData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB"),
    *("CompressedData", "CompressedDataSize", "ElementType", "ElementNumberOfChannels", "ElementDataFile"),
    *("ElementSpacing", "ElementSize", "TransformMatrix", "Rotation", "Orientation", "Offset", "Origin", "Position"),
    *("CenterOfRotation", "AnatomicalOrientation", "DistanceUnits"),
    *("ElementToIntensityFunctionSlope", "ElementToIntensityFunctionOffset"),
))  # fmt: skip

_SPELLED = {name.lower(): name for name in _KNOWN}
_CLOSE = 0.85  # a letter more, less or wrong; MetaIO's other fields are less like these


class Layout(NamedTuple):
    """Where voxels lie: packed, from ``offset`` of ``path`` on.

    Attributes:
        axes: lengths of the array's axes, the first one the fastest: components, I, J, K, and the fourth axis.
        dtype: of each number.
    """

    path: Path
    packing: Packing
    offset: int
    axes: tuple[int, int, int, int, int]
    dtype: np.dtype[Any]


def read_header(path: Path) -> Header:
    """Read the header of a .mha or .mhd file, which ends with the field ElementDataFile.

    Lines that are none of the fields that matter here are passed over: ITK writes there whatever an image came with,
    the text of DICOM elements for example, which may have several lines.

    Raises:
        VolumeError: if it is none, does not end, is of another object than an image, or has a field twice, or almost:
            one letter is wrong, or its case.
    """
    content = read_start(path)
    fields = dict[str, str]()
    for line, end in lines(content):
        _add_field(fields, line)
        if "ElementDataFile" in fields:
            _check_object(fields)
            return Header(fields, end, "MetaImage")
    raise VolumeError(f"not a MetaImage file: ElementDataFile must end the header within {MAX_HEADER_BYTES} bytes")


def _add_field(fields: dict[str, str], line: str) -> None:
    before, *value = _SEPARATOR.split(line, maxsplit=1)
    name, *more = before.split(maxsplit=1) or [""]
    if name not in _KNOWN:
        meant = get_close_matches(name.lower(), _SPELLED, 1, _CLOSE)
        if meant:
            raise VolumeError(f"the field {_SPELLED[meant[0]]} must be written so, got {shown(name)}")
        return
    if more or not value:
        raise VolumeError(f"a line of the header must be '{name} = value', got {shown(line)}")
    if name in fields:
        raise VolumeError(f"the field {name} must be there once, but is there twice")
    fields[name] = value[0].strip()


def _check_object(fields: dict[str, str]) -> None:
    kind = fields.get("ObjectType", "Image")
    if kind.lower() != "image":
        raise VolumeError(f"ObjectType must be Image, got {shown(kind)}")


def read_layout(path: Path, header: Header) -> Layout:
    """How and where the voxels of the file at ``path`` lie. Little-endian if nothing is said, as in MetaIO.

    CompressedDataSize is not needed: what is packed says itself where it ends.

    Raises:
        VolumeError: if shape, type, encoding or byte order are none of a volume, or there is no file with the voxels.
    """
    if not _boolean(header, ("BinaryData",), default=True):
        raise VolumeError("BinaryData must be True, got False: voxels written as text are not supported")
    axes, dtype = _axes(header), _dtype(header)
    voxels, start = _data_file(path, header)
    packing = Packing.ZLIB if _boolean(header, ("CompressedData",), default=False) else Packing.RAW
    skip = wholes(header.fields.get("HeaderSize", "0"), "HeaderSize", 1, least=-1, most=MAX_SKIP_BYTES)[0]
    if skip > 0 and start > 0:
        raise VolumeError(f"HeaderSize must be 0 or -1 where the voxels follow the header (LOCAL), got {skip}")
    if skip >= 0:
        return Layout(voxels, packing, start + skip, axes, dtype)
    if packing is not Packing.RAW:
        raise VolumeError("HeaderSize must not be -1 where CompressedData is True")
    return Layout(voxels, packing, offset_from_end(voxels, axes, dtype, start), axes, dtype)


def one_of(header: Header, names: Sequence[str]) -> str | None:
    """The value of a field that has several names, if it is there.

    Raises:
        VolumeError: if two of the names have different values.
    """
    found = [name for name in names if name in header.fields]
    if len({" ".join(header.fields[name].split()).lower() for name in found}) > 1:
        both = ", ".join(f"{name} = {shown(header.fields[name])}" for name in found)
        raise VolumeError(f"{' and '.join(found)} are names of one field and must have one value, got {both}")
    return header.fields[found[0]] if found else None


def dimensions(header: Header) -> int:
    """NDims, the number of axes: 3 or 4.

    Raises:
        VolumeError: if it is another.
    """
    count = wholes(header.required("NDims"), "NDims", 1, least=1)[0]
    if count not in (3, 4):
        raise VolumeError(f"a volume must have 3 axes, and may have a fourth (NDims), got {count}")
    return count


def _axes(header: Header) -> tuple[int, int, int, int, int]:
    i, j, k, *more = wholes(header.required("DimSize"), "DimSize", dimensions(header), least=1)
    channels = header.fields.get("ElementNumberOfChannels", "1")
    components, times = wholes(channels, "ElementNumberOfChannels", 1, least=1)[0], more[0] if more else 1
    if min(components, times) > 1:
        got = f"{components} components and {times} along the fourth axis"
        raise VolumeError(
            f"a volume must have components (ElementNumberOfChannels) or a fourth axis, not both, got {got}"
        )
    return components, i, j, k, times


def _dtype(header: Header) -> np.dtype[Any]:
    name = header.required("ElementType")
    code = _TYPES.get(name.removesuffix("_ARRAY"))
    if code is None:
        raise VolumeError(f"ElementType must be one of {', '.join(_TYPES)}, got {shown(name)}")
    is_big = _boolean(header, ("BinaryDataByteOrderMSB", "ElementByteOrderMSB"), default=False)
    return np.dtype((">" if is_big else "<") + code)


def _boolean(header: Header, names: Sequence[str], *, default: bool) -> bool:
    text = one_of(header, names)
    if text is None:
        return default
    if text.lower() not in _BOOLEANS:
        raise VolumeError(f"{names[0]} must be True or False, got {shown(text)}")
    return _BOOLEANS[text.lower()]


def _data_file(path: Path, header: Header) -> tuple[Path, int]:
    """The file of the voxels, and where the part begins that is not the header."""
    name = header.fields["ElementDataFile"]
    if name.lower() == "local":
        return path, header.end
    if re.match(r"LIST\b", name) or re.search(r"%\d*d", name):
        raise VolumeError(f"ElementDataFile must name the one file that holds all voxels, got several: {shown(name)}")
    return voxel_path(path, name, "ElementDataFile"), 0
