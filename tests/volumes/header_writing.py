"""Small NRRD and MetaImage files written field by field, so that headers can be as odd as they are in practice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

COUNTING = np.arange(24, dtype="<i2").reshape(2, 3, 4)
"""int16 (I, J, K) of 0 to 23."""

NRRD = {
    "type": "short",
    "dimension": "3",
    "space": "left-posterior-superior",
    "sizes": "2 3 4",
    "space directions": "(1,0,0) (0,2,0) (0,0,3)",
    "endian": "little",
    "encoding": "raw",
    "space origin": "(10,20,30)",
}
METAIMAGE = {
    "ObjectType": "Image",
    "NDims": "3",
    "BinaryData": "True",
    "BinaryDataByteOrderMSB": "False",
    "CompressedData": "False",
    "TransformMatrix": "1 0 0 0 1 0 0 0 1",
    "Offset": "10 20 30",
    "ElementSpacing": "1 2 3",
    "DimSize": "2 3 4",
    "ElementType": "MET_SHORT",
}
LPS_TO_RAS = [[-1, 0, 0, -10], [0, -2, 0, -20], [0, 0, 3, 30], [0, 0, 0, 1]]
"""The affine of both."""


def raw(array: Any = COUNTING) -> bytes:
    """The voxels in the order of both formats: the first axis is the fastest."""
    return np.asarray(array).tobytes(order="F")


def write_nrrd(
    path: Path,
    changes: dict[str, str | None] | None = None,
    *,
    voxels: bytes | None = None,
    magic: str = "NRRD0005",
    newline: str = "\n",
    extra: str = "",
) -> Path:
    """A header of ``NRRD`` with ``changes`` (None takes a field away) and ``extra`` lines, then ``voxels``."""
    fields = {name: value for name, value in (NRRD | (changes or {})).items() if value is not None}
    lines = [magic, *(f"{name}: {value}" for name, value in fields.items()), *extra.splitlines(), "", ""]
    path.write_bytes(newline.join(lines).encode() + (raw() if voxels is None else voxels))
    return path


def write_metaimage(
    path: Path,
    changes: dict[str, str | None] | None = None,
    *,
    voxels: bytes | None = None,
    data_file: str = "LOCAL",
    newline: str = "\n",
) -> Path:
    """A header of ``METAIMAGE`` with ``changes`` (None takes a field away), then ``voxels``."""
    fields = {name: value for name, value in (METAIMAGE | (changes or {})).items() if value is not None}
    lines = [*(f"{name} = {value}" for name, value in fields.items()), f"ElementDataFile = {data_file}", ""]
    path.write_bytes(newline.join(lines).encode() + (raw() if voxels is None else voxels))
    return path


def itk_affine(image: Any) -> Any:
    """The RAS affine (4, 4) of a SimpleITK image of 3 axes."""
    affine = np.eye(4)
    affine[:3, :3] = np.array(image.GetDirection()).reshape(3, 3) * image.GetSpacing()
    affine[:3, 3] = image.GetOrigin()
    affine[:2] *= -1
    return affine


def itk_values(image: Any) -> Any:
    """The voxels (C, I, J, K) of a SimpleITK image of 3 axes."""
    import SimpleITK as sitk

    array = sitk.GetArrayFromImage(image)
    return array.transpose(3, 2, 1, 0) if array.ndim == 4 else array.transpose(2, 1, 0)[None]
