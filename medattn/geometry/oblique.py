"""Resampling between any two grids: interpolation at points, on a grid fine enough for the slice profile.

Where a target voxel is thicker than what it is taken from, the image is interpolated on a finer grid along the target's
axes, and the profile integrates over that, as it does between parallel grids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from medattn.geometry.affine import scaling_translation
from medattn.geometry.grid import VoxelGrid
from medattn.geometry.separable import apply_weights
from medattn.geometry.weights import Mode, Profile, cubic_taps, is_thicker, nearest_index, profile_weights

_MAX_POINTS = 1 << 22
"""Points that are interpolated at a time."""


class FineAxis(NamedTuple):
    """Samples along one target axis: ``size`` of them, at target index ``first + step * n``."""

    size: int
    first: float
    step: float
    weights: Tensor | None
    """(target voxels, size) weights of the slice profile; None where the samples are the target's voxels."""


def width_along(source: VoxelGrid, directions: Tensor) -> list[float]:
    """mm that a voxel of ``source`` is wide along each column of ``directions`` (3, 3), unit vectors in the world."""
    per_mm = torch.linalg.inv(source.affine)[:3, :3] @ directions
    widths: list[float] = (1 / torch.linalg.vector_norm(per_mm, dim=0)).tolist()
    return widths


def resample_oblique(
    data: Tensor,
    source: VoxelGrid,
    target: VoxelGrid,
    thickness_mm: Sequence[float],
    mode: Mode,
    profile: Profile,
    *,
    slopes: bool,
) -> Tensor:
    """``data`` (..., I, J, K) on ``source``, seen on ``target``."""
    own = width_along(source, target.direction)
    spacing = target.spacing_mm.tolist()
    axes = [
        _fine_axis(n, step, thick, wide, profile, slopes=slopes)
        for n, step, thick, wide in zip(target.shape, spacing, thickness_mm, own, strict=True)
    ]
    inner = scaling_translation([a.step for a in axes], [a.first for a in axes])
    fine = VoxelGrid((axes[0].size, axes[1].size, axes[2].size), target.affine @ inner)
    rows = max(1, _MAX_POINTS // (fine.shape[1] * fine.shape[2]))
    slabs = []
    for start in range(0, fine.shape[0], rows):
        slab = fine.crop((start, 0, 0), (min(start + rows, fine.shape[0]), *fine.shape[1:]))
        part = interpolate(data, source.to_index(slab.to_world(slab.indices())), mode)
        for axis in (2, 1):
            part = _integrated(part, axes[axis], axis)
        slabs.append(part)
    return _integrated(torch.cat(slabs, -3), axes[0], 0)


def _fine_axis(size: int, spacing: float, thickness: float, own: float, profile: Profile, *, slopes: bool) -> FineAxis:
    """Where to sample along an axis of ``size`` voxels; ``own``: mm that a source voxel is wide along it.

    The source's voxels are means over ``own`` already, so the profile adds the variance that is missing: a box has
    the width sqrt(thickness^2 - own^2), as a Gaussian has its FWHM.
    """
    if profile == "none" or not is_thicker(thickness, own):
        return FineAxis(size, 0.0, 1.0, None)
    per_voxel = math.ceil(2 * spacing / own)  # two in a source voxel, so that the phase between the grids evens out
    step = spacing / per_voxel
    width = math.sqrt(thickness**2 - own**2) / step
    reach = width / 2 if profile == "box" else 2.5 * width  # 2.5 FWHM is 5.9 sigma
    margin = max(0, math.ceil(reach - per_voxel / 2)) + 1
    count = size * per_voxel + 2 * margin
    first = -(margin + (per_voxel - 1) / 2) / per_voxel  # a voxel's samples lie evenly about its centre
    positions = (torch.arange(size, dtype=torch.float64) - first) * per_voxel
    weights = profile_weights(positions, count, width, profile, own_width=0.0, slopes=slopes)
    return FineAxis(count, first, 1 / per_voxel, weights)


def _integrated(values: Tensor, axis: FineAxis, number: int) -> Tensor:
    return values if axis.weights is None else apply_weights(values, axis.weights, values.ndim - 3 + number)


def interpolate(data: Tensor, index: Tensor, mode: Mode) -> Tensor:
    """``data`` (..., I, J, K) at fractional voxel indices ``index`` (X, Y, Z, 3); the edge value beyond the ends."""
    if mode == "linear":
        return _linear(data, index)
    taps = [_taps(index[..., axis], size, mode) for axis, size in enumerate(data.shape[-3:])]
    flat, total = data.flatten(-3), None
    for i, wi in taps[0]:
        for j, wj in taps[1]:
            for k, wk in taps[2]:
                at = ((i * data.shape[-2] + j) * data.shape[-1] + k).to(data.device)
                if wi is None or wj is None or wk is None:  # nearest: one tap, and any type of number
                    return flat[..., at]
                value = flat[..., at] * (wi * wj * wk).to(data.device, data.dtype)
                total = value if total is None else total + value
    assert total is not None
    return total


def _taps(positions: Tensor, size: int, mode: Mode) -> list[tuple[Tensor, Tensor | None]]:
    """(index, weight) of the voxels of one axis that a position is taken from."""
    if mode == "nearest":
        return [(nearest_index(positions, size), None)]
    inside = positions.clamp(0, size - 1)
    below = torch.floor(inside)
    weights = cubic_taps(inside - below)
    return [((below.long() + t - 1).clamp(0, size - 1), weights[..., t]) for t in range(4)]


def _linear(data: Tensor, index: Tensor) -> Tensor:
    """Trilinear; ``grid_sample`` takes x, y, z, that is the last axis first, as fractions of the image from -1 to 1."""
    size = torch.tensor(data.shape[-3:], dtype=torch.float64)
    fraction = ((2 * index + 1) / size - 1).flip(-1)[None].to(data.device, data.dtype)
    channels = data.reshape(1, -1, *data.shape[-3:])
    seen = F.grid_sample(channels, fraction, mode="bilinear", padding_mode="border", align_corners=False)
    return seen.reshape(*data.shape[:-3], *index.shape[:-1])
