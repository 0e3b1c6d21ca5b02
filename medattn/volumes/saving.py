"""``save_volume``: one door to every format that can be written, atomically."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from medattn.files import replacing
from medattn.volumes.errors import VolumeError
from medattn.volumes.volume import Volume, check_is_volume

WRITERS = {
    ".nii": "nifti",
    ".nii.gz": "nifti",
    ".nrrd": "nrrd",
    ".mha": "metaimage",
    ".dcm": "dicom.seg_write",
}
"""Which module of this package writes files of a suffix."""

_INTEGER_TYPES = (np.uint8, np.int16, np.int32, np.int64)


class Writer(Protocol):
    """A module that writes one format."""

    def write(self, path: Path, volume: Volume) -> None:
        """Write ``volume`` to ``path``, whose folder exists; ``VolumeError`` without the path if it cannot be."""


def save_volume(path: str | os.PathLike[str], volume: Volume) -> None:
    """Write ``volume``, replacing ``path`` only when all is written.

    NIfTI-1 (.nii, .nii.gz), NRRD (.nrrd), MetaImage (.mha), and, for labels, a DICOM segmentation (.dcm).
    Floating-point data is written as float32, integers as the smallest of uint8, int16, int32 and int64 that holds
    them, neither with a scale factor.

    Raises:
        VolumeError: (a ValueError) naming the file, if its suffix is none of these or the format cannot hold the data.
        FileNotFoundError: if the folder does not exist.
        TypeError: if ``volume`` is no Volume.
    """
    check_is_volume(volume)
    path = Path(path)
    suffix = max((s for s in WRITERS if path.name.lower().endswith(s)), key=len, default="")
    if not suffix:
        raise VolumeError(f"{path}: a volume's file name must end in one of {', '.join(WRITERS)}, got {path.name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder to write {path.name} to does not exist: {path.parent}")
    writer = cast(Writer, importlib.import_module(f"medattn.volumes.{WRITERS[suffix]}"))
    try:
        with replacing(path) as temporary:
            writer.write(temporary, volume)
    except VolumeError as error:
        raise VolumeError(f"{path}: {error}") from error


def storable(data: Tensor) -> NDArray[Any]:
    """``data`` (C, I, J, K) as an array (I, J, K) or (I, J, K, C) of a type to store.

    Raises:
        VolumeError: if it is complex, or its integers need more than 64 bits with a sign.
    """
    if data.is_complex():
        raise VolumeError(f"data must be real to be saved, got {data.dtype}")
    if data.is_floating_point():
        array = data.detach().cpu().float().numpy()
    else:
        array = data.cpu().numpy()
        low, high = int(array.min()), int(array.max())
        fitting = [t for t in _INTEGER_TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max]
        if not fitting:
            raise VolumeError(f"integers must fit 64 bits with a sign to be saved, got {high}")
        array = array.astype(fitting[0])
    return array[0] if len(array) == 1 else np.moveaxis(array, 0, -1)
