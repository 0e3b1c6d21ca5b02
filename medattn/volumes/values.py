"""From stored numbers to image intensities (float32) or labels (int64), in the order in memory that they have.

What is read is not reordered: turning the first axis fastest (as in a NIfTI file) into the last axis fastest takes as
long as unpacking the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from medattn.volumes.errors import VolumeError
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.stored import Scaling, Stored

LABEL_TOLERANCE = 0.1
"""Labels stored as real numbers must be this close to an integer."""

_EXACT_IN_FLOAT32, _EXACT_IN_FLOAT64 = 2**24, 2**53


@np.errstate(over="ignore", invalid="ignore")  # what overflows becomes inf, and is counted
def image_values(stored: Stored) -> tuple[NDArray[np.float32], list[Note]]:
    """float32 intensities (C, I, J, K), scaled once in float64; NaN and infinity are kept and counted in a note."""
    raw = stored.values
    if not stored.scaling.is_identity:
        intensities = _scaled(raw, stored.scaling)
        return intensities, _nonfinite(intensities)
    intensities = _own(raw, np.float32)
    return intensities, _inexact(raw) if _file_dtype(stored).kind in "iu" else _nonfinite(intensities)


@np.errstate(over="ignore", invalid="ignore")  # what overflows is refused
def label_values(stored: Stored) -> tuple[NDArray[np.int64], list[Note]]:
    """int64 labels (1, I, J, K). Integers never pass through a float, which would change large ones.

    Raises:
        VolumeError: if there are several channels, or a value is no integer (to 0.1), negative or too large.
    """
    raw, scaling = stored.values, stored.scaling
    if len(raw) != 1:
        raise VolumeError(f"labels must have one channel, got {len(raw)}")
    if raw.dtype.kind in "iu" and scaling.is_identity:
        return _checked(raw, int(raw.max()) <= np.iinfo(np.int64).max), []
    values = raw.astype(np.float64, order="K") * scaling.slope + scaling.inter
    if not np.isfinite(values).all():
        raise VolumeError(f"labels must be integers, got {values[~np.isfinite(values)][0]}")
    labels = np.rint(values)
    error = np.abs(values - labels)
    if error.max() > LABEL_TOLERANCE:
        worst = float(values.flat[int(error.argmax())])
        raise VolumeError(f"labels must be integers (to {LABEL_TOLERANCE}), got {worst:g}: is this an image?")
    how = f"{_file_dtype(stored).name}{'' if scaling.is_identity else ' with a scale factor'}"
    message = f"labels are stored as {how}, and were rounded to integers by at most {error.max():.2g}"
    note = Note(NoteKind.LABELS_ROUNDED, message, {"largest_change": float(error.max())})
    return _checked(labels, labels.max() <= _EXACT_IN_FLOAT64), [note]


def _file_dtype(stored: Stored) -> np.dtype[Any]:
    return stored.values.dtype if stored.file_dtype is None else stored.file_dtype


def _own(raw: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """``raw`` as ``dtype``; a copy unless torch can take it over: writable, of native byte order, no axis reversed."""
    if raw.dtype == dtype and raw.flags.writeable and min(raw.strides) > 0:
        return raw
    return raw.astype(dtype, order="K")


def _scaled(raw: NDArray[Any], scaling: Scaling) -> NDArray[np.float32]:
    """Slab by slab along the slowest axis, so that the numbers in between stay few."""
    work = np.float32 if _is_exact_in_float32(raw.dtype, scaling) else np.float64
    slope, inter = (np.broadcast_to(np.asarray(value, work), raw.shape) for value in scaling)
    intensities = np.empty_like(raw, dtype=np.float32)
    slowest = max(range(raw.ndim), key=lambda axis: (raw.shape[axis] > 1, abs(raw.strides[axis])))
    for number in range(raw.shape[slowest]):
        slab = (slice(None),) * slowest + (number,)
        part: NDArray[Any] = raw[slab].astype(work, order="K")
        part *= slope[slab]
        part += inter[slab]
        intensities[slab] = part
    return intensities


def _is_exact_in_float32(dtype: np.dtype[Any], scaling: Scaling) -> bool:
    """True if whatever integers of ``dtype`` are scaled to, and on the way to it, are integers that float32 holds."""
    if dtype.kind not in "iu" or any(np.any(value != np.rint(value)) for value in scaling):
        return False
    largest = max(abs(int(np.iinfo(dtype).min)), int(np.iinfo(dtype).max))
    return bool(np.max(np.abs(scaling.slope)) * largest + np.max(np.abs(scaling.inter)) <= _EXACT_IN_FLOAT32)


def _nonfinite(intensities: NDArray[np.float32]) -> list[Note]:
    if np.isfinite(intensities.sum()):  # one NaN or infinity would have made the sum one
        return []
    bad = intensities.size - int(np.isfinite(intensities).sum())
    if bad == 0:
        return []
    message = f"{bad} of {intensities.size} voxels are NaN or infinite; they are kept as they are"
    return [Note(NoteKind.NONFINITE_VOXELS, message, {"voxels": bad})]


def _inexact(raw: NDArray[Any]) -> list[Note]:
    """A note if integers do not fit float32, which holds those whose odd part is below 2**24."""
    if np.can_cast(raw.dtype, np.float32, "safe"):
        return []
    most = max(int(raw.max()), -int(raw.min()))
    if most <= _EXACT_IN_FLOAT32:
        return []
    large = raw[(raw > _EXACT_IN_FLOAT32) | (raw < -_EXACT_IN_FLOAT32)]
    odd_parts = np.abs(large // (large & -large))  # n & -n is the lowest bit that is set
    inexact = int((odd_parts > _EXACT_IN_FLOAT32).sum())
    if inexact == 0:
        return []
    message = f"{inexact} of {raw.size} voxels are integers that float32 cannot hold exactly (up to {most}); rounded"
    return [Note(NoteKind.PRECISION_LOST, message, {"voxels": inexact, "largest": most})]


def _checked(values: NDArray[Any], fits: bool) -> NDArray[np.int64]:
    if not fits:
        raise VolumeError(f"labels must fit 64-bit integers exactly, got {values.max()}")
    if values.min() < 0:
        raise VolumeError(f"labels must be >= 0, got {values.min():g}")
    return _own(values, np.int64)
