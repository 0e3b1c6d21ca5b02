"""Fixtures that write small NIfTI files field by field, so that headers can be as odd as they are in practice."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WriteNifti = Callable[..., Path]


def nifti_parts(
    array: Any,
    *,
    sform: Any = None,
    qform: Any = None,
    codes: tuple[int, int] = (0, 0),
    units: int = 2,
    version: int = 1,
    endianness: str = "<",
    fields: dict[str, Any] | None = None,
    pixdim: dict[int, float] | None = None,
    extensions: bytes = b"",
    pair: bool = False,
) -> tuple[bytes, bytes]:
    """Header and voxels, with the given forms and (sform, qform) codes; ``fields`` and ``pixdim`` then override."""
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    array = np.asarray(array)
    header = (Nifti1Header if version == 1 else Nifti2Header)(endianness=endianness, check=False)
    header.set_data_dtype(array.dtype)
    header.set_data_shape(array.shape)
    if qform is not None:
        header.set_qform(qform, code=codes[1])
    if sform is not None:
        header.set_sform(sform, code=codes[0])
    header["sform_code"], header["qform_code"] = codes
    voxels = array.astype(header.get_data_dtype()).tobytes(order="F")
    header["xyzt_units"] = units
    header["vox_offset"] = 0 if pair else header.single_vox_offset + len(extensions)
    header["magic"] = header.pair_magic if pair else header.single_magic
    for name, value in (fields or {}).items():
        header[name] = value
    for index, value in (pixdim or {}).items():
        header["pixdim"][index] = value
    return header.binaryblock + bytes([bool(extensions), 0, 0, 0]) + extensions, voxels


def nifti_bytes(array: Any, **options: Any) -> bytes:
    """The content of a single file; ``options`` of ``nifti_parts``."""
    return b"".join(nifti_parts(array, **options))


def _write(folder: Path, array: Any, name: str = "x.nii", **options: Any) -> Path:
    stem, suffix = name.split(".", 1)
    kind, packed = suffix.lower()[:3], suffix.lower().endswith(".gz")
    header, voxels = nifti_parts(array, pair=kind in ("hdr", "img"), **options)
    contents = {kind: header + voxels} if kind == "nii" else {"hdr": header, "img": voxels}
    for part, content in contents.items():
        (folder / f"{stem}.{part}{suffix[3:]}").write_bytes(gzip.compress(content) if packed else content)
    return folder / name


@pytest.fixture
def write_nifti(tmp_path: Path) -> WriteNifti:
    """``write_nifti(array, name="x.nii", **options of nifti_parts)`` -> path; x.hdr and x.img are written together."""
    return partial(_write, tmp_path)


@pytest.fixture(
    params=product((1, 2), "<>", ("x.nii", "x.nii.gz", "x.hdr", "x.img.gz")), ids=lambda p: f"{p[1]}{p[2]}-{p[0]}"
)
def write_each(request: pytest.FixtureRequest, tmp_path: Path) -> WriteNifti:
    """``write_nifti`` for each version, byte order and kind of file in turn."""
    version, endianness, name = request.param
    return partial(_write, tmp_path, name=name, version=version, endianness=endianness)


@pytest.fixture
def counting() -> Any:
    """int16 array (2, 3, 4) of 0 to 23."""
    return np.arange(24, dtype=np.int16).reshape(2, 3, 4)
