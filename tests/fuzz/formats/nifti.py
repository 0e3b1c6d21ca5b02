"""NIfTI: samples, damage to header fields and to gzip streams, and nibabel's reading of the geometry as the oracle."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from nibabel.nifti1 import Nifti1Header
from nibabel.nifti2 import Nifti2Header
from nibabel.quaternions import quat2mat
from numpy.random import Generator

from tests.fuzz.case import Damage, Expected, Files, Sample, Unreadable
from tests.fuzz.damage import FLOATS, INTEGERS, pick
from tests.fuzz.gzip_damage import GZIP_DAMAGES, is_gzip
from tests.volumes.conftest import nifti_parts

OBLIQUE = np.array([[0.0, -1.9, 0.3, 12.0], [1.2, 0.1, 0.0, -30.0], [0.1, 0.0, 2.9, 7.5], [0.0, 0.0, 0.0, 1.0]])
ROTATED = np.array([[0.6, -1.6, 0.0, 12.0], [0.8, 1.2, 0.0, -30.0], [0.0, 0.0, -3.0, 7.5], [0.0, 0.0, 0.0, 1.0]])
_RGB = np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")])
_CLASSES = {348: Nifti1Header, 540: Nifti2Header}
_UNITS = {0: 1.0, 1: 1000.0, 2: 1.0, 3: 0.001}


def samples(folder: Path) -> list[Sample]:
    """Every version, byte order and kind of file, with forms, types and axes taken in turn."""
    numbers = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    both = {"sform": ROTATED, "qform": ROTATED, "codes": (1, 1)}
    contents: list[tuple[str, Any, dict[str, Any]]] = [
        ("both forms", numbers, both),
        ("sheared", numbers.astype(np.float32), {"sform": OBLIQUE, "codes": (2, 0)}),
        ("qform, scaled", numbers, {"qform": ROTATED, "codes": (0, 1), "fields": {"scl_slope": 2.0, "scl_inter": -9}}),
        ("labels", (numbers % 5).astype(np.uint8), {**both, "units": 1}),
        ("time", np.arange(48, dtype=np.float64).reshape(2, 3, 4, 2), both),
        ("vectors", np.arange(72, dtype=np.int32).reshape(2, 3, 4, 1, 3), {**both, "units": 3}),
        ("colours", np.arange(72, dtype=np.uint8).view(_RGB).reshape(2, 3, 4), {"qform": ROTATED, "codes": (0, 1)}),
        ("no form", numbers.astype(np.uint64), {"pixdim": {1: 2.0, 2: 0.5, 3: 3.0}, "units": 0}),
        ("extensions", numbers.astype(np.int8), {**both, "extensions": struct.pack("<ii8x", 16, 6) * 2}),
    ]
    kinds = list(product((1, 2), "<>", ("nii", "nii.gz", "hdr", "img.gz")))
    made = []
    for number, (content, array, options) in enumerate(contents * 4):
        version, endianness, kind = kinds[number % len(kinds)]
        if "extensions" in options:
            options = {**options, "extensions": struct.pack(f"{endianness}ii8x", 16, 6) * 2}
        pair, packed = not kind.startswith("nii"), kind.endswith(".gz")
        parts = nifti_parts(array, version=version, endianness=endianness, pair=pair, **options)
        files = dict(zip(("x.hdr", "x.img"), parts, strict=True)) if pair else {"x.nii": b"".join(parts)}
        if packed:
            files = {f"{name}.gz": gzip.compress(bytes_, mtime=0) for name, bytes_ in files.items()}
        name = f"{number}: {content}, NIfTI-{version} {endianness} {kind}"
        made.append(Sample(name, files, f"x.{kind}", {"labels": True} if content == "labels" else {}))
    return made


def _field(files: Files, rng: Generator) -> str:
    """Another value in a header field."""
    name = _header_name(files)
    content = gzip.decompress(files[name]) if is_gzip(files[name]) else files[name]
    header = _header(content)
    fields = header.template_dtype.names
    geometry = [
        f for f in fields if f.startswith(("dim", "pix", "qu", "qo", "qf", "sr", "sf", "sc", "vox", "da", "xy"))
    ]
    field = str(pick(geometry if rng.random() < 0.8 else fields, rng))
    old = header[field]
    at = tuple(int(rng.integers(n)) for n in old.shape)
    header[field][at] = value = _value(old[at], field, rng)
    changed = header.binaryblock + content[len(header.binaryblock) :]
    files[name] = gzip.compress(changed, mtime=0) if is_gzip(files[name]) else changed
    return f"{field}{list(at) if at else ''} = {value}"


def _value(old: Any, field: str, rng: Generator) -> Any:
    if old.dtype.kind == "f":
        choices = (*FLOATS, -float(old), float(old) * 1.0005, float(old) + 0.01, float(old) * 1000)
        with np.errstate(over="ignore"):
            return np.asarray(pick(choices, rng)).astype(old.dtype)
    if old.dtype.kind in "iu":
        known = (2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2304) if field == "datatype" else ()
        value = int(pick((*INTEGERS, int(old) + 1, int(old) - 1, *known), rng))
        return np.array(value % (1 << 64), np.uint64).astype(old.dtype)
    return pick((b"", b"n+1\0", b"ni1\0", b"n+2\0", b"\xff\xff\xff"), rng)


def _header_name(files: Files) -> str:
    return next((name for name in files if ".hdr" in name or ".nii" in name), "")


def _header(content: bytes) -> Any:
    sizes = {"<": int.from_bytes(content[:4], "little"), ">": int.from_bytes(content[:4], "big")}
    endianness, size = next(((e, s) for e, s in sizes.items() if s in _CLASSES), ("", 0))
    if size == 0 or len(content) < size:
        raise Unreadable("there is no NIfTI header")
    return _CLASSES[size](content[:size], endianness=endianness, check=False)


def _safely(damage: Damage) -> Damage:
    """Nothing, where earlier damage leaves no header to change."""

    def attempt(files: Files, rng: Generator) -> str:
        try:
            return damage(files, rng)
        except (Unreadable, OSError, EOFError, zlib.error, KeyError, ValueError):
            return ""

    return attempt


def _swap_halves(files: Files, rng: Generator) -> str:
    """A second voxel file beside the first, packed the other way; or the halves in each other's place."""
    names = sorted(files)
    if len(names) != 2:
        return ""
    if rng.random() < 0.5:
        files[names[0]], files[names[1]] = files[names[1]], files[names[0]]
        return "halves swapped"
    name, content = names[1], files[names[1]]
    if name.endswith(".gz"):
        files[name.removesuffix(".gz")] = rng.bytes(len(content))
    else:
        files[f"{name}.gz"] = gzip.compress(rng.bytes(len(content)), mtime=0)
    return "another .img beside the right one"


