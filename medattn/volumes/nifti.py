"""Reading and writing NIfTI files, .nii and .nii.gz; the only place that imports nibabel, and only when called."""

from __future__ import annotations

import gzip
import os
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from medattn.files import replacing
from medattn.geometry import VoxelGrid
from medattn.volumes.nifti_decode import decode
from medattn.volumes.nifti_geometry import FORM_TOLERANCE_MM, grid_from_header, qform_affine, sform_affine
from medattn.volumes.nifti_values import image_values, label_values
from medattn.volumes.volume import Volume, VolumeWarning

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

SUFFIXES = (".nii", ".nii.gz")

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_LEVEL = 4
_MAX_LENGTH = 32767
_LABEL_TYPES = (np.uint8, np.int16, np.int32, np.int64)


def load_volume(path: str | os.PathLike[str], *, labels: bool = False) -> Volume:
    """Read an image, or a label map, from a NIfTI-1 or NIfTI-2 file.

    Args:
        labels: read integers: data is int64 and has one channel. Labels stored as real numbers are rounded if they
            are within 0.1 of an integer.

    Returns:
        Volume with float32 (or int64) ``data`` (C, I, J, K); a fourth axis of the file becomes the channels. Scale
        factors are applied. ``grid`` is in RAS+ mm; what had to be assumed is in ``notes``.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file, if it is not a whole NIfTI file of 3 or 4 dimensions holding real numbers, if its
            geometry is unusable (see ``grid_from_header``), or if labels are not integers >= 0 in one channel.

    Warns:
        VolumeWarning: if the orientation is unknown, sform and qform differ, or voxels are NaN or infinite.
    """
    path = Path(path)
    try:
        header, raw, scaling = decode(_content(path))
        grid, notes = grid_from_header(header, (raw.shape[1], raw.shape[2], raw.shape[3]))
        values, more = label_values(raw, scaling) if labels else image_values(raw, scaling)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    notes += more
    for note in notes:
        if note.is_warning:
            warnings.warn(f"{path}: {note.message}", VolumeWarning, stacklevel=2)
    return Volume(torch.from_numpy(values), grid, tuple(notes), str(path))


def _content(path: Path) -> bytes:
    """The bytes of the NIfTI file, unpacked if they are gzipped."""
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    if not path.is_file():
        raise ValueError("must be a file, but is a folder or a device")
    _check_suffix(path)
    content = path.read_bytes()
    if not content.startswith(_GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)  # checks length and CRC
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"the gzip stream is truncated or damaged ({error})") from error


def _check_suffix(path: Path) -> None:
    if not path.name.lower().endswith(SUFFIXES):
        raise ValueError(f"a NIfTI file's name must end in {' or '.join(SUFFIXES)}, got {path.name!r}")


def save_volume(path: str | os.PathLike[str], volume: Volume) -> None:
    """Write ``volume`` to a NIfTI-1 file, replacing ``path`` only when all is written.

    Floating-point data is written as float32, integers as the smallest of uint8, int16, int32 and int64 that holds
    them, neither with a scale factor; several channels become the fourth axis. sform and qform are equal, with code 1;
    a sheared grid has an sform only, and a volume of unknown orientation neither (spacing only, as it was read).

    Raises:
        ValueError: if ``path`` does not end in .nii or .nii.gz, or the data is complex or too large for NIfTI-1.
        FileNotFoundError: if the folder does not exist.
    """
    from nibabel.nifti1 import Nifti1Image

    path = Path(path)
    _check_suffix(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder to write {path.name} to does not exist: {path.parent}")
    if max(volume.data.shape) > _MAX_LENGTH:
        raise ValueError(f"a NIfTI-1 file holds at most {_MAX_LENGTH} per axis, got shape {tuple(volume.data.shape)}")
    array = _storable(volume.data)
    image = Nifti1Image(array, None, dtype=array.dtype)
    _write_geometry(image.header, volume.grid, known=volume.orientation_known)
    content = image.to_bytes()
    if path.name.lower().endswith(".gz"):
        content = gzip.compress(content, _GZIP_LEVEL, mtime=0)  # mtime=0: equal volumes give equal files
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _storable(data: Tensor) -> NDArray[Any]:
    """``data`` (C, I, J, K) as an array (I, J, K) or (I, J, K, C) of a type to store."""
    if data.is_complex():
        raise ValueError(f"data must be real to be saved, got {data.dtype}")
    if data.is_floating_point():
        array = data.detach().cpu().to(torch.float32).numpy()
    else:
        array = data.cpu().numpy()
        low, high = int(array.min()), int(array.max())
        fitting = [t for t in _LABEL_TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max]
        if not fitting:
            raise ValueError(f"integers must fit 64 bits with a sign to be saved, got {high}")
        array = array.astype(fitting[0])
    return array[0] if len(array) == 1 else np.moveaxis(array, 0, -1)


def _write_geometry(header: Nifti1Header, grid: VoxelGrid, *, known: bool) -> None:
    header.set_xyzt_units("mm")
    affine = grid.affine.numpy()
    header.set_qform(affine, code=0, strip_shears=True)  # also pixdim
    header.set_sform(affine, code=int(known))
    exact = VoxelGrid(grid.shape, sform_affine(header))  # as rounded to float32
    if known and exact.is_close(VoxelGrid(grid.shape, qform_affine(header)), atol_mm=FORM_TOLERANCE_MM):
        header["qform_code"] = 1
