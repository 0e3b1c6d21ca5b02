"""NIfTI files, .nii and pairs of .hdr and .img, packed with gzip or not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from medattn.geometry import VoxelGrid
from medattn.volumes.errors import VolumeError
from medattn.volumes.gzipped import open_bytes
from medattn.volumes.nifti.geometry import FORM_TOLERANCE_MM, grid_from_header, qform_affine, sform_affine
from medattn.volumes.nifti.header import read_layout
from medattn.volumes.saving import storable
from medattn.volumes.stored import ReadOptions, Stored
from medattn.volumes.volume import Volume
from medattn.volumes.voxel_stream import Packing, check_end, new_packer, read_voxels

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

_HALVES = {".hdr": ".img", ".img": ".hdr"}
_MAX_LENGTH = 32767


def read(path: Path | Sequence[Path], options: ReadOptions) -> Stored:
    """What a NIfTI-1 or NIfTI-2 file stores, or a pair of which ``path`` is one half; time, components or colours
    become the channels.

    Raises:
        VolumeError: if it is no whole file of that kind (see ``read_layout``), or its geometry is unusable (see
            ``grid_from_header``).
    """
    assert isinstance(path, Path)
    header_path, voxel_path = header_and_voxels(path)
    with ExitStack() as files:
        stream = files.enter_context(open_bytes(header_path))
        layout = read_layout(stream, pair=header_path != voxel_path)
        grid, notes = grid_from_header(layout.header, layout.shape)
        if header_path != voxel_path:
            stream = files.enter_context(open_bytes(voxel_path))
            stream.read(layout.offset)
        scaled = not layout.scaling.is_identity
        values = read_voxels(stream, layout.axes, layout.spatial, layout.dtype, options, scaled=scaled)
        notes = [*layout.notes, *check_end(stream), *notes]
    return Stored(values, grid, layout.scaling, notes, file_dtype=layout.dtype)


def header_and_voxels(path: Path) -> tuple[Path, Path]:
    """The file of the header and the file of the voxels, which is the same for .nii; one of a pair finds the other."""
    packing = path.suffix if path.suffix.lower() == ".gz" else ""
    unpacked = path.with_name(path.name.removesuffix(packing))
    other = _HALVES.get(unpacked.suffix.lower())
    if other is None:
        return path, path
    base = unpacked.with_suffix(other.upper() if unpacked.suffix.isupper() else other)
    partners = [base, base.with_name(f"{base.name}{packing or '.gz'}")]
    partner = next((p for p in (reversed(partners) if packing else partners) if p.is_file()), None)
    if partner is None:
        names = " or ".join(p.name for p in partners)
        raise VolumeError(f"the other half of a .hdr and .img pair must lie beside it, but there is no {names}")
    return (partner, path) if other == ".hdr" else (path, partner)


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
        packer = new_packer(Packing.GZIP)
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
