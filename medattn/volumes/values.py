"""From stored numbers to image intensities (float32) or labels (int64)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.errors import VolumeError
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.stored import Scaling

LABEL_TOLERANCE = 0.1
"""Labels stored as real numbers must be this close to an integer."""

_MAX_EXACT_FLOAT = 2**53


def image_values(raw: NDArray[Any], scaling: Scaling) -> tuple[NDArray[np.float32], list[Note]]:
    """float32 intensities of ``raw``, scaled once in float64; NaN and infinity are kept and counted in a note."""
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows becomes inf, and is counted
        values = raw if scaling.is_identity else raw.astype(np.float64) * scaling.slope + scaling.inter
        intensities = np.array(values, dtype=np.float32, order="C")
    bad = intensities.size - int(np.isfinite(intensities).sum())
    if bad == 0:
        return intensities, []
    message = f"{bad} of {intensities.size} voxels are NaN or infinite; they are kept as they are"
    return intensities, [Note(NoteKind.NONFINITE_VOXELS, message, {"voxels": bad})]


def label_values(raw: NDArray[Any], scaling: Scaling) -> tuple[NDArray[np.int64], list[Note]]:
    """int64 labels of ``raw`` (1, I, J, K). Integers never pass through a float, which would change large ones.

    Raises:
        VolumeError: if there are several channels, or a value is no integer (to 0.1), negative or too large.
    """
    if len(raw) != 1:
        raise VolumeError(f"labels must have one channel, got {len(raw)}")
    if raw.dtype.kind in "iu" and scaling.is_identity:
        return _checked(raw, int(raw.max()) <= np.iinfo(np.int64).max), []
    values = raw.astype(np.float64) * scaling.slope + scaling.inter
    if not np.isfinite(values).all():
        raise VolumeError(f"labels must be integers, got {values[~np.isfinite(values)][0]}")
    labels = np.rint(values)
    error = np.abs(values - labels)
    if error.max() > LABEL_TOLERANCE:
        worst = float(values.flat[int(error.argmax())])
        raise VolumeError(f"labels must be integers (to {LABEL_TOLERANCE}), got {worst:g}: is this an image?")
    how = raw.dtype.name if scaling.is_identity else f"{raw.dtype.name} with a scale factor"
    message = f"labels are stored as {how}, and were rounded to integers by at most {error.max():.2g}"
    note = Note(NoteKind.LABELS_ROUNDED, message, {"largest_change": float(error.max())})
    return _checked(labels, labels.max() <= _MAX_EXACT_FLOAT), [note]


def _checked(values: NDArray[Any], fits: bool) -> NDArray[np.int64]:
    if not fits:
        raise VolumeError(f"labels must fit 64-bit integers exactly, got {values.max()}")
    if values.min() < 0:
        raise VolumeError(f"labels must be >= 0, got {values.min():g}")
    return np.array(values, dtype=np.int64, order="C")
