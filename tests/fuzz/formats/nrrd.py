"""NRRD: samples, damage to the lines of the header, and an independent reading as the oracle.

Source: "Definition of NRRD File Format" (teem.sourceforge.net/nrrd/format.html).
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
from tests.fuzz.case import Expected, NoOpinion, Sample, Unreadable, read_files
from tests.fuzz.gzip_damage import GZIP_DAMAGES
from tests.fuzz.text_damage import Lines, text_damages

_DIRECTIONS = "(0,-1.5,0) (0.8,0,0.1) (0,0.2,3)"
_FIELDS = (
    *("dimension", "type", "block size", "blocksize", "encoding", "endian", "content", "min", "max", "old min"),
    *("old max", "oldmin", "oldmax", "data file", "datafile", "line skip", "lineskip", "byte skip", "byteskip"),
    *("number", "sample units", "sampleunits", "sizes", "spacings", "thicknesses", "axis mins", "axismins"),
    *("axis maxs", "axismaxs", "centerings", "centers", "labels", "units", "kinds", "space", "space dimension"),
    *("space units", "space origin", "space directions", "measurement frame"),
)
_TYPES = {
    "i1": "signed char|int8|int8_t", "u1": "uchar|unsigned char|uint8|uint8_t",
    "i2": "short|short int|signed short|signed short int|int16|int16_t",
    "u2": "ushort|unsigned short|unsigned short int|uint16|uint16_t",
    "i4": "int|signed int|int32|int32_t", "u4": "uint|unsigned int|uint32|uint32_t",
    "i8": "longlong|long long|long long int|signed long long|signed long long int|int64|int64_t",
    "u8": "ulonglong|unsigned long long|unsigned long long int|uint64|uint64_t", "f4": "float", "f8": "double",
}  # fmt: skip
_SIGNS = {
    "right-anterior-superior": (1, 1, 1), "ras": (1, 1, 1), "left-anterior-superior": (-1, 1, 1), "las": (-1, 1, 1),
    "left-posterior-superior": (-1, -1, 1), "lps": (-1, -1, 1), "scanner-xyz": (1, 1, 1), "3d-right-handed": (1, 1, 1),
    "3d-left-handed": (-1, 1, 1),
}  # fmt: skip
_MM = {"mm": 1.0, "cm": 10.0, "m": 1000.0, "um": 0.001, "": 1.0}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?nan|[-+]?inf", re.IGNORECASE)


def samples(folder: Path) -> list[Sample]:
    """Every encoding, frame, type and place of the voxels, and files of SimpleITK and of this package."""
    numbers = np.arange(60).reshape(5, 4, 3)
    lps = {"space": "left-posterior-superior", "space directions": _DIRECTIONS, "space origin": "(10,-20,30.5)"}
    ras = {"space": "RAS", "space directions": "(1,0,0) (0,-2,0) (0,0,3)", "space origin": "(1,2,3)"}
    vector = {**lps, "space directions": f"none {_DIRECTIONS}", "kinds": "vector domain domain domain"}
    time = {**lps, "space directions": f"{_DIRECTIONS} none", "kinds": "domain domain domain time"}
    four = {"space": "RAST", "space directions": "(1,0,0,0) (0,2,0,0) (0,0,3,0) (0,0,0,1)", "space origin": "(1,2,3,0)"}
    only = {"spacings": "0.5 1.25 3", "units": '"mm" "mm" "mm"', "labels": '"x" "y z" "z"'}
    units = {**ras, "space units": '"cm" "cm" "cm"', "centerings": "cell cell cell"}
    made = [
        _sample("raw", numbers.astype("<i2"), lps),
        _sample("gzip", numbers.astype("<i2"), lps, "gzip"),
        _sample("big endian", numbers.astype(">f4"), ras),
        _sample("doubles", numbers.astype("<f8"), ras, "gzip"),
        _sample("labels", (numbers % 7).astype("u1"), lps, "gzip", {"labels": True}),
        _sample("vectors first", np.arange(48).reshape(4, 3, 2, 2).astype("<u2"), vector),
        _sample("time last", np.arange(48).reshape(2, 4, 3, 2).astype("<i4"), time, "gzip"),
        _sample("space-time", np.arange(48).reshape(2, 4, 3, 2).astype("<u4"), four),
        _sample("spacings", numbers.astype("i1"), only),
        _sample("units", numbers.astype("<i8"), units),
        _sample("no frame", numbers.astype("<i2"), {"space dimension": "3", **dict(list(ras.items())[1:])}),
        _sample("detached raw", numbers.astype(">i2"), {**lps, "data file": "x.raw"}),
        _sample("detached gzip", numbers.astype("<i2"), {**ras, "data file": "x.raw.gz"}, "gzip"),
        _sample("skipped", numbers.astype("<i2"), {**ras, "byte skip": "-1", "data file": "x.raw"}),
        _sample("lines skipped", numbers.astype("<i2"), {**ras, "line skip": "2", "byte skip": "3"}),
    ]
    return [*made, *_written(folder)]


def _sample(name: str, array: Any, fields: Any, encoding: str = "raw", options: Any = None) -> Sample:
    """A file with ``array`` (slowest axis first)."""
    kind = _TYPES[array.dtype.str[1:]].split("|")[-1 if name == "raw" else 0]
    endian = {"endian": "big" if array.dtype.str[0] == ">" else "little"} if array.dtype.itemsize > 1 else {}
    sizes = " ".join(map(str, reversed(array.shape)))
    all_fields = {"type": kind, "dimension": array.ndim, "sizes": sizes, **endian, "encoding": encoding, **fields}
    header = "NRRD0005\n# made by a test\n" + "".join(f"{key}: {value}\n" for key, value in all_fields.items())
    header += "key:=value\n\n"
    skipped = b"first\nsecond\nabc" if "line skip" in fields else bytes(9) if "byte skip" in fields else b""
    voxels = skipped + (gzip.compress(array.tobytes(), mtime=0) if encoding == "gzip" else array.tobytes())
    if "data file" in fields:
        return Sample(name, {"x.nhdr": header.encode(), fields["data file"]: voxels}, "x.nhdr", options or {})
    return Sample(name, {"x.nrrd": header.encode() + voxels}, "x.nrrd", options or {})


def _written(folder: Path) -> list[Sample]:
    import SimpleITK as sitk

    folder.mkdir(parents=True, exist_ok=True)
    image = sitk.GetImageFromArray(np.arange(60, dtype=np.float32).reshape(5, 4, 3))
    image.SetSpacing((0.5, 1.25, 3.0))
    image.SetDirection((0.6, -0.8, 0.0, 0.8, 0.6, 0.0, 0.0, 0.0, 1.0))
    sitk.WriteImage(image, str(folder / "sitk.nrrd"), useCompression=True)
    affine = torch.tensor([[0.0, -1.9, 0.3, 12], [1.2, 0.1, 0, -30], [0.1, 0, 2.9, 7.5], [0, 0, 0, 1]])
    save_volume(folder / "own.nrrd", Volume(torch.arange(120.0).reshape(2, 3, 4, 5), VoxelGrid((3, 4, 5), affine)))
    return [Sample(name, {name: content}, name) for name, content in read_files(folder).items()]


def _split(content: bytes) -> tuple[Lines, bytes]:
    header, end, rest = content.partition(b"\n\n")
    return (header + b"\n").splitlines(keepends=True), end[1:] + rest


_VALUES = ("RAS", "LPS", "right-anterior-superior", "raw", "gzip", "hex", "ascii", "bzip2", "big", "float", "block")
DAMAGES = (
    *text_damages(_split, (".nrrd", ".nhdr"), (*_VALUES, "none", "x.nhdr", "LIST", "x%03d.raw 1 3 1", "vector", "cm")),
    *GZIP_DAMAGES[1:],
)


def expected(folder: Path, sample: Sample) -> Expected:
    """By the text of the specification."""
    path = folder / sample.target
    content = path.read_bytes()
    fields, start = _header(content, detached=path.suffix == ".nhdr")
    rank = _whole(fields, "dimension")
    axes = [int(word) for word in _words(fields["sizes"], rank, r"\d+")]
    if not 1 <= rank <= 16 or min(axes) < 1:
        raise Unreadable(f"sizes are {axes}")
    affine, spatial = _geometry(fields, axes)
    others = [axis for axis in range(rank) if axis not in spatial]
    if sum(axes[axis] > 1 for axis in others) > 1 or "complex" in fields.get("kinds", "").lower().split():
        raise Unreadable("channels of several axes")
    values = _voxels(folder, fields, content, start, axes)
    values = values.transpose(*others, *spatial).reshape(-1, *(axes[axis] for axis in spatial))
    return Expected(affine, values.shape, values)


def _header(content: bytes, *, detached: bool) -> tuple[dict[str, str], int]:
    end = re.search(rb"\n\r?\n", content)
    if end is None and not detached:
        raise Unreadable("the header does not end")
    header = content[: end.end()] if end else content
    first, *lines = header.decode("utf-8", "replace").split("\n")
    if not re.fullmatch(r"NRRD000[1-5]|NRRD00\.01", first.rstrip()):
        raise Unreadable(f"starts with {first[:20]!r}")
    fields: dict[str, str] = {}
    for line in filter(str.strip, lines):
        if line.startswith("#") or re.match(r"[^:]+:=", line):
            continue
        name, colon, value = line.partition(": ")
        name = " ".join(name.lower().split())
        if not colon or name not in _FIELDS:
            raise Unreadable(f"no field of NRRD: {line[:50]!r}")
        if name in fields:
            raise Unreadable(f"{name} is there twice")
        fields[name] = value.strip()
    missing = {"dimension", "type", "sizes", "encoding"} - fields.keys()
    if missing:
        raise Unreadable(f"lacks {missing}")
    return fields, len(header)


def _words(text: str, count: int, pattern: Any = _NUMBER) -> list[str]:
    words = text.split()
    if len(words) != count or not all(re.fullmatch(pattern, word) for word in words):
        raise Unreadable(f"must be {count} numbers: {text[:80]!r}")
    return words


def _whole(fields: dict[str, str], name: str) -> int:
    return int(_words(fields.get(name, "0"), 1, r"-?\d+")[0])


def _vector(text: str, count: int) -> list[float]:
    if not (text.startswith("(") and text.endswith(")")):
        raise Unreadable(f"no vector: {text[:80]!r}")
    values = [float(word) for word in _words(text[1:-1].replace(",", " "), count)]
    if not np.isfinite(values).all():
        raise Unreadable(f"not finite: {text[:80]!r}")
    return values


def _geometry(fields: dict[str, str], axes: list[int]) -> tuple[Any, list[int]]:
    if "space directions" not in fields:
        return _spacings(fields, axes)
    space = fields.get("space", "").lower()
    space = {"rast": "ras-time", "last": "las-time", "lpst": "lps-time"}.get(space, space)
    base, rank = space.removesuffix("-time"), 4 if space.endswith("-time") else 3
    if ("space" in fields) == ("space dimension" in fields) or (
        base not in _SIGNS and fields.get("space dimension") != "3"
    ):
        raise Unreadable(f"space is {space!r}")
    parts = re.findall(r"\([^()]*\)|[^\s()]+", fields["space directions"])
    if len(parts) != len(axes):
        raise Unreadable("space directions are not as many as axes")
    vectors = [None if part.lower() == "none" else _vector(part, rank) for part in parts]
    spatial = [n for n, vector in enumerate(vectors) if vector is not None and not (rank == 4 and vector[3] != 0)]
    if len(spatial) != 3 or any(v is not None and rank == 4 and v[3] != 0 and any(v[:3]) for v in vectors):
        raise Unreadable(f"{len(spatial)} directions")
    affine = np.eye(4)
    affine[:3, :3] = np.array([(vectors[n] or [])[:3] for n in spatial]).T
    if "space origin" in fields:
        affine[:3, 3] = _vector(fields["space origin"], rank)[:3]
    affine[:3] *= (np.array(_SIGNS.get(base, (1, 1, 1))) * _units(fields, "space units", rank)[:3])[:, None]
    return _checked(affine), spatial


def _spacings(fields: dict[str, str], axes: list[int]) -> tuple[Any, list[int]]:
    spacings = np.array([float(word) for word in _words(fields.get("spacings", ""), len(axes))])
    if len(axes) != 3 or "kinds" in fields:
        raise NoOpinion("which axes are in space is open")
    if not (np.isfinite(spacings).all() and (spacings > 0).all()):
        raise Unreadable(f"spacings are {spacings}")
    return _checked(np.diag([*(spacings * _units(fields, "units", 3)), 1.0])), [0, 1, 2]


def _units(fields: dict[str, str], name: str, count: int) -> Any:
    if name not in fields:
        return np.ones(count)
    units = re.findall(r'"([^"]*)"', fields[name]) or fields[name].split()
    if len(units) != count:
        raise Unreadable(f"{name} are {units}")
    if any(unit.strip() not in _MM for unit in units):
        raise NoOpinion(f"{name} are {units}")
    return np.array([_MM[unit.strip()] for unit in units])


def _checked(affine: Any) -> Any:
    if not np.isfinite(affine).all() or not np.linalg.norm(affine[:3, :3], axis=0).all():
        raise Unreadable(f"affine is {affine.tolist()}")
    return affine


def _voxels(folder: Path, fields: dict[str, str], content: bytes, start: int, axes: list[int]) -> Any:
    name, encoding = fields.get("data file", fields.get("datafile")), fields["encoding"].lower()
    if encoding not in ("raw", "gzip", "gz"):
        raise Unreadable(f"encoding is {encoding[:20]!r}")
    code = next(
        (code for code, names in _TYPES.items() if " ".join(fields["type"].lower().split()) in names.split("|")), ""
    )
    endian = {"big": ">", "little": "<", "": "" if code[1:] == "1" else "?"}.get(fields.get("endian", "").lower(), "?")
    if not code or endian == "?":
        raise Unreadable(f"type is {fields['type'][:20]!r} and endian {fields.get('endian')!r}")
    data = content[start:]
    if name is not None:
        if ".." in name or name.startswith("/") or not (folder / name).is_file():
            raise Unreadable(f"data file is {name[:80]!r}")
        data = (folder / name).read_bytes()
    for _ in range(_whole(fields, "line skip") if "line skip" in fields else _whole(fields, "lineskip")):
        data = data[data.index(b"\n") + 1 :]
    if encoding != "raw":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise Unreadable(f"gzip: {error}") from error
    skip = _whole(fields, "byte skip") if "byte skip" in fields else _whole(fields, "byteskip")
    count, dtype = math.prod(axes), np.dtype(endian + code)
    skip = len(data) - count * dtype.itemsize if skip == -1 and encoding == "raw" else skip
    if skip < 0 or skip + count * dtype.itemsize > len(data):
        raise Unreadable(f"needs {count} numbers of {dtype} after {skip}, has {len(data)} bytes")
    return np.frombuffer(data, dtype, count, skip).reshape(axes, order="F")
