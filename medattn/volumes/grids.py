"""Where a volume's voxels are, without reading them: from headers alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from medattn.geometry import VoxelGrid
from medattn.volumes.dicom.files import open_files
from medattn.volumes.dicom.frames import frames_of
from medattn.volumes.dicom.series import choose_series
from medattn.volumes.dicom.slices import stack_planes
from medattn.volumes.dicom.voxels import one_format
from medattn.volumes.errors import VolumeError
from medattn.volumes.find import Source
from medattn.volumes.gzipped import open_bytes
from medattn.volumes.loading import format_of, load_volume
from medattn.volumes.metaimage import geometry as metaimage_geometry
from medattn.volumes.metaimage import header as metaimage_header
from medattn.volumes.nifti import header_and_voxels
from medattn.volumes.nifti.geometry import grid_from_header
from medattn.volumes.nifti.header import read_layout
from medattn.volumes.nrrd import geometry as nrrd_geometry
from medattn.volumes.nrrd import header as nrrd_header
from medattn.volumes.stored import MAX_BYTES, stored_grid


def read_grid(source: Source) -> VoxelGrid:
    """The grid that ``load_volume`` would give the volume; voxels are read of DICOM segmentations only.

    Raises:
        FileNotFoundError: if there is no such file.
        VolumeError: if ``find_volumes`` found a problem, or the header is unusable. That the voxels can be read too is
            not checked.
        ImportError: for DICOM without pydicom.
    """
    if source.problem:
        raise VolumeError(source.problem)
    kind = "dicom" if source.files or source.series else format_of(source.path)
    if kind == "dicom":
        return _dicom_grid(source.files or source.path, source.series or None)
    return _GRIDS[kind](source.path)


def _nifti_grid(path: Path) -> VoxelGrid:
    header, voxels = header_and_voxels(path)
    with open_bytes(header) as stream:
        layout = read_layout(stream, pair=header != voxels)
    return grid_from_header(layout.header, layout.shape)[0]


def _nrrd_grid(path: Path) -> VoxelGrid:
    header = nrrd_header.read_header(path)
    return nrrd_geometry.read_geometry(header, nrrd_header.read_layout(path, header).axes).grid


def _metaimage_grid(path: Path) -> VoxelGrid:
    header = metaimage_header.read_header(path)
    return metaimage_geometry.read_geometry(header, metaimage_header.read_layout(path, header).axes[1:4])[0]


def _dicom_grid(path: Path | Sequence[Path], series: str | None) -> VoxelGrid:
    with open_files(path, MAX_BYTES) as found:
        headers, _ = choose_series(found, series)
        if headers[0].is_segmentation:  # where its slices are is spread over its frames
            return load_volume(path, labels=True, series=series).grid
        form = one_format(headers)
        planes = [frame.plane for header in headers for frame in frames_of(header)]
    stack = stack_planes(planes, (form.columns, form.rows))
    return stored_grid((form.columns, form.rows, len(stack.layers)), torch.from_numpy(stack.affine))


_GRIDS: dict[str, Callable[[Path], VoxelGrid]] = {
    "nifti": _nifti_grid,
    "nrrd": _nrrd_grid,
    "metaimage": _metaimage_grid,
}
