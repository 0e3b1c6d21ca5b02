"""An independent reading of DICOM images: pydicom's values and plain geometry, without tolerance for odd files.

Source: DICOM PS3.3 C.7.6.2 (planes), C.7.6.16 (functional groups), C.11.1 (rescale), PS3.5 6.2 (numbers as text).
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from pydicom import dcmread
from pydicom.dataelem import RawDataElement
from pydicom.pixels import apply_modality_lut, pixel_array
from pydicom.uid import ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

from tests.fuzz.case import Expected, NoOpinion, Sample, Unreadable

_DECIMAL = re.compile(r" *[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)? *\0?")
_GROUPS = (
    *("PlanePositionSequence", "PlaneOrientationSequence", "PixelMeasuresSequence"),
    "PixelValueTransformationSequence",
)
_NATIVE = {
    (True, True): ImplicitVRLittleEndian,
    (False, True): ExplicitVRLittleEndian,
    (False, False): ExplicitVRBigEndian,
}  # by implicit, little
_STEP_TOLERANCE, _SAME = 0.021, 1.1e-4  # just beyond what the reader says that it allows


class Slice(NamedTuple):
    """A frame in LPS mm, with its pixels (rows, columns) or (rows, columns, 3); not ``known``: only their shape is."""

    position: Any
    axes: Any
    spacing: Any
    thickness: float | None
    between: float | None
    pixels: Any
    known: bool
    frame_of_reference: str


def images(files: Mapping[str, bytes], sample: Sample) -> Expected:
    """What the files of one series hold.

    Raises:
        Unreadable: if they are several series, or no regular stack.
        NoOpinion: if it takes more than plain reading.
    """
    slices: dict[str, list[Any]] = {}
    for name, content in files.items():
        data = dcmread(io.BytesIO(content), force=True)
        if "LOCALIZER" in str(data.get("ImageType", "")):
            raise NoOpinion("a localizer")
        has_pixels = any(f"{kind}PixelData" in data for kind in ("", "Float", "DoubleFloat"))
        if not has_pixels and b"1.2.840.10008.1.2.1.99" in content:
            raise NoOpinion("a deflated file that pydicom does not inflate")
        if has_pixels and "ImagePositionPatient" not in data and "PerFrameFunctionalGroupsSequence" not in data:
            slices.setdefault(str(data.get("SeriesInstanceUID", "")), []).append(None)
        elif has_pixels:
            slices.setdefault(str(data.get("SeriesInstanceUID", "")), []).extend(
                _slices(data, sample.files.get(name, b""))
            )
    if len(slices) > 1:  # one without any place in space is left out
        slices = {series: placed for series, placed in slices.items() if any(placed)}
    if len(slices) != 1:
        raise Unreadable(f"{len(slices)} series")
    found = next(iter(slices.values()))
    if None in found:
        raise Unreadable("a slice has no place")
    return _stack(found, regrid=bool(sample.options.get("regrid")))


def decimals(data: Any, keyword: str, count: int) -> list[float] | None:
    """Numbers of an element; None if it is absent or empty."""
    if keyword not in data:
        return None
    element = data.get_item(keyword)
    if isinstance(element, RawDataElement) and element.VR in ("DS", "IS"):
        words = (element.value or b"").decode("latin1").split("\\")
        if words == [""] or not "".join(words).strip(" \0"):
            return None
        if not all(_DECIMAL.fullmatch(word) for word in words):
            raise Unreadable(f"{keyword} is {words}")
        values = [float(word.strip(" \0")) for word in words]
    else:
        value = data[keyword].value
        if value is None or value == "":
            return None
        values = [float(v) for v in (value if isinstance(value, list) or hasattr(value, "__iter__") else [value])]
    if len(values) != count or not np.isfinite(values).all():
        raise Unreadable(f"{keyword} is {values}")
    return values


def _slices(data: Any, undamaged: bytes) -> list[Slice]:
    frames = data.get("PerFrameFunctionalGroupsSequence") or []
    pixels, known = _pixels(data, undamaged)
    if not frames:
        if int(data.get("NumberOfFrames") or 1) != 1:
            raise Unreadable("frames without positions")
        return [_slice(data, [data] * 4, pixels, known)]
    if len(frames) != int(data.get("NumberOfFrames") or 1):
        raise Unreadable("not as many frames as groups")
    shared = (data.get("SharedFunctionalGroupsSequence") or [None])[0]
    made = []
    for number, own in enumerate(frames):
        found = [
            next((source[key][0] for source in (own, shared) if source is not None and source.get(key)), None)
            for key in _GROUPS
        ]
        made.append(_slice(data, found, pixels[number] if len(frames) > 1 else pixels, known))
    return made


def _slice(data: Any, groups: Any, pixels: Any, known: bool) -> Slice:
    position, orientation, measures, values = groups
    if position is None or orientation is None or measures is None:
        raise Unreadable("a plane is missing")
    numbers = (
        decimals(position, "ImagePositionPatient", 3),
        decimals(orientation, "ImageOrientationPatient", 6),
        decimals(measures, "PixelSpacing", 2),
    )
    if any(n is None for n in numbers):
        raise Unreadable("a plane is missing")
    thickness, between = decimals(measures, "SliceThickness", 1), decimals(measures, "SpacingBetweenSlices", 1)
    axes = np.reshape(numbers[1], (2, 3))
    if np.abs(axes @ axes.T - np.eye(2)).max() > 1.1e-3 or min(numbers[2] or [0]) <= 0:
        raise Unreadable(f"no plane: {numbers}")
    left, _, right = np.linalg.svd(axes, full_matrices=False)
    return Slice(
        np.array(numbers[0]),
        left @ right,  # the nearest pair at right angles
        np.array(numbers[2]),
        thickness[0] if thickness else None,
        between[0] if between else None,
        _scaled(values, pixels) if known else pixels,
        known,
        str(data.get("FrameOfReferenceUID", "")),
    )


def _scaled(values: Any, pixels: Any) -> Any:
    if values is None:
        return pixels
    if "ModalityLUTSequence" in values:
        return apply_modality_lut(pixels, values)
    slope, inter = decimals(values, "RescaleSlope", 1), decimals(values, "RescaleIntercept", 1)
    if slope == [0.0]:
        raise Unreadable("slope 0")
    return pixels.astype(np.float64) * (slope or [1.0])[0] + (inter or [0.0])[0]


def _pixels(data: Any, undamaged: bytes) -> tuple[Any, bool]:
    """Stored values, without bits beyond BitsStored; False and zeros if they were compressed, and not the sample's."""
    if data.file_meta.get("TransferSyntaxUID", None) is None:
        data.file_meta.TransferSyntaxUID = _NATIVE[data.original_encoding]
    if data.file_meta.TransferSyntaxUID.is_compressed and not data.file_meta.TransferSyntaxUID.is_deflated:
        before = dcmread(io.BytesIO(undamaged), force=True) if undamaged else {}
        keys = ("PixelData", "BitsAllocated", "BitsStored", "PixelRepresentation", "Rows", "Columns")
        keys += ("SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration")
        if any(before.get(key) != data.get(key) for key in keys):
            shape = [int(data.NumberOfFrames)] if int(data.get("NumberOfFrames") or 1) > 1 else []
            return np.zeros([*shape, data.Rows, data.Columns, *[3] * (data.SamplesPerPixel == 3)]), False
    pixels = pixel_array(data)
    stored = data.get("BitsStored")
    if pixels.dtype.kind == "f" or not stored or stored == pixels.dtype.itemsize * 8:
        return pixels, True
    shift = pixels.dtype.itemsize * 8 - stored
    return (pixels << shift) >> shift, True


