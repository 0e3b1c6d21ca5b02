"""Resampling between grids whose axes are parallel: one axis at a time, each a banded matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from medattn.geometry.grid import Triple, VoxelGrid
from medattn.geometry.weights import (
    Mode,
    Profile,
    cubic_weights,
    is_thicker,
    linear_weights,
    nearest_index,
    profile_weights,
)

PARALLEL_TOLERANCE = 1e-4
"""Axes count as parallel if they drift apart by no more voxels than this over the whole grid."""

_BAND = 16
"""Rows of a weight matrix that are applied together: few, so that the band of columns they need stays narrow."""


class Alignment(NamedTuple):
    """Index t of target axis a lies at index ``scale[a] * t + offset[a]`` of source axis ``axes[a]``."""

    axes: Triple
    scale: tuple[float, float, float]
    offset: tuple[float, float, float]


def alignment(source: VoxelGrid, target: VoxelGrid) -> Alignment | None:
    """How the target's axes run along the source's, in any order and direction; None if they are not parallel."""
    inner = torch.linalg.inv(source.affine) @ target.affine
    axes = [int(a) for a in inner[:3, :3].abs().argmax(dim=0)]
    if sorted(axes) != [0, 1, 2]:
        return None
    inner = inner[axes]  # rows in the order of the target's axes
    scale = torch.diagonal(inner[:, :3])
    drift = (inner[:, :3] - torch.diag(scale)).abs() * torch.tensor(target.shape, dtype=torch.float64)
    if float(drift.max()) > PARALLEL_TOLERANCE:
        return None
    steps, starts = scale.tolist(), inner[:, 3].tolist()
    return Alignment((axes[0], axes[1], axes[2]), (steps[0], steps[1], steps[2]), (starts[0], starts[1], starts[2]))


def resample_parallel(
    data: Tensor,
    along: Alignment,
    shape: Triple,
    widths: list[float],
    mode: Mode,
    profile: Profile,
    *,
    slopes: bool,
) -> Tensor:
    """``data`` (..., I, J, K) on a parallel grid of ``shape``; ``widths``: thickness in voxels of each matched axis."""
    lead = data.ndim - 3
    if along.axes != (0, 1, 2):
        data = data.permute(*range(lead), *(lead + a for a in along.axes))
    sizes = data.shape[lead:]
    for axis in sorted(range(3), key=lambda a: shape[a] / sizes[a]):  # shrinking axes first: less work
        size, step, start = sizes[axis], along.scale[axis], along.offset[axis]
        thick = profile != "none" and is_thicker(widths[axis])
        if size == shape[axis] and abs(step - 1) * size < 1e-6 and abs(start) < 1e-6 and not thick:
            continue
        positions = step * torch.arange(shape[axis], dtype=torch.float64) + start
        if mode == "nearest":
            data = data.index_select(lead + axis, nearest_index(positions, size).to(data.device))
            continue
        if thick:
            weights = profile_weights(positions, size, widths[axis], profile, slopes=slopes)
        else:
            weights = (cubic_weights if mode == "cubic" else linear_weights)(positions, size)
        data = apply_weights(data, weights, lead + axis)
    return data


def apply_weights(data: Tensor, weights: Tensor, axis: int) -> Tensor:
    """``weights`` (new, old) applied along ``axis`` of ``data``, without multiplying by the zeros off its band."""
    shape = (*data.shape[:axis], len(weights), *data.shape[axis + 1 :])
    bands = [(rows, columns, weights[rows, columns].to(data.device, data.dtype)) for rows, columns in _bands(weights)]
    if axis == data.ndim - 1:
        return torch.cat([data[..., columns] @ block.T for _, columns, block in bands], -1)
    flat = data.flatten(axis + 1)
    if flat.shape[:-2].numel() == 1 and not (torch.is_grad_enabled() and data.requires_grad):
        result = data.new_empty(len(weights), flat.shape[-1])  # written in place: half the memory traffic
        for rows, columns, block in bands:
            torch.mm(block, flat.reshape(flat.shape[-2:])[columns], out=result[rows])
        return result.reshape(shape)
    return torch.cat([block @ flat[..., columns, :] for _, columns, block in bands], -2).reshape(shape)


def _bands(weights: Tensor) -> Iterator[tuple[slice, slice]]:
    """(rows, columns) of consecutive bands of rows and the columns where they are not zero."""
    for first in range(0, len(weights), _BAND):
        rows = slice(first, min(first + _BAND, len(weights)))
        columns = weights[rows].abs().sum(0).nonzero()[:, 0]
        yield rows, slice(int(columns[0]), int(columns[-1]) + 1)
