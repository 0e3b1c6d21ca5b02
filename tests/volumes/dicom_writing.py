"""Writes small DICOM files field by field, so that they can be as odd as they are in practice.

Pixels are given as they lie in the file: (rows, columns), (rows, columns, 3) for colour, with frames before that.
Positions and orientations are LPS, as in the file; affines are RAS+.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import (
    JPEG2000,
    CTImageStorage,
    DeflatedExplicitVRLittleEndian,
    EnhancedCTImageStorage,
    EnhancedMRImageStorage,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    MRImageStorage,
    RLELossless,
)

AXIAL, SAGITTAL, CORONAL = (1, 0, 0, 0, 1, 0), (0, 1, 0, 0, 0, -1), (1, 0, 0, 0, 0, -1)
"""Direction of a row, then of a column."""

SERIES, STUDY, FRAME_OF_REFERENCE = "1.2.3.1", "1.2.3.2", "1.2.3.3"

NATIVE = {
    "implicit": ImplicitVRLittleEndian,
    "explicit": ExplicitVRLittleEndian,
    "big endian": ExplicitVRBigEndian,
    "deflated": DeflatedExplicitVRLittleEndian,
}
LOSSLESS = {
    "RLE": RLELossless,
    "JPEG lossless": JPEGLosslessSV1,
    "JPEG-LS": JPEGLSLossless,
    "JPEG 2000 lossless": JPEG2000Lossless,
}
LOSSY = {"JPEG baseline": JPEGBaseline8Bit, "JPEG 2000": JPEG2000}
SYNTAXES = {**NATIVE, **LOSSLESS, **LOSSY}

_CLASSES = {"CT": CTImageStorage, "MR": MRImageStorage}
_ENHANCED_CLASSES = {"CT": EnhancedCTImageStorage, "MR": EnhancedMRImageStorage}


def item(**attributes: Any) -> Dataset:
    """A dataset of these elements, such as an item of a sequence; those whose value is None are left out."""
    made = Dataset()
    for keyword, value in attributes.items():
        if value is not None:
            setattr(made, keyword, value)
    return made


def image(pixels: Any, *, frames: bool = False, instance: int = 1, **attributes: Any) -> Dataset:
    """Dataset of an image with its pixels (native, little endian) and no geometry.

    ``attributes`` (keyword=value) add to the elements or replace them; the value None takes one away.
    """
    pixels = np.ascontiguousarray(pixels)
    colour = pixels.ndim - frames == 3
    modality = attributes.get("Modality", "CT")
    elements: dict[str, Any] = {
        "SOPClassUID": (_ENHANCED_CLASSES if frames else _CLASSES).get(modality, CTImageStorage),
        "SOPInstanceUID": f"1.2.3.4.{instance}",
        "Modality": modality,
        "SeriesDescription": "small",
        "StudyInstanceUID": STUDY,
        "SeriesInstanceUID": SERIES,
        "FrameOfReferenceUID": FRAME_OF_REFERENCE,
        "InstanceNumber": instance,
        "SamplesPerPixel": 3 if colour else 1,
        "PhotometricInterpretation": "RGB" if colour else "MONOCHROME2",
        "PlanarConfiguration": 0 if colour else None,
        "NumberOfFrames": len(pixels) if frames else None,
        "Rows": pixels.shape[int(frames)],
        "Columns": pixels.shape[int(frames) + 1],
        "BitsAllocated": 8 * pixels.dtype.itemsize,
        **_pixel_elements(pixels),
    }
    bits = attributes.get("BitsStored", elements.get("BitsStored"))
    return item(**{**elements, "HighBit": bits and bits - 1, **attributes})


def _pixel_elements(pixels: NDArray[Any]) -> dict[str, Any]:
    if pixels.dtype.kind == "f":
        return {"FloatPixelData" if pixels.dtype.itemsize == 4 else "DoubleFloatPixelData": pixels.tobytes()}
    content = pixels.tobytes()
    return {
        "BitsStored": 8 * pixels.dtype.itemsize,
        "PixelRepresentation": int(pixels.dtype.kind == "i"),
        "PixelData": content + b"\0" * (len(content) % 2),
    }


def plane(position: Any, orientation: Any = AXIAL, spacing: Any = (1.0, 1.0)) -> dict[str, Any]:
    """Elements of a slice's geometry; ``spacing`` is (between rows, between columns)."""
    return {
        "ImagePositionPatient": _decimals(position),
        "ImageOrientationPatient": _decimals(orientation),
        "PixelSpacing": _decimals(spacing),
    }


