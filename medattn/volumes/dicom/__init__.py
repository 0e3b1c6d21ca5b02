"""DICOM: a folder, a list of files, a zip archive, or one file, of a classic series, a multi-frame image or labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from medattn.volumes.dicom.files import open_files
from medattn.volumes.dicom.frames import Frame, frames_of
from medattn.volumes.dicom.header import Header
from medattn.volumes.dicom.series import choose_series, series_metadata
from medattn.volumes.dicom.slices import Layer, stack_planes
from medattn.volumes.dicom.voxels import one_format, read_layers
from medattn.volumes.errors import VolumeError
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.stored import Metadata, ReadOptions, Stored, stored_grid


def read(path: Path | Sequence[Path], options: ReadOptions) -> Stored:
    """What the files of one DICOM series store.

    Axes i, j, k are columns, rows, and slices in the order of their positions along the normal (row x column
    direction). Slope and intercept, or the modality lookup table, are applied; padding and MONOCHROME1, which is about
    display, stay as they are. Colours become three channels, red, green and blue.

    Raises:
        VolumeError: if a file is damaged, if there are several series, or one that makes no volume (``stack_planes``).
        ImportError: if pydicom is not there.
    """
    try:
        import pydicom  # noqa: F401
    except ImportError as error:
        raise ImportError("reading DICOM needs pydicom: pip install 'medattn[dicom]'") from error
    with open_files(path, options.max_bytes) as found:
        headers, notes = choose_series(found, options.series)
        stored = _read_segmentation(headers, options) if headers[0].is_segmentation else _read_images(headers, options)
    stored.notes[:0] = notes
    return stored


def _read_segmentation(headers: Sequence[Header], options: ReadOptions) -> Stored:
    from medattn.volumes.dicom.seg import read_segmentation

    if len(headers) > 1:
        names = " and ".join(header.file.name for header in headers[:2])
        raise VolumeError(f"a segmentation must be read by itself, but there are {len(headers)} files: {names}, ...")
    return read_segmentation(headers[0], options)


def _read_images(headers: Sequence[Header], options: ReadOptions) -> Stored:
    form = one_format(headers)
    frames = [frame for header in headers for frame in frames_of(header)]
    _check_frame_of_reference(headers)
    stack = stack_planes([frame.plane for frame in frames], (form.columns, form.rows), regrid=options.regrid)
    grid = stored_grid((form.columns, form.rows, len(stack.layers)), torch.from_numpy(stack.affine))
    values, scaling = read_layers(frames, stack.layers, form, options)
    return Stored(values, grid, scaling, stack.notes + _colours(form.samples), _metadata(frames, stack.layers))


def _check_frame_of_reference(headers: Sequence[Header]) -> None:
    first = headers[0]
    for header in headers:
        if header.frame_of_reference != first.frame_of_reference:
            raise VolumeError(
                f"all slices must have one FrameOfReferenceUID, got {first.frame_of_reference!r} in {first.file.name} "
                f"and {header.frame_of_reference!r} in {header.file.name}"
            )


def _colours(samples: int) -> list[Note]:
    if samples == 1:
        return []
    message = f"the {samples} colours of each voxel became the channels"
    return [Note(NoteKind.CHANNELS, message, {"channels": samples, "axis": "colour"})]


def _metadata(frames: Sequence[Frame], layers: Sequence[Layer]) -> Metadata:
    """Instances are named in the order of slices, unless slices were interpolated: those come from no instance."""
    header = frames[0].header
    metadata: dict[str, str | tuple[str, ...]] = {**series_metadata(header.elements), "sop_class_uid": header.sop_class}
    if all(layer.lower == layer.upper for layer in layers):
        uids = [frames[layer.lower].header.instance for layer in layers]
        metadata["instance_uids"] = tuple(dict.fromkeys(uids))
    return metadata