def _stack(slices: list[Slice], *, regrid: bool) -> Expected:
    first = slices[0]
    normal = np.cross(*first.axes)
    slices = sorted(slices, key=lambda one: float(one.position @ normal))
    for one in slices:
        if np.abs(one.axes - first.axes).max() > _SAME or not np.allclose(
            one.spacing, first.spacing, rtol=1.1e-5, atol=0
        ):
            raise Unreadable("slices differ in orientation or spacing")
        if one.frame_of_reference != first.frame_of_reference:
            raise Unreadable("slices differ in their frame of reference")
    positions = np.array([one.position for one in slices])
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = first.axes[0] * first.spacing[1], first.axes[1] * first.spacing[0]
    affine[:3, 3] = positions[0]
    depths = (positions - positions[0]) @ normal
    count, weights = len(slices), np.eye(len(slices))
    if count == 1:
        affine[:3, 2] = normal * (first.thickness or abs(first.between or 0))
    else:
        steps = np.diff(depths)
        if regrid and steps.max() > 1.5 * steps.min():
            step = steps.min()
            if np.abs(steps / step - np.rint(steps / step)).max() > _STEP_TOLERANCE:
                step = np.median(steps)  # no grid with slices missing
            count = round(depths[-1] / step) + 1
            weights = _interpolation(depths, np.linspace(0, depths[-1], count), step * _STEP_TOLERANCE)
        elif np.abs(depths - np.linspace(0, depths[-1], count)).max() > _STEP_TOLERANCE * depths[-1] / (count - 1):
            raise Unreadable(f"slices lie at {depths}")
        affine[:3, 2] = (positions[-1] - positions[0]) / (count - 1)
    if not affine[:3, 2].any():
        raise Unreadable("no extent along the normal")
    affine[:2] *= -1
    return _filled(affine, weights, slices)


def _interpolation(depths: Any, wanted: Any, near: float) -> Any:
    """Weights (places, slices) of linear interpolation; a slice within ``near`` of a place counts as being there."""
    closest = wanted[np.abs(depths[:, None] - wanted).argmin(1)]
    depths = np.where(np.abs(depths - closest) <= near, closest, depths)
    return np.array([np.interp(wanted, depths, unit) for unit in np.eye(len(depths))]).T


def _filled(affine: Any, weights: Any, slices: list[Slice]) -> Expected:
    shapes = {one.pixels.shape for one in slices}
    if len(shapes) != 1:
        raise Unreadable(f"slices of shapes {shapes}")
    pixels = [one.pixels.astype(np.float64) for one in slices]
    planes = np.array([sum(w * p for w, p in zip(row, pixels, strict=True) if w) for row in weights])  # 0 x NaN is NaN
    values = planes.transpose(3, 2, 1, 0) if planes.ndim == 4 else planes.transpose(2, 1, 0)[None]
    return Expected(affine, values.shape, values if all(one.known for one in slices) else None)