def _decimals(values: Any) -> Any:
    """As DICOM writes numbers: at most 16 characters each."""
    return None if values is None else [f"{float(v):.16g}"[:16] if abs(v) >= 1e-4 else f"{v:.9f}" for v in values]


def save(path: Path, dataset: Dataset, syntax: str = "explicit") -> Path:
    """Write ``dataset`` (native pixels) in one of ``SYNTAXES``; encoders want images of 32 x 32 or larger."""
    path.parent.mkdir(parents=True, exist_ok=True)
    uid = SYNTAXES[syntax]
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian if uid.is_compressed else uid
    dataset.file_meta.MediaStorageSOPClassUID = dataset.get("SOPClassUID", "1.2.3")
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.get("SOPInstanceUID", "1.2.3")
    if syntax == "big endian" and "PixelData" in dataset:
        numbers = np.frombuffer(dataset.PixelData, f"u{dataset.BitsAllocated // 8}")
        dataset.PixelData = numbers.byteswap().tobytes()
    if "PixelData" in dataset:
        dataset["PixelData"].VR = "OW" if dataset.BitsAllocated > 8 else "OB"
    if syntax == "JPEG 2000":
        _compress_jpeg2000(dataset)
    elif syntax in ("RLE", "JPEG-LS"):
        dataset.compress(uid, generate_instance_uid=False)
    elif uid.is_encapsulated:
        _compress_by_gdcm(path, dataset, uid)
    dataset.save_as(path, enforce_file_format=True)
    return path


def _compress_jpeg2000(dataset: Dataset) -> None:
    """With loss, for which GDCM has no setting: unsigned 8-bit or 16-bit grey values."""
    from PIL import Image
    from pydicom.encaps import encapsulate

    frames = np.frombuffer(dataset.PixelData, f"u{dataset.BitsAllocated // 8}")
    frames = frames[: dataset.Rows * dataset.Columns * int(dataset.get("NumberOfFrames", 1))]
    streams = []
    for frame in frames.reshape(-1, dataset.Rows, dataset.Columns):
        stream = io.BytesIO()
        options = {"irreversible": True, "quality_mode": "rates", "quality_layers": [2], "num_resolutions": 1}
        Image.fromarray(frame).save(stream, "JPEG2000", no_jp2=True, **options)
        streams.append(stream.getvalue())
    dataset.PixelData = encapsulate(streams)
    dataset["PixelData"].VR, dataset["PixelData"].is_undefined_length = "OB", True
    dataset.file_meta.TransferSyntaxUID = JPEG2000


def _compress_by_gdcm(path: Path, dataset: Dataset, uid: Any) -> None:
    """Only GDCM's pixel data is kept, all else stays as the test wants it."""
    import gdcm
    from pydicom import dcmread

    tiny = min(dataset.Rows, dataset.Columns) < 32
    assert not (tiny and uid == JPEG2000Lossless), "GDCM writes past its buffer for small JPEG 2000 images"
    native = Dataset()
    native.update({element.tag: element for element in dataset if element.tag.group != 0x5200})
    native.file_meta = dataset.file_meta
    native.save_as(path, enforce_file_format=True)
    reader = gdcm.ImageReader()
    reader.SetFileName(os.fspath(path))
    assert reader.Read()
    change = gdcm.ImageChangeTransferSyntax()
    change.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.GetTSType(str(uid))))
    change.SetInput(reader.GetImage())
    assert change.Change(), f"GDCM cannot write {uid.name}"
    writer = gdcm.ImageWriter()
    writer.SetFileName(os.fspath(path))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    assert writer.Write()
    packed = dcmread(path)
    assert packed.file_meta.TransferSyntaxUID == uid
    dataset["PixelData"] = packed["PixelData"]
    subsampled = uid == JPEGBaseline8Bit and dataset.SamplesPerPixel == 3  # GDCM leaves it called RGB
    dataset.PhotometricInterpretation = "YBR_FULL_422" if subsampled else packed.PhotometricInterpretation
    dataset.file_meta.TransferSyntaxUID = uid


