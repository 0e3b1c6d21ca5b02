"""Labels as the frames that highdicom is given, and what it cannot do with them."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.errors import VolumeError
from medattn.volumes.volume import Volume

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_MAX_LABEL = _MAX_LENGTH = 65535
_MIN_BITS = 8


def frame_labels(volume: Volume, *, binary: bool) -> tuple[NDArray[Any], list[int]]:
    """Labels as frames (K, J, I), a copy of the smallest type that holds them, and which there are but background.

    Raises:
        VolumeError: if they are not integers from 0 to 65535 in one channel, or frames would be too large, or (if
            ``binary``) so small that highdicom 0.28 would pad each to a byte, as the standard does not.
    """
    data = volume.data
    if not volume.is_label_map or len(data) != 1:
        raise VolumeError(
            f"DICOM can hold only label maps here (integers in one channel), got {data.dtype} in {len(data)} channels"
        )
    if max(data.shape[1:3]) > _MAX_LENGTH:
        raise VolumeError(f"a DICOM frame holds at most {_MAX_LENGTH} rows and columns, got shape {tuple(data.shape)}")
    if binary and math.prod(data.shape[1:3]) < _MIN_BITS:
        raise VolumeError(
            f"a binary segmentation needs slices of at least {_MIN_BITS} voxels here, got {data.shape[1]} x "
            f"{data.shape[2]}; save_dicom_seg(..., segmentation_type='labelmap') writes smaller ones"
        )
    array = data[0].cpu().numpy().T
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > _MAX_LABEL:
        raise VolumeError(f"labels must be 0 to {_MAX_LABEL} in DICOM, got {low} to {high}")
    labels = np.array(array, dtype=np.uint8 if high < 256 else np.uint16, order="C")
    return labels, [int(n) for n in np.flatnonzero(np.bincount(labels.ravel())) if n]


def mark_empty(labels: NDArray[Any], number: int) -> list[int]:
    """Set the first voxel of each empty slice to ``number``, and return which slices these are, for ``unmark``.

    highdicom writes either all frames of each segment, or only those that are not empty, and then the file does not
    say how far the grid goes.
    """
    empty = np.flatnonzero(~labels.any(axis=(1, 2)))
    labels[empty, 0, 0] = number
    return [int(k) for k in empty]


def unmark(dataset: Dataset, positions: Container[tuple[float, ...]]) -> None:
    """Empty the frames at ``positions``, in which only the first pixel is set; a pixel is one bit, without gaps."""
    pixels, size = bytearray(dataset.PixelData), dataset.Rows * dataset.Columns
    for number, frame in enumerate(dataset.PerFrameFunctionalGroupsSequence):
        if tuple(frame.PlanePositionSequence[0].ImagePositionPatient) in positions:
            byte, bit = divmod(number * size, 8)
            pixels[byte] &= 0xFF ^ (1 << bit)
    dataset.PixelData = bytes(pixels)
