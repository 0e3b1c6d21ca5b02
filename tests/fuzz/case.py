"""What is fuzzed: small valid volumes, and cases made by damaging them, each repeatable from three numbers."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tests.fuzz.damage import damage_bytes

FORMATS = {
    "nifti": "nifti",
    "nrrd": "nrrd",
    "metaimage": "metaimage",
    "dicom": "dicom",
    "dicom-multiframe": "dicom_multiframe",
    "dicom-seg": "dicom_seg",
    "zip": "zipped",
}
"""Module of ``tests.fuzz.formats`` for each format."""

Files = dict[str, bytes]
"""Content of files by name, relative to the folder of the case."""

Damage = Callable[[Files, Generator], str]
"""Changes files in place and says what it did; empty if it found nothing to do."""


@dataclass(frozen=True)
class Sample:
    """A small valid volume: its files, which of them is loaded ("" for their folder), and with which options."""

    name: str
    files: Mapping[str, bytes]
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Expected(NamedTuple):
    """What a right reader makes of files: ``affine`` (4, 4) to RAS+ mm, ``shape`` (C, I, J, K), and the true ``values``
    of that shape, or None where damage to compressed pixels leaves them open."""

    affine: NDArray[np.float64]
    shape: tuple[int, ...]
    values: NDArray[Any] | None


class Unreadable(Exception):
    """Raised by an oracle: no right volume can be made of these files."""


class NoOpinion(Exception):
    """Raised by an oracle that cannot tell."""


class Format(Protocol):
    """A module of ``tests.fuzz.formats``."""

    DAMAGES: Sequence[Damage]
    """Those that know the format."""

    def samples(self, folder: Path) -> list[Sample]:
        """Valid volumes of every variant, written into ``folder``; the same bytes each time."""

    def expected(self, folder: Path, sample: Sample) -> Expected:
        """What the files in ``folder`` hold, by other code than the reader's.

        Raises:
            Unreadable: if they hold no volume.
            Exception: anything else if it cannot tell.
        """


@dataclass(frozen=True)
class Case:
    """Files to load; ``damages`` says what was done to those of ``sample``, nothing if that is to be read as it is."""

    sample: Sample
    files: Files
    damages: tuple[str, ...] = ()


def format_module(name: str) -> Format:
    """The module of a format.

    Raises:
        ValueError: for an unknown name.
    """
    if name not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {name!r}")
    module: Any = importlib.import_module(f"tests.fuzz.formats.{FORMATS[name]}")
    return module


def make_case(name: str, seed: int, number: int, samples: Sequence[Sample], damages: Sequence[Damage]) -> Case:
    """Case ``number`` of format ``name``: one to three damages, of the format's own kinds or blind ones."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed, number])
    sample = samples[int(rng.integers(len(samples)))]
    other = samples[int(rng.integers(len(samples)))]
    files, done = dict(sample.files), []
    for _ in range(int(rng.choice([1, 2, 3], p=[0.7, 0.2, 0.1]))):
        own = damages[int(rng.integers(len(damages)))] if rng.random() < 0.6 else None
        what = own(files, rng) if own else ""
        done.append(what or _blind(files, other.files, rng))
    return Case(sample, files, tuple(done))


def _blind(files: Files, others: Mapping[str, bytes], rng: Generator) -> str:
    if not files:
        return "nothing is left"
    name = list(files)[int(rng.integers(len(files)))]
    if len(files) > 1 and rng.random() < 0.05:
        del files[name]
        return f"remove {name}"
    other = list(others.values())[int(rng.integers(len(others)))]
    files[name], what = damage_bytes(files[name], other, rng)
    return f"{what} of {name}"


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write ``files`` below ``folder``."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_files(folder: Path) -> Files:
    """All files below ``folder``, by name."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
