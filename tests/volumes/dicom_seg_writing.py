"""Writes small DICOM segmentations field by field, so that they can be as odd as they are in practice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydicom import dcmread

from medattn.volumes import Volume, load_volume
from tests.volumes.dicom_writing import item, write_enhanced

BINARY_CLASS, LABELMAP_CLASS = "1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7"
NAMES = {1: "liver", 2: "tumour"}
LEFT, RIGHT = [[1, 0, 0], [1, 0, 0]], [[0, 0, 1], [0, 0, 1]]

Frames = Sequence[tuple[int, Any, Any]]


def write_seg(
    path: Path,
    frames: Frames,
    *,
    kind: str = "BINARY",
    names: Mapping[int, str] = NAMES,
    measures: Mapping[str, Any] | None = None,
    spacing: Any = (0.5, 0.7),
    **options: Any,
) -> Path:
    """A segmentation of frames (segment number, position or z, pixels); ``measures`` add to the pixel measures."""
    pixels = np.stack([np.asarray(p) for _, _, p in frames])
    pixels = pixels.astype(np.uint16 if pixels.max() > 255 else np.uint8)
    if kind == "BINARY" and "syntax" not in options:
        packed = np.packbits(pixels, bitorder="little").tobytes()
        bits = {"PixelData": packed + bytes(len(packed) % 2), "BitsAllocated": 1, "BitsStored": 1}
        options = {**bits, **options}
    described = [item(SegmentNumber=number, SegmentLabel=name) for number, name in names.items()]
    identified = [{"SegmentIdentificationSequence": item(ReferencedSegmentNumber=number)} for number, _, _ in frames]
    measured = item(PixelSpacing=list(spacing), **{"SpacingBetweenSlices": 3, **(measures or {})})
    attributes = {
        "SOPClassUID": LABELMAP_CLASS if kind == "LABELMAP" else BINARY_CLASS,
        "Modality": "SEG",
        "SegmentationType": kind,
        "SegmentSequence": described,
        "MaximumFractionalValue": 200 if kind == "FRACTIONAL" else None,
        "per_frame": None if kind == "LABELMAP" else identified,
        "shared": {"PixelMeasuresSequence": measured},
        **options,
    }
    sop_class = attributes.pop("SOPClassUID")  # set afterwards: GDCM, which compresses, refuses to read it
    write_enhanced(path, [position for _, position, _ in frames], pixels=pixels, spacing=spacing, **attributes)
    dataset = dcmread(path)
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = sop_class
    dataset.save_as(path, enforce_file_format=True)
    return path


def load(path: Path, **options: Any) -> Volume:
    return load_volume(path, labels=True, **options)


def frames_at(*positions: Any) -> Frames:
    return [(1, position, LEFT) for position in positions]
