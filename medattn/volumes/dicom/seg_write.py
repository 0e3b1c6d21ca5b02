"""Writing label maps as DICOM segmentations."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from medattn.files import replacing
from medattn.volumes.dicom.seg_encode import frame_labels, mark_empty, unmark
from medattn.volumes.dicom.seg_header import (
    correct_references,
    fresh_uid,
    plane_position,
    segment_description,
    source_images,
)
from medattn.volumes.dicom.seg_segments import Segment, segments_read
from medattn.volumes.errors import VolumeError, library_errors
from medattn.volumes.volume import Volume, check_is_volume

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

SegmentationType = Literal["labelmap", "binary"]

_RIGHT_ANGLE = 1e-4
_MAX_PIXEL_BYTES = 2**32 - 2


def save_dicom_seg(
    path: str | os.PathLike[str],
    volume: Volume,
    *,
    segment_names: Mapping[int, str] | None = None,
    source: Volume | None = None,
    segmentation_type: SegmentationType = "binary",
) -> None:
    """Write a label map as a DICOM segmentation, replacing ``path`` only when all is written.

    Each label becomes the segment of that number. Nothing about a patient is written: the fields that DICOM wants are
    empty. Study and frame of reference are the source's, so that viewers show both together; series and instance are
    new each time. The frames span the whole grid, empty slices too, so that it can be read back.

    No voxel moves in the world, but the array that is read back can be permuted and flipped: labels are written in the
    axis order of the source, slice for slice, and without one, DICOM stacks frames along the normal that rows and
    columns define, so that a left-handed grid (as NIfTI's LAS) is flipped along k.

    Args:
        volume: integers 0 (background) to 65535 in one channel. Axes i and j must be at right angles; k may be
            sheared (gantry tilt).
        segment_names: name of each label, at most 64 characters; a label without one is called by its number. By
            default the names and codes that ``volume`` was read with.
        source: the DICOM image that was segmented, to be referred to as far as it has UIDs; by default what
            ``volume.metadata`` says.
        segmentation_type: "binary" has one frame per segment and slice where it is, and is what all viewers read. The
            standard numbers its segments from 1 without gaps: numbers below the largest label that are no label become
            empty segments, and the time to write grows with the largest. "labelmap" has one frame per slice, for any
            labels. It has been in the standard since 2024; highdicom 0.24, dcmqi 1.5 (in 3D Slicer 5.12) and OHIF 3.11
            read it, what is older does not.

    Raises:
        VolumeError: (a ValueError) naming the file, if DICOM cannot hold the data or the grid, or ``source`` is no
            DICOM image.
        FileNotFoundError: if the folder does not exist.
        TypeError: if ``volume`` is no Volume.
        ImportError: if pydicom or highdicom is not there.
    """
    check_is_volume(volume)
    path = Path(path)
    if path.suffix.lower() not in ("", ".dcm"):
        raise VolumeError(f"{path}: a DICOM file's name must end in .dcm or have no suffix, got {path.name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder to write {path.name} to does not exist: {path.parent}")
    try:
        dataset = _segmentation(volume, segment_names, source, segmentation_type)
    except VolumeError as error:
        raise VolumeError(f"{path}: {error}") from error
    with replacing(path) as temporary:
        dataset.save_as(temporary, enforce_file_format=True)


def write(path: Path, volume: Volume) -> None:
    """Write a label map as ``save_dicom_seg`` does.

    Raises:
        VolumeError: if DICOM cannot hold the data or the grid.
    """
    _segmentation(volume, None, None, "binary").save_as(path, enforce_file_format=True)


def _segmentation(
    volume: Volume, names: Mapping[int, str] | None, source: Volume | None, segmentation_type: SegmentationType
) -> Dataset:
    new_segmentation = _highdicom_segmentation()
    if segmentation_type not in ("labelmap", "binary"):
        raise VolumeError(f"segmentation_type must be 'labelmap' or 'binary', got {segmentation_type!r}")
    if source is not None and "sop_class_uid" not in source.metadata:
        raise VolumeError(f"source must be a DICOM image, whose UIDs can be referred to, got {source.name!r}")
    segments = segments_read(volume.metadata) if names is None else {n: Segment(name) for n, name in names.items()}
    source = source or volume
    volume = _as_frames_lie(volume, source)
    binary = segmentation_type == "binary"
    labels, present = frame_labels(volume, binary=binary)
    present = present or [1]  # highdicom wants one segment at least
    marked = mark_empty(labels, present[0]) if binary else []
    numbers = range(1, max(present) + 1) if binary else present
    positions = [plane_position(volume.grid, k) for k in range(len(labels))]
    images = source_images(volume.grid, source)
    descriptions = [segment_description(n, segments.get(n)) for n in numbers]
    with library_errors("making a segmentation with highdicom"):
        dataset = new_segmentation(
            images,
            labels,
            segmentation_type.upper(),
            descriptions,
            plane_positions=positions,
            omit_empty_frames=binary,
            **_labelling(),
        )
    correct_references(dataset, source.metadata)
    for segment in dataset.SegmentSequence:  # which highdicom does not allow
        segment.SegmentAlgorithmType, segment.SegmentAlgorithmName = "AUTOMATIC", "unknown"
    unmark(dataset, {tuple(positions[k][0].ImagePositionPatient) for k in marked})
    _check_pixels(len(dataset.PixelData))
    return dataset


def _highdicom_segmentation() -> Any:
    try:
        import pydicom  # noqa: F401
        from highdicom import seg
    except ImportError as error:
        raise ImportError("writing DICOM needs pydicom and highdicom: pip install 'medattn[dicom]'") from error
    return seg.Segmentation


def _check_pixels(size: int) -> None:
    if size > _MAX_PIXEL_BYTES:
        raise VolumeError(f"uncompressed DICOM holds at most {_MAX_PIXEL_BYTES} bytes of pixels, got {size}")


def _labelling() -> dict[str, Any]:
    return {
        "series_instance_uid": fresh_uid(),
        "series_number": 1,
        "sop_instance_uid": fresh_uid(),
        "instance_number": 1,
        "manufacturer": "medattn",
        "manufacturer_model_name": "medattn",
        "software_versions": importlib.metadata.version("medattn"),
        "device_serial_number": "0",
        "content_label": "SEGMENTATION",
        "series_description": "Segmentation",
        "specific_character_set": "ISO_IR 192",
    }


def _as_frames_lie(volume: Volume, source: Volume) -> Volume:
    """``volume`` with axes in the source's order if that is a DICOM image, and flipped along k if left-handed."""
    if not volume.orientation_known:
        raise VolumeError("the orientation is unknown, and DICOM has no way to say so")
    if "sop_class_uid" in source.metadata:
        volume = volume.reoriented(source.source_grid.axcodes)
    direction = volume.grid.direction
    cosine = float(direction[:, 0] @ direction[:, 1])
    if abs(cosine) > _RIGHT_ANGLE:
        raise VolumeError(
            f"axes i and j must be at right angles in DICOM (to {_RIGHT_ANGLE}), got a cosine of {cosine:.4g}; "
            "Volume.resampled puts labels on another grid"
        )
    return volume.flip(2) if torch.linalg.det(direction) < 0 else volume
