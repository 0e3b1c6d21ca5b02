"""A fixture that writes small NIfTI files field by field, so that headers can be as odd as they are in practice."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WriteNifti = Callable[..., Path]


def nifti_bytes(
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
) -> bytes:
    """A file with the given forms and (sform, qform) codes; ``fields`` and ``pixdim`` then override what was set."""
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
    header["vox_offset"] = header.single_vox_offset
    header["magic"] = header.single_magic
    for name, value in (fields or {}).items():
        header[name] = value
    for index, value in (pixdim or {}).items():
        header["pixdim"][index] = value
    return header.binaryblock + b"\0" * 4 + voxels


@pytest.fixture
def write_nifti(tmp_path: Path) -> WriteNifti:
    """``write_nifti(array, name="x.nii", **options of nifti_bytes)`` -> path."""

    def write(array: Any, name: str = "x.nii", **options: Any) -> Path:
        path, content = tmp_path / name, nifti_bytes(array, **options)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.fixture
def counting() -> Any:
    """int16 array (2, 3, 4) of 0 to 23."""
    return np.arange(24, dtype=np.int16).reshape(2, 3, 4)
