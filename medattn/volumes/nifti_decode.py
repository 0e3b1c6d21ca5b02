"""From the bytes of a NIfTI file to its header fields, its stored numbers and their scaling; no interpretation yet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.errors import VolumeError
from medattn.volumes.nifti_geometry import Header
from medattn.volumes.stored import Scaling, check_size

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

_HEADER_BYTES = (348, 540)  # NIfTI-1, NIfTI-2; each file starts with this number, which also tells its byte order
_SINGLE_FILE_MAGIC = b"n+"
_MAX_DIMENSIONS = 7


class Decoded(NamedTuple):
    """Header fields as stored, stored numbers (C, I, J, K) in the file's type, and their scaling."""

    header: Header
    raw: NDArray[Any]
    scaling: Scaling


def decode(content: bytes, max_bytes: int) -> Decoded:
    """Take a single-file NIfTI-1 or NIfTI-2, of either byte order, apart.

    Raises:
        VolumeError: if ``content`` is no NIfTI file, or is truncated, or has a shape or data type that is no volume.
    """
    header = _header(content)
    shape = _shape(header)
    dtype = _dtype(header)
    start, count = _data_offset(header), math.prod(shape)
    check_size(shape, dtype.itemsize, max_bytes)
    if len(content) < start + count * dtype.itemsize:
        raise VolumeError(
            f"the file is truncated: shape {shape} of {dtype.name} needs {start + count * dtype.itemsize} bytes, "
            f"got {len(content)}"
        )
    stored = np.frombuffer(content, dtype, count, start).reshape(shape, order="F")
    return Decoded(header, np.moveaxis(stored, 3, 0), _scaling(header))


def _header(content: bytes) -> Nifti1Header:
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    classes = dict(zip(_HEADER_BYTES, (Nifti1Header, Nifti2Header), strict=True))
    sizes = {"<": int.from_bytes(content[:4], "little"), ">": int.from_bytes(content[:4], "big")}
    found = [(endianness, size) for endianness, size in sizes.items() if size in classes]
    if not found or len(content) < found[0][1]:
        raise VolumeError(f"not a NIfTI file: {len(content)} bytes that do not start with a NIfTI header")
    endianness, size = found[0]
    header = classes[size](content[:size], endianness=endianness, check=False)
    magic = header["magic"].item()
    if not magic.startswith(_SINGLE_FILE_MAGIC):
        raise VolumeError(f"not a single-file NIfTI: its magic must start with {_SINGLE_FILE_MAGIC!r}, got {magic!r}")
    return header


def _shape(header: Nifti1Header) -> tuple[int, int, int, int]:
    """Shape (I, J, K, C); C = 1 for a 3-D file, and trailing axes of length 1 are dropped."""
    dimensions = int(header["dim"][0])
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise VolumeError(f"dim[0], the number of axes, must be 1 to {_MAX_DIMENSIONS}, got {dimensions}")
    shape = tuple(int(n) for n in header["dim"][1 : dimensions + 1])
    if min(shape) < 1:
        raise VolumeError(f"dim must be positive on every axis, got shape {shape}")
    if len(shape) < 3 or any(n > 1 for n in shape[4:]):
        raise VolumeError(f"a volume must have 3 axes, or 4 with channels or time, got shape {shape}")
    return shape[0], shape[1], shape[2], shape[3] if len(shape) > 3 else 1


def _dtype(header: Nifti1Header) -> np.dtype[Any]:
    code = int(header["datatype"])
    try:
        dtype: np.dtype[Any] = header.get_data_dtype()
    except KeyError:
        raise VolumeError(f"datatype must be a NIfTI type of integers or floats, got unknown code {code}") from None
    if dtype.kind not in "iuf":
        raise VolumeError(f"datatype must be a NIfTI type of integers or floats, got code {code} ({dtype})")
    return dtype


def _data_offset(header: Nifti1Header) -> int:
    offset = float(header["vox_offset"])
    if not (math.isfinite(offset) and offset >= header.single_vox_offset):
        raise VolumeError(f"vox_offset must be at least {header.single_vox_offset}, got {offset}")
    return int(offset)


def _scaling(header: Nifti1Header) -> Scaling:
    slope, inter = float(header["scl_slope"]), float(header["scl_inter"])
    if slope == 0 or not math.isfinite(slope):  # the format's way to say: not scaled
        return Scaling(1.0, 0.0)
    if not math.isfinite(inter):
        raise VolumeError(f"scl_inter must be finite where scl_slope is set, got {inter} with slope {slope}")
    return Scaling(slope, inter)
