"""Multi-frame DICOM images: one file with functional groups for each frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.case import Damage, Expected, Sample, read_files
from tests.fuzz.dicom_damage import GEOMETRY, deep_sequences, element_damages
from tests.fuzz.dicom_oracle import images
from tests.fuzz.formats.dicom import LARGE
from tests.fuzz.judge import SECRET
from tests.volumes.dicom_writing import CORONAL, item, write_enhanced

_KEYWORDS = (
    *(
        "PerFrameFunctionalGroupsSequence",
        "SharedFunctionalGroupsSequence",
        "PlanePositionSequence",
        "FrameContentSequence",
    ),
    *(
        "PlaneOrientationSequence",
        "PixelMeasuresSequence",
        "PixelValueTransformationSequence",
        "DimensionIndexSequence",
    ),
    *("DimensionIndexPointer", "DimensionIndexValues", "NumberOfFrames", "NumberOfFrames"),
)


def samples(folder: Path) -> list[Sample]:
    """Every transfer syntax, and groups of each frame's own or shared."""
    own = [{"PixelValueTransformationSequence": item(RescaleSlope=s, RescaleIntercept="-1")} for s in ("1", "2", "0.5")]
    shared = {"PixelValueTransformationSequence": item(RescaleSlope="2", RescaleIntercept="-1024")}
    measures = item(PixelSpacing=["0.5", "0.7"], SliceThickness="2", SpacingBetweenSlices="3")
    content = [{"FrameContentSequence": item(DimensionIndexValues=[1, n])} for n in range(3)]
    planes = [{"PlanePositionSequence": item(ImagePositionPatient=["0", str(3 * n), "0"])} for n in range(3)]
    variants: dict[str, dict[str, Any]] = {
        "explicit": {"shared": shared},
        "implicit": {"syntax": "implicit", "per_frame": own},
        "big endian": {"syntax": "big endian", "shared": {"PixelMeasuresSequence": measures}},
        "deflated": {"syntax": "deflated", "per_frame": content},
        "coronal": {"orientation": CORONAL, "per_frame": planes},
        "tilted": {"positions": [(0, k, 3 * k) for k in range(3)], "Modality": "MR"},
        "missing": {"positions": [0, 3, 9], "options": {"regrid": True}},
        "one frame": {"positions": [4], "shared": {"PixelMeasuresSequence": measures}},
        "colour": {"pixels": np.arange(54, dtype=np.uint8).reshape(3, 2, 3, 3)},
        **{syntax: {"pixels": np.stack(LARGE), "syntax": syntax} for syntax in ("RLE", "JPEG lossless", "JPEG-LS")},
        "JPEG 2000 lossless": {"pixels": np.stack(LARGE), "syntax": "JPEG 2000 lossless", "shared": shared},
    }
    return [_sample(folder / f"{name}.dcm", **options) for name, options in variants.items()]


def _sample(path: Path, *, positions: Any = (0, 3, 6), options: Any = None, **attributes: Any) -> Sample:
    write_enhanced(path, positions, **{"PatientName": SECRET, **attributes})
    return Sample(path.stem, {"x.dcm": path.read_bytes()}, "x.dcm", options or {})


DAMAGES: tuple[Damage, ...] = (*element_damages(GEOMETRY), *element_damages(_KEYWORDS), deep_sequences)


def expected(folder: Path, sample: Sample) -> Expected:
    """By ``dicom_oracle``."""
    return images(read_files(folder), sample)
