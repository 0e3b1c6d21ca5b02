"""NIfTI files, .nii and .nii.gz: the bytes of a file to what it stores, and a volume to the bytes of a file."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from medattn.geometry import VoxelGrid
from medattn.volumes.errors import VolumeError
from medattn.volumes.gzipped import MAGIC, gunzip
from medattn.volumes.nifti_decode import decode
from medattn.volumes.nifti_geometry import FORM_TOLERANCE_MM, grid_from_header, qform_affine, sform_affine
from medattn.volumes.saving import storable
from medattn.volumes.stored import ReadOptions, Stored
from medattn.volumes.volume import Volume

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

_GZIP_LEVEL = 4
_MAX_LENGTH = 32767


def read(path: Path | Sequence[Path], options: ReadOptions) -> Stored:
    """What a NIfTI-1 or NIfTI-2 file of 3 or 4 dimensions stores; a fourth axis becomes the channels.

    Raises:
        VolumeError: if it is no whole file of that kind, or its geometry is unusable (see ``grid_from_header``).
    """
    assert isinstance(path, Path)
    content = path.read_bytes()
    if content.startswith(MAGIC):
        content = gunzip(content, options.max_bytes)
    header, raw, scaling = decode(content, options.max_bytes)
    grid, notes = grid_from_header(header, (raw.shape[1], raw.shape[2], raw.shape[3]))
    return Stored(raw, grid, scaling, notes)


def write(path: Path, volume: Volume) -> None:
    """Write NIfTI-1: sform and qform are equal, with code 1; a sheared grid has an sform only, and a volume of unknown
    orientation neither (spacing only, as it was read).

    Raises:
        VolumeError: if the data is complex or too large for NIfTI-1.
    """
    from nibabel.nifti1 import Nifti1Image

    if max(volume.data.shape) > _MAX_LENGTH:
        raise VolumeError(f"a NIfTI-1 file holds at most {_MAX_LENGTH} per axis, got shape {tuple(volume.data.shape)}")
    array = storable(volume.data)
    image = Nifti1Image(array, None, dtype=array.dtype)
    _write_geometry(image.header, volume.grid, known=volume.orientation_known)
    content = image.to_bytes()
    if path.name.lower().endswith(".gz"):
        content = gzip.compress(content, _GZIP_LEVEL, mtime=0)  # mtime=0: equal volumes give equal files
    path.write_bytes(content)


def _write_geometry(header: Nifti1Header, grid: VoxelGrid, *, known: bool) -> None:
    header.set_xyzt_units("mm")
    affine = grid.affine.numpy()
    header.set_qform(affine, code=0, strip_shears=True)  # also pixdim
    header.set_sform(affine, code=int(known))
    exact = VoxelGrid(grid.shape, sform_affine(header))  # as rounded to float32
    if known and exact.is_close(VoxelGrid(grid.shape, qform_affine(header)), atol_mm=FORM_TOLERANCE_MM):
        header["qform_code"] = 1
