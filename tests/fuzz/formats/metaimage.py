"""MetaImage: samples, damage to the lines of the header, and an independent reading as the oracle.

Source: itk.org/Wiki/ITK/MetaIO/Documentation; the rows of TransformMatrix are the axes, in LPS.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from medattn.geometry import VoxelGrid
from medattn.volumes import Volume, save_volume
from tests.fuzz.case import Expected, Files, Sample, Unreadable, read_files
from tests.fuzz.damage import damage_bytes
from tests.fuzz.gzip_damage import GZIP_DAMAGES
from tests.fuzz.text_damage import Lines, text_damages

_TYPES = {
    "CHAR": "i1", "UCHAR": "u1", "SHORT": "i2", "USHORT": "u2", "INT": "i4", "UINT": "u4", "LONG": "i4", "ULONG": "u4",
    "LONG_LONG": "i8", "ULONG_LONG": "u8", "FLOAT": "f4", "DOUBLE": "f8",
}  # fmt: skip
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_FIELDS = (
    *("ObjectType", "NDims", "DimSize", "HeaderSize", "BinaryData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB"),
    *("CompressedData", "CompressedDataSize", "ElementType", "ElementNumberOfChannels", "ElementDataFile"),
    *("ElementSpacing", "ElementSize", "TransformMatrix", "Rotation", "Orientation", "Offset", "Origin", "Position"),
    *("CenterOfRotation", "AnatomicalOrientation", "DistanceUnits"),
    *("ElementToIntensityFunctionSlope", "ElementToIntensityFunctionOffset"),
)
_MATRIX, _ORIGIN = ("TransformMatrix", "Rotation", "Orientation"), ("Offset", "Origin", "Position")
_MM = {"mm": 1.0, "cm": 10.0, "m": 1000.0, "um": 0.001, "?": 1.0, "": 1.0}
_TURNED = {"TransformMatrix": "0 1 0 -0.6 0 0.8 0.8 0 0.6", "Offset": "10 -20 30.5", "ElementSpacing": "1 0.5 2.5"}
_PLAIN = {"Orientation": "1 0 0 0 -1 0 0 0 1", "Position": "1 2 3", "ElementSpacing": "-1 2 3"}


def samples(folder: Path) -> list[Sample]:
    """Every type, packing and place of the voxels, and files of SimpleITK and of this package."""
    numbers = np.arange(60).reshape(5, 4, 3)
    time = {
        "TransformMatrix": "1 0 0 0 0 -1 0 0 0 0 1 0 0 0 0 1",
        "Offset": "1 2 3 0",
        "ElementSpacing": "1 2 3 9",
    }
    slope = {"ElementToIntensityFunctionSlope": "2", "ElementToIntensityFunctionOffset": "-5"}
    made = [
        _sample("raw", numbers.astype("<i2"), {**_TURNED, "AnatomicalOrientation": "RAI", "CenterOfRotation": "0 0 0"}),
        _sample("packed", numbers.astype("<u2"), _TURNED, packed=True),
        _sample("big endian", numbers.astype(">f4"), {**_PLAIN, "DistanceUnits": "cm"}),
        _sample("labels", (numbers % 7).astype("u1"), _TURNED, packed=True, options={"labels": True}),
        _sample("components", numbers.reshape(5, 2, 2, 3).astype("<i4"), _TURNED, channels=3),
        _sample("time", numbers.reshape(3, 5, 2, 2).astype("<f8"), time),
        _sample("scaled", numbers.astype("i1"), {**_TURNED, **slope}),
        _sample("spacing only", numbers.astype("<i8"), {"ElementSize": "1 2 3"}),
        _sample("detached", numbers.astype(">u4"), {**_PLAIN, "HeaderSize": "7"}, data_file="x.raw"),
        _sample("detached, packed", numbers.astype("<i2"), _TURNED, data_file="x.zraw", packed=True),
        _sample("from the end", numbers.astype("<i2"), {**_TURNED, "HeaderSize": "-1"}, data_file="x.raw"),
    ]
    return [*made, *_written(folder)]


def _sample(
    name: str,
    array: Any,
    fields: Any,
    *,
    packed: bool = False,
    channels: int = 1,
    data_file: str = "LOCAL",
    options: Any = None,
) -> Sample:
    """A file with ``array`` (slowest axis first)."""
    sizes = list(reversed(array.shape))[int(channels > 1) :]
    voxels = zlib.compress(array.tobytes()) if packed else array.tobytes()
    kind = next(kind for kind, code in _TYPES.items() if code == array.dtype.str[1:])
    all_fields = {
        "ObjectType": "Image",
        "NDims": len(sizes),
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": str(array.dtype.str[0] == ">"),
        "CompressedData": str(packed),
        **({"CompressedDataSize": len(voxels)} if packed else {}),
        **fields,
        "Comment": "made by a test",
        "DimSize": " ".join(map(str, sizes)),
        **({"ElementNumberOfChannels": channels} if channels > 1 else {}),
        "ElementType": f"MET_{kind}",
        "ElementDataFile": data_file,
    }
    header = "".join(f"{key} = {value}\n" for key, value in all_fields.items()).encode()
    if data_file == "LOCAL":
        return Sample(name, {"x.mha": header + voxels}, "x.mha", options or {})
    voxels = bytes(7) + voxels if "HeaderSize" in fields else voxels
    return Sample(name, {"x.mhd": header, data_file: voxels}, "x.mhd", options or {})


def _written(folder: Path) -> list[Sample]:
    import SimpleITK as sitk

    folder.mkdir(parents=True, exist_ok=True)
    image = sitk.GetImageFromArray(np.arange(60, dtype=np.float32).reshape(5, 4, 3))
    image.SetSpacing((0.5, 1.25, 3.0))
    image.SetDirection((0.6, -0.8, 0.0, 0.8, 0.6, 0.0, 0.0, 0.0, 1.0))
    sitk.WriteImage(image, str(folder / "sitk.mha"), useCompression=True)
    affine = torch.tensor([[0.0, -1.9, 0.3, 12], [1.2, 0.1, 0, -30], [0.1, 0, 2.9, 7.5], [0, 0, 0, 1]])
    save_volume(folder / "own.mha", Volume(torch.arange(120.0).reshape(2, 3, 4, 5), VoxelGrid((3, 4, 5), affine)))
    return [Sample(name, {name: content}, name) for name, content in read_files(folder).items()]


def _split(content: bytes) -> tuple[Lines, bytes]:
    end = re.search(rb"ElementDataFile.*\n", content)
    return (content[: end.end()].splitlines(keepends=True), content[end.end() :]) if end else ([], content)


def _packed_content(files: Files, rng: Any) -> str:
    """Damage to what the voxels unpack to, packed again; or to the packed bytes themselves."""
    name = str(sorted(files)[-1]) if files else ""
    start = files[name].find(b"\x78\x9c") if name else -1
    if start < 0:
        return ""
    head, packed = files[name][:start], files[name][start:]
    try:
        content, what = damage_bytes(zlib.decompress(packed), b"other", rng)
    except zlib.error:
        return ""
    kind = int(rng.integers(4))
    if kind == 3:
        packed, what = damage_bytes(packed, packed, rng)
        files[name] = head + packed
        return f"{what} of the zlib stream of {name}"
    packers = (zlib.compress, lambda c: gzip.compress(c, mtime=0), lambda c: zlib.compress(c + bytes(200 << 20)))
    files[name] = head + packers[kind](content)
    return f"{what} of what {name} unpacks to, packed by way {kind}"


_VALUES = ("True", "False", "MET_FLOAT", "MET_UCHAR", "MET_SHORT_ARRAY", "LOCAL", "LIST", "x.mhd", "RAS", "LPI", "cm")
DAMAGES = (
    *text_damages(_split, (".mha", ".mhd"), (*_VALUES, "x%03d.raw 1 3 1", "ElementSpacing = 9 9 9", "Scene")),
    *(_packed_content, _packed_content),
    *GZIP_DAMAGES[-1:],
)


def expected(folder: Path, sample: Sample) -> Expected:
    """By the documentation of the format."""
    path = folder / sample.target
    content = path.read_bytes()
    fields, start = _header(content)
    rank = int(_numbers(fields, "NDims", 1)[0])
    if rank not in (3, 4) or fields.get("ObjectType", "Image").lower() != "image":
        raise Unreadable(f"{rank} axes")
    sizes = [int(_whole(word)) for word in fields["DimSize"].split()]
    channels = int(_whole(fields.get("ElementNumberOfChannels", "1")))
    times = sizes[3] if rank == 4 and len(sizes) == 4 else 1
    if len(sizes) != rank or min(sizes) < 1 or channels < 1 or min(channels, times) > 1:
        raise Unreadable(f"sizes are {sizes}, components {channels}")
    axes = [channels, *sizes[:3], times]
    values = _voxels(folder, fields, content, start, axes)
    values = values.transpose(0, 4, 1, 2, 3).reshape(-1, *sizes[:3])
    slope, inter = (
        float(_numbers(fields, f"ElementToIntensityFunction{n}", 1, d)[0]) for n, d in (("Slope", 1), ("Offset", 0))
    )
    if (slope, inter) != (1, 0):
        values = values.astype(np.float64) * slope + inter
    return Expected(_affine(fields, rank), values.shape, values)


def _header(content: bytes) -> tuple[dict[str, str], int]:
    fields: dict[str, str] = {}
    at = 0
    while (end := content.find(b"\n", at)) >= 0:
        line = content[at:end].removesuffix(b"\r").decode("utf-8", "replace")
        at = end + 1
        name, _, value = (part.strip() for part in re.split("([=:])", f"{line}=", maxsplit=1))
        if name not in _FIELDS:
            if name.split()[:1] and name.split()[0] in _FIELDS:
                raise Unreadable(f"no field: {line[:40]!r}")
            continue
        if "=" not in line and ":" not in line:
            raise Unreadable(f"{name} has no value")
        value = value.removesuffix("=").strip()
        if name in fields:
            raise Unreadable(f"{name} is there twice")
        fields[name] = value
        if name == "ElementDataFile":
            if not {"NDims", "DimSize", "ElementType"} <= fields.keys():
                raise Unreadable("the header lacks fields")
            return fields, at
    raise Unreadable("the header does not end")


def _whole(text: str) -> str:
    if not re.fullmatch(r"[-+]?\d+", text.strip()):
        raise Unreadable(f"no integer: {text[:40]!r}")
    return text


def _numbers(fields: dict[str, str], name: str, count: int, default: Any = None) -> Any:
    words = str(fields.get(name, default)).split()
    if len(words) != count or not all(_NUMBER.fullmatch(word) for word in words):
        raise Unreadable(f"{name} must be {count} numbers: {words}")
    values = np.array([float(word) for word in words])
    if not np.isfinite(values).all():
        raise Unreadable(f"{name} is {values}")
    return values


def _one_of(fields: dict[str, str], names: tuple[str, ...]) -> str | None:
    found = [name for name in names if name in fields]
    if len({" ".join(fields[name].split()).lower() for name in found}) > 1:
        raise Unreadable(f"{found} differ")
    return found[0] if found else None


def _affine(fields: dict[str, str], rank: int) -> Any:
    spacing = _numbers(fields, "ElementSpacing" if "ElementSpacing" in fields else "ElementSize", rank)[:3]
    matrix, origin = _one_of(fields, _MATRIX), _one_of(fields, _ORIGIN)
    unit = fields.get("DistanceUnits", "mm")
    if unit not in _MM:
        raise Unreadable(f"unit is {unit[:40]!r}")
    rows = _numbers(fields, matrix, rank * rank).reshape(rank, rank) if matrix else np.eye(3)
    if rank == 4 and matrix and (rows[3, :3].any() or rows[:3, 3].any()):
        raise Unreadable("time is not apart from space")
    affine = np.eye(4)
    affine[:3, :3] = (rows[:3, :3] * spacing[:, None]).T
    affine[:3, 3] = _numbers(fields, origin, rank)[:3] if origin else 0
    affine[:3] *= _MM[unit]
    if matrix or origin:
        affine[:2] *= -1
    if not spacing.all() or not np.isfinite(affine).all() or np.linalg.det(affine[:3, :3]) == 0:
        raise Unreadable(f"affine is {affine.tolist()}")
    return affine


def _boolean(fields: dict[str, str], names: tuple[str, ...], default: str) -> bool:
    name = _one_of(fields, names)
    text = (fields[name] if name else default).lower()
    if text not in ("true", "t", "1", "false", "f", "0"):
        raise Unreadable(f"{name} is {text[:40]!r}")
    return text in ("true", "t", "1")


def _voxels(folder: Path, fields: dict[str, str], content: bytes, start: int, axes: list[int]) -> Any:
    code = _TYPES.get(fields["ElementType"].removeprefix("MET_").removesuffix("_ARRAY"))
    if code is None or not fields["ElementType"].startswith("MET_") or not _boolean(fields, ("BinaryData",), "True"):
        raise Unreadable(f"type is {fields['ElementType'][:40]!r}, or text")
    order = ">" if _boolean(fields, ("BinaryDataByteOrderMSB", "ElementByteOrderMSB"), "False") else "<"
    name, skip = fields["ElementDataFile"], int(_whole(fields.get("HeaderSize", "0")))
    local = name.lower() == "local"
    if not local and (not name or ".." in name or name.startswith("/") or not (folder / name).is_file()):
        raise Unreadable(f"file is {name[:40]!r}")
    data = content[start:] if local else (folder / name).read_bytes()
    packed = _boolean(fields, ("CompressedData",), "False")
    dtype, count = np.dtype(order + code), math.prod(axes)
    if packed and skip >= 0:
        try:
            stream = zlib.decompressobj(wbits=47)
            data, skip = stream.decompress(data[skip:]), 0
        except zlib.error as error:
            raise Unreadable(f"zlib: {error}") from error
        if not stream.eof:
            raise Unreadable("the zlib stream does not end")
    skip = len(data) - count * dtype.itemsize if skip == -1 and not packed else skip
    if skip < 0 or skip + count * dtype.itemsize > len(data):
        raise Unreadable(f"needs {count} numbers of {dtype} after {skip}, has {len(data)} bytes")
    return np.frombuffer(data, dtype, count, skip).reshape(axes, order="F")
