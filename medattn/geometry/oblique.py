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
from medattn.geometry.weights import (
    Mode,
    Profile,
    cubic_taps,
    is_thicker,
    nearest_index,
    profile_weights,
    standard_widths,
)

_MAX_POINTS = 1 << 22
"""Points that are interpolated at a time."""


class FineAxis(NamedTuple):
    """Where to sample along one target axis."""

    positions: Tensor
    """Indices on the target axis."""
    weights: Tensor | None
    """(target voxels, positions) weights of the slice profile; None where the positions are the target's voxels."""


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
    inner = torch.linalg.inv(source.affine) @ target.affine
    positions = [axis.positions for axis in axes]
    rows = max(1, _MAX_POINTS // (len(positions[1]) * len(positions[2])))
    slabs = []
    for some in positions[0].split(rows):
        part = interpolate(data, inner, [some, *positions[1:]], mode)
        for axis in (2, 1):
            part = _integrated(part, axes[axis], axis)
        slabs.append(part)
    return _integrated(torch.cat(slabs, -3), axes[0], 0)


def _fine_axis(size: int, spacing: float, thickness: float, own: float, profile: Profile, *, slopes: bool) -> FineAxis:
    """Where to sample along an axis of ``size`` voxels; ``own``: mm that a source voxel is wide along it.

    The source's voxels are means over ``own`` already, so the profile adds the variance that is missing: a box has
    the width sqrt(thickness^2 - own^2), as a Gaussian has its FWHM.
    """
    voxels = torch.arange(size, dtype=torch.float64)
    if profile == "none" or not is_thicker(thickness, own):
        return FineAxis(voxels, None)
    missing = math.sqrt(thickness**2 - own**2)
    if missing <= own:  # a narrow profile is its first two moments: two samples, one standard deviation off the centre
        offset = missing / standard_widths(profile) / spacing
        positions = (voxels[:, None] + torch.tensor([-offset, offset], dtype=torch.float64)).flatten()
        return FineAxis(positions, torch.eye(size, dtype=torch.float64).repeat_interleave(2, 1) / 2)
    per_voxel = math.ceil(spacing / own)  # one in a source voxel: linear interpolation leaves nothing out
    width = missing / spacing * per_voxel
    reach = width / 2 if profile == "box" else 2.5 * width  # 2.5 FWHM is 5.9 sigma
    margin = max(0, math.ceil(reach - per_voxel / 2)) + 1
    count = size * per_voxel + 2 * margin
    first = -(margin + (per_voxel - 1) / 2) / per_voxel  # a voxel's samples lie evenly about its centre
    weights = profile_weights((voxels - first) * per_voxel, count, width, profile, own_width=0.0, slopes=slopes)
    return FineAxis(first + torch.arange(count, dtype=torch.float64) / per_voxel, weights)


def _integrated(values: Tensor, axis: FineAxis, number: int) -> Tensor:
    return values if axis.weights is None else apply_weights(values, axis.weights, values.ndim - 3 + number)


def interpolate(data: Tensor, inner: Tensor, positions: Sequence[Tensor], mode: Mode) -> Tensor:
    """``data`` (..., I, J, K) at target indices ``positions`` (X,), (Y,), (Z,); the edge value beyond the ends.

    Args:
        inner: (4, 4) affine from target index to index of ``data``.
    """
    if mode == "linear":
        return _linear(data, inner, positions)
    index = _sums(inner, positions, torch.empty(0, dtype=torch.float64))
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


def _linear(data: Tensor, inner: Tensor, positions: Sequence[Tensor]) -> Tensor:
    """Trilinear; ``grid_sample`` takes x, y, z, that is the last axis first, as fractions of the image from -1 to 1."""
    size = torch.tensor(data.shape[-3:], dtype=torch.float64)
    fraction = scaling_translation((2 / size).tolist(), (1 / size - 1).tolist()) @ inner
    where = _sums(fraction[[2, 1, 0, 3]], positions, data)[None]
    channels = data.reshape(1, -1, *data.shape[-3:])
    seen = F.grid_sample(channels, where, mode="bilinear", padding_mode="border", align_corners=False)
    return seen.reshape(*data.shape[:-3], *seen.shape[-3:])


def _sums(affine: Tensor, positions: Sequence[Tensor], like: Tensor) -> Tensor:
    """(X, Y, Z, 3) of the dtype and device of ``like``: ``affine`` (4, 4) applied to all combinations of ``positions``.

    Summed in float64, but kept as what is asked for: most of the time would go into moving float64 points about.
    """
    x, y, z = (affine[:3, axis] * p[:, None] for axis, p in enumerate(p.to(torch.float64) for p in positions))
    x, y, z = (part.to(like.device) for part in (x + affine[:3, 3], y, z))
    points = like.new_empty(len(x), len(y), len(z), 3)
    for axis in range(3):
        torch.add((x[:, None, axis] + y[:, axis])[..., None], z[:, axis], out=points[..., axis])
    return points