def write_slice(
    path: Path,
    pixels: Any,
    position: Any,
    *,
    orientation: Any = AXIAL,
    spacing: Any = (1.0, 1.0),
    syntax: str = "explicit",
    **attributes: Any,
) -> Path:
    """One file of a classic series; ``attributes`` as for ``image``, which win over the geometry."""
    return save(path, image(pixels, **{**plane(position, orientation, spacing), **attributes}), syntax)


def counting(number: int, dtype: Any = np.int16) -> NDArray[Any]:
    """Pixels (2 rows, 3 columns): 10 * number + 0 to 5, in order of the file."""
    return (10 * number + np.arange(6).reshape(2, 3)).astype(dtype)


def write_series(
    folder: Path,
    positions: Sequence[Any],
    *,
    pixels: Sequence[Any] | NDArray[Any] | None = None,
    each: Mapping[str, Sequence[Any]] | None = None,
    **options: Any,
) -> list[Path]:
    """Files 0.dcm, 1.dcm, ... with a slice at each of ``positions``; a bare number is a z.

    ``pixels`` are ``counting(0)``, ``counting(1)``, ... unless given; ``each`` holds attributes that differ from file
    to file, and ``options`` are those of ``write_slice``.
    """
    paths = []
    for number, position in enumerate(positions):
        place = (0, 0, position) if np.ndim(position) == 0 and position is not None else position
        own = {keyword: values[number] for keyword, values in (each or {}).items()}
        numbers = counting(number) if pixels is None else pixels[number]
        path = folder / f"{number}.dcm"
        paths.append(write_slice(path, numbers, place, **{"instance": number + 1, **options, **own}))
    return paths


def write_grid(folder: Path, array: Any, affine: Any, **options: Any) -> list[Path]:
    """A series that holds ``array`` (I, J, K) on a RAS+ ``affine``, whose first two columns are at right angles."""
    array, affine = np.asarray(array), np.diag([-1.0, -1.0, 1.0, 1.0]) @ np.asarray(affine, float)
    spacing = np.linalg.norm(affine[:3, :2], axis=0)
    orientation = (affine[:3, :2] / spacing).T.ravel()
    positions = [affine[:3, 3] + k * affine[:3, 2] for k in range(array.shape[2])]
    pixels = [array[:, :, k].T for k in range(array.shape[2])]
    options = {"orientation": orientation, "spacing": spacing[::-1], **options}
    return write_series(folder, positions, pixels=pixels, **options)


def write_enhanced(
    path: Path,
    positions: Sequence[Any],
    *,
    pixels: Any = None,
    orientation: Any = AXIAL,
    spacing: Any = (1.0, 1.0),
    syntax: str = "explicit",
    per_frame: Sequence[Mapping[str, Any]] | None = None,
    shared: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> Path:
    """An enhanced multi-frame image (CT, or Modality="MR") with a frame at each of ``positions``; a number is a z.

    Args:
        pixels: (frames, rows, columns); ``counting(0)``, ``counting(1)``, ... by default.
        per_frame: for each frame, functional groups (sequence keyword=item) to add, or None to take one away.
        shared: the same for the shared functional groups.
        attributes: as for ``image``.
    """
    pixels = np.stack([counting(n) for n in range(len(positions))]) if pixels is None else np.asarray(pixels)
    groups: dict[str, Any] = {
        "PlaneOrientationSequence": item(ImageOrientationPatient=_decimals(orientation)),
        "PixelMeasuresSequence": item(PixelSpacing=_decimals(spacing)),
        **(shared or {}),
    }
    frames = []
    for number, position in enumerate(positions):
        place = (0, 0, position) if np.ndim(position) == 0 else position
        own = {} if per_frame is None else per_frame[number]
        frames.append(_groups({"PlanePositionSequence": item(ImagePositionPatient=_decimals(place)), **own}))
    functional = {"SharedFunctionalGroupsSequence": [_groups(groups)], "PerFrameFunctionalGroupsSequence": frames}
    return save(path, image(pixels, frames=True, **{**functional, **attributes}), syntax)


def _groups(groups: Mapping[str, Any]) -> Dataset:
    return item(**{keyword: None if group is None else [group] for keyword, group in groups.items()})
