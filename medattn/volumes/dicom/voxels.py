"""From the frames of a series to one array and its scaling: read, looked up, put in place, interpolated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.dicom.format import PixelFormat, pixel_format
from medattn.volumes.dicom.frames import Frame
from medattn.volumes.dicom.header import Header
from medattn.volumes.dicom.pixels import read_frames
from medattn.volumes.dicom.slices import Layer
from medattn.volumes.errors import VolumeError
from medattn.volumes.stored import ReadOptions, Scaling, check_size


def one_format(headers: Sequence[Header]) -> PixelFormat:
    """What the pixels of all files are.

    Raises:
        VolumeError: if files differ, naming two of them and what differs.
    """
    formats = [pixel_format(header) for header in headers]
    for header, form in zip(headers, formats, strict=True):
        for key, one, two in zip(form._fields, formats[0], form, strict=True):
            if one != two:
                names = f"{headers[0].file.name} and {two} in {header.file.name}"
                raise VolumeError(f"all slices must have the same {key}, got {one} in {names}")
    return formats[0]


def read_layers(
    frames: Sequence[Frame], layers: Sequence[Layer], form: PixelFormat, options: ReadOptions
) -> tuple[NDArray[Any], Scaling]:
    """Values (C, I, J, K) and their scaling: slice k is ``layers[k]`` of ``frames``.

    Where a slice lies between two frames, labels are the nearer one's, and intensities are interpolated; all are then
    scaled already, since frames may have scales of their own.

    Raises:
        VolumeError: if only some frames have a scale or a table, or if the voxels are too many, or cannot be read.
    """
    _check_meanings(frames)
    interpolated = not options.labels and any(layer.lower != layer.upper for layer in layers)
    needed = [(layer.lower, layer.upper) if interpolated else (layer.nearest,) for layer in layers]
    numbers = list(dict.fromkeys(number for pair in needed for number in pair))
    dtype = np.dtype(np.uint16) if frames[0].meaning.table is not None else form.dtype
    check_size(
        (len(layers) + len(numbers) * interpolated, *form.shape),
        max(dtype.itemsize, 4 * interpolated),
        options.max_bytes,
    )
    planes = _read([frames[number] for number in numbers], form, dtype)
    place = {number: index for index, number in enumerate(numbers)}
    scaling = _scaling([frames[number] for number in numbers])
    if interpolated:
        planes, scaling = _interpolated(planes, scaling, [(place[a], place[b], w) for a, b, w in layers]), Scaling()
    elif len(numbers) < len(layers):
        sources = [place[layer.nearest] for layer in layers]
        planes, scaling = planes[sources], _scaling([frames[layer.nearest] for layer in layers])
    return _channels_first(planes), scaling


def _read(frames: Sequence[Frame], form: PixelFormat, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Planes (frames, rows, columns) or (frames, rows, columns, 3); memory is taken when the first is read."""
    files: dict[int, tuple[Header, dict[int, int]]] = {}
    for place, frame in enumerate(frames):
        files.setdefault(id(frame.header), (frame.header, {}))[1][frame.number] = place
    planes = None
    for header, places in files.values():
        for number, pixels in read_frames(header, form, places):
            planes = np.empty((len(frames), *form.shape), dtype) if planes is None else planes
            planes[places[number]] = frames[places[number]].meaning.looked_up(pixels)
    assert planes is not None
    return planes


def _check_meanings(frames: Sequence[Frame]) -> None:
    first = frames[0]
    for frame in frames:
        if frame.meaning.kind != first.meaning.kind:
            raise VolumeError(
                f"all slices must have a scale, a lookup table, or neither, got {first.meaning.kind} in "
                f"{first.plane.name} and {frame.meaning.kind} in {frame.plane.name}"
            )


def _scaling(frames: Sequence[Frame]) -> Scaling:
    """Of slices in this order: two numbers if it is the same for all."""
    pairs = [(frame.meaning.slope or 1.0, frame.meaning.inter or 0.0) for frame in frames]
    if len(set(pairs)) == 1:
        return Scaling(*pairs[0])
    slopes, inters = np.array(pairs).T
    return Scaling(slopes, inters)


@np.errstate(over="ignore", invalid="ignore")  # what overflows becomes inf, and is counted
def _interpolated(
    planes: NDArray[Any], scaling: Scaling, layers: Sequence[tuple[int, int, float]]
) -> NDArray[np.float32]:
    slopes, inters = (np.broadcast_to(numbers, len(planes)) for numbers in scaling)

    def true(number: int) -> NDArray[np.float64]:
        return np.asarray(planes[number].astype(np.float64) * slopes[number] + inters[number])

    made = np.empty((len(layers), *planes.shape[1:]), np.float32)
    for k, (lower, upper, weight) in enumerate(layers):
        made[k] = true(lower) if lower == upper else (1 - weight) * true(lower) + weight * true(upper)
    return made


def _channels_first(planes: NDArray[Any]) -> NDArray[Any]:
    """(C, I, J, K) of planes (K, J, I) or (K, J, I, C), without copying."""
    return planes.transpose(3, 2, 1, 0) if planes.ndim == 4 else planes.transpose(2, 1, 0)[None]
