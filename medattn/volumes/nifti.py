"""NIfTI files, .nii and pairs of .hdr and .img, packed with gzip or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from medattn.geometry import VoxelGrid
from medattn.volumes.errors import VolumeError
from medattn.volumes.nifti_decode import decode
from medattn.volumes.nifti_geometry import FORM_TOLERANCE_MM, grid_from_header, qform_affine, sform_affine
from medattn.volumes.saving import storable
from medattn.volumes.stored import ReadOptions, Stored
from medattn.volumes.volume import Volume

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

_GZIP_LEVEL = 2  # of isal's 0 to 3: on CT smaller than level 1 and than zlib's 4, in a seventh of zlib's time
_MAX_LENGTH = 32767


def read(path: Path | Sequence[Path], options: ReadOptions) -> Stored:
    """What a NIfTI-1 or NIfTI-2 file stores; time, components or colours become the channels.

    Raises:
        VolumeError: if it is no whole file of that kind (see ``decode``), or its geometry is unusable (see
            ``grid_from_header``).
    """
    assert isinstance(path, Path)
    layout, values, notes = decode(path, options)
    grid, more = grid_from_header(layout.header, (values.shape[1], values.shape[2], values.shape[3]))
    return Stored(values, grid, layout.scaling, notes + more, file_dtype=layout.dtype)


def write(path: Path, volume: Volume) -> None:
    """Write NIfTI-1: sform and qform are equal, with code 1; a sheared grid has an sform only, and a volume of unknown
    orientation neither (spacing only, as it was read). Equal volumes give equal files.

    Raises:
        VolumeError: if the data is complex or too large for NIfTI-1.
    """
    if max(volume.data.shape) > _MAX_LENGTH:
        raise VolumeError(f"a NIfTI-1 file holds at most {_MAX_LENGTH} per axis, got shape {tuple(volume.data.shape)}")
    array = storable(volume.data)
    header = _header(array, volume)
    parts = (header.binaryblock + bytes(4), np.asfortranarray(array).T.data)  # 4 bytes: no extensions
    with path.open("wb") as file:
        if not path.name.lower().endswith(".gz"):
            file.writelines(parts)
            return
        from isal import isal_zlib

        packer = isal_zlib.compressobj(_GZIP_LEVEL, wbits=31)  # its header names no file and no time
        file.writelines([*(packer.compress(part) for part in parts), packer.flush()])


def _header(array: NDArray[Any], volume: Volume) -> Nifti1Header:
    from nibabel.nifti1 import Nifti1Header

    header = Nifti1Header(endianness="<")
    header.set_data_dtype(array.dtype)
    header.set_data_shape(array.shape)
    header["magic"], header["vox_offset"] = header.single_magic, header.single_vox_offset
    header["scl_slope"], header["scl_inter"] = 1.0, 0.0
    _write_geometry(header, volume.grid, known=volume.orientation_known)
    return header


def _write_geometry(header: Nifti1Header, grid: VoxelGrid, *, known: bool) -> None:
    header.set_xyzt_units("mm")
    affine = grid.affine.numpy()
    header.set_qform(affine, code=0, strip_shears=True)  # also pixdim
    header.set_sform(affine, code=int(known))
    exact = VoxelGrid(grid.shape, sform_affine(header))  # as rounded to float32
    if known and exact.is_close(VoxelGrid(grid.shape, qform_affine(header)), atol_mm=FORM_TOLERANCE_MM):
        header["qform_code"] = 1
