"""DICOM segmentations, read as labels: samples, damage, and an independent reading as the oracle.

Source: DICOM PS3.3 C.8.20 (segmentations), PS3.5 8.1.1 (one bit per pixel).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from pydicom import dcmread
from pydicom.pixels import pixel_array

from tests.fuzz.case import Damage, Expected, NoOpinion, Sample, Unreadable, read_files
from tests.fuzz.dicom_damage import GEOMETRY, deep_sequences, element_damages
from tests.fuzz.dicom_oracle import decimals
from tests.fuzz.judge import SECRET
from tests.volumes.dicom_seg_writing import LEFT, RIGHT, write_seg
from tests.volumes.dicom_writing import CORONAL

_KEYWORDS = (
    *("PerFrameFunctionalGroupsSequence", "SharedFunctionalGroupsSequence", "PlanePositionSequence", "SegmentSequence"),
    *("PixelMeasuresSequence", "SegmentIdentificationSequence", "ReferencedSegmentNumber", "SegmentNumber"),
    *("SegmentLabel", "SegmentationType", "MaximumFractionalValue", "NumberOfFrames", "SpacingBetweenSlices"),
)
_FRAMES = [(2, 9, RIGHT), (1, 0, LEFT), (2, 0, RIGHT), (1, 3, LEFT)]


def samples(folder: Path) -> list[Sample]:
    """Every kind of segmentation, with and without slices left out, and byte orders."""
    whole = [(number, z, np.multiply(pixels, 200)) for number, z, pixels in _FRAMES]
    maps = [(0, z, np.array([[0, 1, 2], [2, 0, 1]])) for z in (0, 3, 9)]
    coronal = [(number, (0, y, 0), pixels) for number, y, pixels in _FRAMES]
    large = [(1, z, np.eye(32, dtype=int)) for z in (0, 3)]
    variants: dict[str, Any] = {
        "binary": ([*_FRAMES[:3], (1, 3, [[1, 0, 0], [0, 0, 0]])], {}),
        "coronal": (coronal, {"orientation": CORONAL, "FrameOfReferenceUID": "1.2.9"}),
        "fractional": (whole, {"kind": "FRACTIONAL"}),
        "fractional, big endian": (whole, {"kind": "FRACTIONAL", "syntax": "big endian"}),
        "label map": (maps, {"kind": "LABELMAP"}),
        "label map, deflated": (maps, {"kind": "LABELMAP", "syntax": "deflated"}),
        "label map, RLE": ([(0, z, pixels) for _, z, pixels in large], {"kind": "LABELMAP", "syntax": "RLE"}),
        "one frame": (_FRAMES[:1], {"measures": {"SpacingBetweenSlices": None, "SliceThickness": 2}}),
        "no step": (_FRAMES, {"measures": {"SpacingBetweenSlices": None}}),
        "bytes": (_FRAMES, {"syntax": "implicit"}),
    }
    made = []
    for name, (frames, options) in variants.items():
        path = write_seg(folder / f"{name}.dcm", frames, **{"PatientName": SECRET, **options})
        made.append(Sample(name, {"x.dcm": path.read_bytes()}, "x.dcm", {"labels": True}))
    return made


DAMAGES: tuple[Damage, ...] = (*element_damages(GEOMETRY), *element_damages(_KEYWORDS), deep_sequences)


def expected(folder: Path, sample: Sample) -> Expected:
    """By pydicom's values and plain geometry."""
    content = read_files(folder)["x.dcm"]
    data = dcmread(io.BytesIO(content), force=True)
    frames = list(data.get("PerFrameFunctionalGroupsSequence") or [])
    if not frames and sample.name.endswith("deflated"):
        raise NoOpinion("pydicom does not inflate what is behind damaged meta information")
    shared = (data.get("SharedFunctionalGroupsSequence") or [None])[0]
    if not frames or len(frames) != int(data.get("NumberOfFrames") or 1):
        raise Unreadable("not as many frames as groups")

    def numbers(frame: Any, sequence: str, keyword: str, count: int) -> Any:
        group = next((s[sequence][0] for s in (frame, shared) if s is not None and s.get(sequence)), None)
        return None if group is None else decimals(group, keyword, count)

    positions = np.array([numbers(f, "PlanePositionSequence", "ImagePositionPatient", 3) for f in frames], float)
    axes = np.array([numbers(f, "PlaneOrientationSequence", "ImageOrientationPatient", 6) for f in frames], float)
    spacings = np.array([numbers(f, "PixelMeasuresSequence", "PixelSpacing", 2) for f in frames], float)
    between = numbers(frames[0], "PixelMeasuresSequence", "SpacingBetweenSlices", 1)
    thickness = numbers(frames[0], "PixelMeasuresSequence", "SliceThickness", 1)
    if np.abs(axes - axes[0]).max() > 1.1e-4 or not np.allclose(spacings, spacings[0], rtol=1.1e-5, atol=0):
        raise Unreadable("frames differ")
    affine, slices = _places(positions, axes[0].reshape(2, 3), spacings[0], between, thickness)
    segments = _numbers(data, frames, shared)
    pixels = _pixels(data, sample, len(frames))
    if pixels is None:
        return Expected(affine, (1, int(data.Columns), int(data.Rows), int(slices.max()) + 1), None)
    return _filled(affine, slices, segments, pixels)