DAMAGES = (*(_safely(_field),) * 8, *GZIP_DAMAGES, _swap_halves)


def expected(folder: Path, sample: Sample) -> Expected:
    """By nibabel's own header and affine code, units applied; numbers by plain arithmetic."""
    stem, suffix = sample.target.split(".", 1)
    if suffix.startswith("nii"):
        content = voxels = _content(folder / sample.target)
        header, pair = _header(content), False
    else:
        half, _, packing = suffix.partition(".")
        packing = f".{packing}" if packing else ""
        names = [packing, "" if packing else ".gz"]
        other = "img" if half == "hdr" else "hdr"
        partner = next((f"{stem}.{other}{end}" for end in names if (folder / f"{stem}.{other}{end}").is_file()), None)
        if partner is None:
            raise Unreadable("one half is missing")
        content, voxels = _content(folder / sample.target), _content(folder / partner)
        if half == "img":
            content, voxels = voxels, content
        header, pair = _header(content), True
    if header["magic"].item() != (header.pair_magic if pair else header.single_magic):
        raise Unreadable(f"magic is {header['magic']}")
    return _volume(header, voxels)


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if not is_gzip(content):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"gzip: {error}") from error


def _volume(header: Any, voxels: bytes) -> Expected:
    sizes = header["dim"].tolist()
    shape = [*sizes[1 : sizes[0] + 1], 1, 1]
    if not 3 <= sizes[0] <= 7 or min(shape) < 1 or math.prod(shape[5:]) > 1 or min(shape[3:5]) > 1:
        raise Unreadable(f"dim is {sizes}")
    shape, channels = shape[:3], shape[3] * shape[4]
    dtype = header.get_data_dtype()
    names = dtype.names
    offset = float(header["vox_offset"])
    end = offset + math.prod(shape) * channels * dtype.itemsize
    if not offset.is_integer() or offset < 0 or end > len(voxels):
        raise Unreadable(f"voxels from {offset} to {end} do not lie in {len(voxels)} bytes")
    raw = np.frombuffer(voxels[int(offset) : int(end)], dtype).reshape((*shape, channels), order="F")
    if names:
        if channels > 1:
            raise Unreadable("colours with a fourth axis")
        values = np.stack([raw[name][..., 0] for name in names])
    else:
        values = np.moveaxis(_scaled(raw, header), -1, 0)
    return Expected(_affine(header), values.shape, values)


def _scaled(raw: Any, header: Any) -> Any:
    if raw.dtype.kind not in "iuf":
        raise Unreadable(f"numbers are {raw.dtype}")
    slope, inter = float(header["scl_slope"]), float(header["scl_inter"])
    if slope == 0 or not math.isfinite(slope) or (slope, inter) == (1.0, 0.0):
        return raw
    if not math.isfinite(inter):
        raise Unreadable(f"inter is {inter}")
    return raw.astype(np.float64) * slope + inter


def _affine(header: Any) -> Any:
    unit = int(header["xyzt_units"]) & 7
    if unit not in _UNITS:
        raise Unreadable(f"units are {unit}")
    pixdim = header["pixdim"][1:4].astype(float)
    if header["sform_code"] > 0:
        affine = header.get_sform().astype(float)
    elif not (np.isfinite(pixdim).all() and (pixdim > 0).all()):
        raise Unreadable(f"pixdim is {pixdim}")
    elif header["qform_code"] > 0:
        affine = _qform(header)
    else:
        affine = np.diag([*pixdim, 1.0])
    affine[:3] *= _UNITS[unit]
    if not np.isfinite(affine).all() or np.linalg.det(affine[:3, :3]) == 0:
        raise Unreadable(f"affine is {affine.tolist()}")
    return affine


def _qform(header: Any) -> Any:
    vector = [float(header[f"quatern_{name}"]) for name in "bcd"]
    length = math.hypot(*vector)
    if not length <= 1.001:
        raise Unreadable(f"quaternion is {vector}")
    if not (header["pixdim"][0] >= 0 or header["pixdim"][0] == -1):
        raise Unreadable(f"qfac is {header['pixdim'][0]}: readers disagree on what that means")
    if header["pixdim"][0] != -1:
        header["pixdim"][0] = 1
    if length <= 1:
        return header.get_qform().astype(float)
    affine = np.eye(4)
    affine[:3, :3] = quat2mat([0.0, *(v / length for v in vector)]) * header["pixdim"][1:4].astype(float)
    affine[:3, 2] *= -1.0 if header["pixdim"][0] == -1 else 1.0
    affine[:3, 3] = [float(header[f"qoffset_{name}"]) for name in "xyz"]
    return affine
