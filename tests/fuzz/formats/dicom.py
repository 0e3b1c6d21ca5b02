"""Classic DICOM series: a folder of files with a slice each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.case import Damage, Expected, Files, Sample, read_files
from tests.fuzz.dicom_damage import GEOMETRY, deep_sequences, element_damages
from tests.fuzz.dicom_oracle import images
from tests.fuzz.judge import SECRET
from tests.volumes.dicom_writing import CORONAL, SAGITTAL, item, write_series

LARGE = [np.random.default_rng(number).integers(0, 200, (32, 32)).astype(np.uint16) for number in range(3)]
"""Slices of a size that every encoder takes."""


def samples(folder: Path) -> list[Sample]:
    """Every transfer syntax, orientation and kind of pixels."""
    colour = [np.arange(18, dtype=np.uint8).reshape(2, 3, 3) + number for number in range(3)]
    bits = {"BitsStored": 12, "HighBit": 11}
    table = item(LUTDescriptor=[40, 0, 16], LUTData=np.arange(40, dtype="<u2").tobytes()[::-1])
    variants: dict[str, dict[str, Any]] = {
        "explicit": {"RescaleSlope": "2", "RescaleIntercept": "-1024"},
        "implicit": {"syntax": "implicit", "orientation": CORONAL, "positions": [(0, 3 * k, 0) for k in range(3)]},
        "big endian": {"syntax": "big endian", "orientation": SAGITTAL, "positions": [(3 * k, 0, 0) for k in range(3)]},
        "deflated": {"syntax": "deflated", "spacing": (0.5, 0.7)},
        "tilted": {"positions": [(0, k, 3 * k) for k in range(4)], "spacing": (0.5, 0.7), "SpacingBetweenSlices": "3"},
        "own slopes": {"each": {"RescaleSlope": ["1", "2", "0.5"], "RescaleIntercept": ["0", "1", "2"]}},
        "colour": {"pixels": colour},
        "twelve bits": {"pixels": [pixels[:3, :2] for pixels in LARGE], **bits},
        "one slice": {"positions": [5.0], "SliceThickness": "2.5"},
        "missing slice": {"positions": [0, 3, 9, 12], "options": {"regrid": True}},
        "table": {"pixels": [np.arange(6, dtype=np.uint16).reshape(2, 3)] * 3, "ModalityLUTSequence": [table]},
        "floats": {"pixels": [np.arange(6, dtype=np.float32).reshape(2, 3) / 7] * 2, "positions": [0, 2]},
        **{f"{syntax}": {"pixels": LARGE, "syntax": syntax} for syntax in ("RLE", "JPEG lossless", "JPEG-LS")},
        "JPEG 2000 lossless": {"pixels": LARGE[:2], "positions": [0, 3], "syntax": "JPEG 2000 lossless"},
        "JPEG baseline": {"pixels": [p.astype(np.uint8) for p in LARGE], "syntax": "JPEG baseline"},
    }
    return [_sample(folder / name, **options) for name, options in variants.items()]


def _sample(folder: Path, *, positions: Any = (0, 3, 6), options: Any = None, **attributes: Any) -> Sample:
    write_series(folder, positions, **{"PatientName": SECRET, **attributes})
    return Sample(folder.name, read_files(folder), "", options or {})


def _exchange_files(files: Files, rng: Any) -> str:
    """Names swapped, which changes nothing; or one file in two places."""
    names = list(files)
    if len(names) < 2:
        return ""
    one, two = (names[int(n)] for n in rng.choice(len(names), 2, replace=False))
    if rng.random() < 0.5:
        files[one], files[two] = files[two], files[one]
        return f"{one} and {two} swapped"
    files[one] = files[two]
    return f"{one} is a copy of {two}"


def _foreign(files: Files, rng: Any) -> str:
    """Something else beside the series."""
    name, content = [("notes.txt", b"hello"), ("DICOMDIR", b"\0" * 200), ("x.dcm", b""), (".hidden.dcm", b"x")][
        int(rng.integers(4))
    ]
    files[name] = content
    return f"{name} added"


DAMAGES: tuple[Damage, ...] = (*element_damages(GEOMETRY) * 2, deep_sequences, _exchange_files, _foreign)


def expected(folder: Path, sample: Sample) -> Expected:
    """By ``dicom_oracle``."""
    files = {name: content for name, content in read_files(folder).items() if name.endswith(".dcm") and name[0] != "."}
    return images(files, sample)