def _places(positions: Any, axes: Any, spacing: Any, between: Any, thickness: Any) -> tuple[Any, Any]:
    """Affine, and the slice of each frame."""
    if np.isnan(positions).any() or np.abs(axes @ axes.T - np.eye(2)).max() > 1.1e-3 or min(spacing) <= 0:
        raise Unreadable("no plane")
    normal = np.cross(*axes)
    depths = positions @ normal - (positions @ normal).min()
    gaps = np.diff(np.unique(depths.round(5)))
    gaps = gaps[gaps > 1e-3]
    step = abs(between[0]) if between else 0.0
    if gaps.size == 0:
        step = step or (thickness or [0.0])[0]
    elif not step or not _multiples(gaps, step):
        step = gaps.min()
    if not step > 0 or not _multiples(gaps, step, 0.11):
        raise Unreadable(f"slices at {depths}, step {step}")
    slices = np.rint(depths / step).astype(int)
    line = np.polynomial.polynomial.polyfit(slices, positions, 1) if gaps.size else [positions.mean(0), normal * step]
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1], affine[:3, 2] = axes[0] * spacing[1], axes[1] * spacing[0], line[1]
    affine[:3, 3] = line[0]
    affine[:2] *= -1
    return affine, slices


def _multiples(gaps: Any, step: float, most: float = 0.1) -> bool:
    whole = np.rint(gaps / step)
    return bool((np.abs(gaps / step - whole) <= np.minimum(0.02 * whole, most) + 1e-6).all() and (whole >= 1).all())


def _numbers(data: Any, frames: Any, shared: Any) -> list[int]:
    if data.SegmentationType == "LABELMAP":
        return [0] * len(frames)
    key = "SegmentIdentificationSequence"
    groups = [next(s[key][0] for s in (f, shared) if s is not None and s.get(key)) for f in frames]
    described = {int(item.SegmentNumber) for item in data.SegmentSequence}
    found = [int(group.ReferencedSegmentNumber) for group in groups]
    if not set(found) <= described or min(found) < 1:
        raise Unreadable(f"segments {found}, described {described}")
    return found


def _pixels(data: Any, sample: Sample, count: int) -> Any:
    """Pixels (frames, rows, columns), and None if they were compressed, and are not the sample's."""
    shape = (count, int(data.Rows), int(data.Columns))
    syntax = data.file_meta.TransferSyntaxUID
    is_damaged = dcmread(io.BytesIO(sample.files["x.dcm"])).PixelData != data.PixelData
    if syntax.is_compressed and not syntax.is_deflated and is_damaged:
        return None
    if data.BitsAllocated == 1:
        bits = np.unpackbits(np.frombuffer(data.PixelData, np.uint8), bitorder="little")
        return bits[: shape[0] * shape[1] * shape[2]].reshape(shape)
    data.PhotometricInterpretation = "MONOCHROME2"
    return pixel_array(data).reshape(shape) & ((1 << int(data.BitsStored)) - 1)


def _filled(affine: Any, slices: Any, segments: list[int], pixels: Any) -> Expected:
    labels = np.zeros((int(slices.max()) + 1, *pixels.shape[1:]), np.int64)
    for k, segment, plane in zip(slices, segments, pixels, strict=True):
        if segment == 0:
            labels[k] = plane
        elif (labels[k][plane > 0] > 0).any():
            raise Unreadable("segments overlap")
        else:
            labels[k][plane > 0] = segment
    values = labels.transpose(2, 1, 0)[None]
    return Expected(affine, values.shape, values)
