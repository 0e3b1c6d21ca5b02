"""From the text at the start of a NRRD file to its fields, and to how and where its voxels lie.

Source: "Definition of NRRD File Format" (teem.sourceforge.net/nrrd/format.html), NRRD0001 to NRRD0005.
"""

from __future__ import annotations

import re
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

MAX_DIMENSIONS = 16

_MAGIC = re.compile(r"NRRD000[1-5]|NRRD00\.01")
_LINE = re.compile(r"(.+?)(: |:=|:$)(.*)")
_FIELDS = (
    *("type", "dimension", "sizes", "encoding", "endian", "number", "content", "min", "max", "spacings", "thicknesses"),
    *("centerings", "labels", "units", "kinds", "space", "space dimension", "space directions", "space origin"),
    *("space units", "measurement frame"),
)
_FIELDS_ALSO_AS_ONE_WORD = (
    *("data file", "line skip", "byte skip", "block size", "old min", "old max", "axis mins", "axis maxs"),
    "sample units",
)
_NAMES = {name.replace(" ", ""): name for name in _FIELDS_ALSO_AS_ONE_WORD} | {"centers": "centerings"}
_NAMES |= {name: name for name in (*_FIELDS, *_FIELDS_ALSO_AS_ONE_WORD)}
"""The name that is used here for each name of a field."""

_TYPES = {
    "i1": ("signed char", "int8", "int8_t"),
    "u1": ("uchar", "unsigned char", "uint8", "uint8_t"),
    "i2": ("short", "short int", "signed short", "signed short int", "int16", "int16_t"),
    "u2": ("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"),
    "i4": ("int", "signed int", "int32", "int32_t"),
    "u4": ("uint", "unsigned int", "uint32", "uint32_t"),
    "i8": ("longlong", "long long", "long long int", "signed long long", "signed long long int", "int64", "int64_t"),
    "u8": ("ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t"),
    "f4": ("float",),
    "f8": ("double",),
}
_CODES = {name: code for code, names in _TYPES.items() for name in names}
_ENDIANS = {"little": "<", "big": ">"}
_PACKINGS = {"raw": Packing.RAW, "gzip": Packing.GZIP, "gz": Packing.GZIP}


class Layout(NamedTuple):
    """Where voxels lie: ``skip`` bytes after unpacking what starts at ``offset`` of ``path``.

    Attributes:
        axes: lengths of the array's axes, the first one the fastest.
        dtype: of each number.
    """

    path: Path
    packing: Packing
    offset: int
    skip: int
    axes: tuple[int, ...]
    dtype: np.dtype[Any]


def read_header(path: Path) -> Header:
    """Read the header of a .nrrd or .nhdr file, names of fields in lower case. Comments and keys are left out.

    Raises:
        VolumeError: if it is none, does not end, or has a field twice, or one that the format does not know: it may be
            a misspelt one that matters.
    """
    content = read_start(path)
    rest = lines(content)
    magic, _ = next(rest, ("", 0))
    if not _MAGIC.fullmatch(magic.rstrip()):
        raise VolumeError(f"not a NRRD file: it must start with NRRD0001 to NRRD0005, got {shown(magic)}")
    fields = dict[str, str]()
    for line, end in rest:
        if not line:
            return Header(fields, end, "NRRD")
        _add_field(fields, line)
    if "data file" not in fields or len(content) == MAX_HEADER_BYTES:
        raise VolumeError(f"an empty line must end the header within {MAX_HEADER_BYTES} bytes, and none does")
    return Header(fields, len(content), "NRRD")


def _add_field(fields: dict[str, str], line: str) -> None:
    if not line.strip() or line.startswith("#"):
        return
    match = _LINE.fullmatch(line)
    if match is None:
        raise VolumeError(f"a line of the header must be 'field: value' or 'key:=value', got {shown(line)}")
    name, separator, value = match.groups()
    if separator == ":=":
        return
    key = _NAMES.get(" ".join(name.lower().split()))
    if key is None:
        raise VolumeError(f"{shown(name)} is no field of NRRD (one's own keys must be written 'key:=value')")
    if key in fields:
        raise VolumeError(f"the field {shown(name)} must be there once, but is there twice")
    fields[key] = value.strip()
    if key == "data file" and (re.match(r"LIST\b", value.strip()) or re.search(r"%\d*d", value)):
        raise VolumeError(f"data file must name the one file that holds all voxels, got several: {shown(value)}")


def read_layout(path: Path, header: Header) -> Layout:
    """How and where the voxels of the file at ``path`` lie.

    Raises:
        VolumeError: if shape, type, encoding or byte order are none of a volume, or there is no file with the voxels.
    """
    dimension = wholes(header.required("dimension"), "dimension", 1, least=1, most=MAX_DIMENSIONS)[0]
    axes = tuple(wholes(header.required("sizes"), "sizes", dimension, least=1))
    dtype = _dtype(header)
    encoding = header.required("encoding").lower()
    if encoding not in _PACKINGS:
        raise VolumeError(f"encoding must be raw or gzip, got {shown(encoding)}, which is not supported")
    packing, name = _PACKINGS[encoding], header.fields.get("data file")
    voxels, start = (path, header.end) if name is None else (voxel_path(path, name, "data file"), 0)
    start = _after_lines(voxels, start, header.fields.get("line skip") or "0")
    skip = wholes(header.fields.get("byte skip") or "0", "byte skip", 1, least=-1, most=MAX_SKIP_BYTES)[0]
    if skip == -1 and packing is not Packing.RAW:
        raise VolumeError(f"byte skip must not be -1 where encoding is {encoding}")
    if skip == -1:
        return Layout(voxels, packing, offset_from_end(voxels, axes, dtype, start), 0, axes, dtype)
    if packing is Packing.RAW:
        return Layout(voxels, packing, start + skip, 0, axes, dtype)
    return Layout(voxels, packing, start, skip, axes, dtype)


def _dtype(header: Header) -> np.dtype[Any]:
    name = " ".join(header.required("type").lower().split())
    if name not in _CODES:
        raise VolumeError(f"type must be a NRRD type of integers of 8 to 64 bits, float or double, got {shown(name)}")
    code, endian = _CODES[name], header.fields.get("endian")
    if endian is None and not code.endswith("1"):
        raise VolumeError(f"endian must be there where type is {name}")
    if endian is not None and endian.lower() not in _ENDIANS:
        raise VolumeError(f"endian must be little or big, got {shown(endian)}")
    return np.dtype(_ENDIANS[endian.lower() if endian else "little"] + code)


def _after_lines(path: Path, start: int, line_skip: str) -> int:
    """Where the line begins that follows ``line_skip`` lines from ``start`` on."""
    count = wholes(line_skip, "line skip", 1, least=0)[0]
    if count == 0:
        return start
    with path.open("rb") as file:
        file.seek(start)
        content = file.read(MAX_HEADER_BYTES)
    at = 0
    for _ in range(count):
        at = content.find(b"\n", at) + 1
        if at == 0:
            raise VolumeError(
                f"line skip must not go further than {MAX_HEADER_BYTES} bytes, nor than the file, got {count}"
            )
    return start + at
