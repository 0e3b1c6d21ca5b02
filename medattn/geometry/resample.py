"""Axis-aligned resampling between voxel grids: anti-aliased, never shifted, separable.

Each output voxel is a weighted sum of input voxels along one axis at a time. On an axis that gets coarser, the weights
integrate the image over the slice profile of the new voxel; on the others they interpolate linearly. All weights
reproduce a linear ramp exactly where they reach no edge of the image, so nothing is shifted; equal axes are passed
through untouched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from medattn.geometry.grid import VoxelGrid, as_spacing_mm

Profile = Literal["box", "gaussian", "none"]
PROFILES = ("box", "gaussian", "none")
_FWHM_PER_SIGMA = 2.0 * math.sqrt(2.0 * math.log(2.0))


def index_map(source: VoxelGrid, target: VoxelGrid) -> tuple[Tensor, Tensor]:
    """(scale, offset), each (3,): target index t lies at source index ``scale * t + offset``.

    Raises:
        ValueError: if the grids' axes are not parallel (tolerance: 1e-4 voxel over the whole grid).
    """
    inner = torch.linalg.inv(source.affine) @ target.affine
    scale = torch.diagonal(inner[:3, :3]).clone()
    drift = (inner[:3, :3] - torch.diag(scale)).abs() * torch.tensor(target.shape, dtype=torch.float64)
    if float(drift.max()) > 1e-4:
        raise ValueError(
            "axis-aligned resampling needs grids with parallel axes in the same order: source axes "
            f"{source.axcodes} {source.direction.tolist()}, target axes {target.axcodes} {target.direction.tolist()}"
        )
    return scale, inner[:3, 3].clone()


def linear_weights(positions: Tensor, size: int) -> Tensor:
    """(T, size): linear interpolation at fractional ``positions`` (T,), the edge value beyond the ends."""
    distance = (positions.clamp(0, size - 1)[:, None] - torch.arange(size, dtype=torch.float64)).abs()
    return (1 - distance).clamp_min(0)


def box_weights(positions: Tensor, width: float, size: int, *, slopes: bool = True) -> Tensor:
    """(T, size): the mean over [position - width/2, position + width/2], in voxels of the input.

    Second-order conservative remapping: each input voxel is taken as its mean plus a slope (central difference), so
    a box over whole voxels is their plain mean, and a linear ramp is exact for every width and position. The price is
    an overshoot of up to 5 % of a step beside it. Without ``slopes`` each input voxel is constant: plain overlaps.
    """
    low = (positions - width / 2).clamp(-0.5, size - 0.5)[:, None]
    high = (positions + width / 2).clamp(-0.5, size - 0.5)[:, None]
    centre = torch.arange(size, dtype=torch.float64)
    a, b = torch.maximum(low, centre - 0.5), torch.minimum(high, centre + 0.5)
    overlap = (b - a).clamp_min(0)
    moment = torch.where(overlap > 0, overlap * ((a + b) / 2 - centre), 0.0)
    total = overlap.sum(1, keepdim=True)
    weights = (overlap + moment @ _slopes(size) if slopes else overlap) / total.clamp_min(1e-12)
    outside = total[:, 0] <= 1e-9  # wholly beyond the field of view: the edge value
    return torch.where(outside[:, None], linear_weights(positions, size), weights)


def _slopes(size: int) -> Tensor:
    """(size, size): row n gives the slope at voxel n, central inside and one-sided at the ends."""
    slopes = torch.zeros(size, size, dtype=torch.float64)
    for n in range(size):
        before, after = max(n - 1, 0), min(n + 1, size - 1)
        if after > before:
            slopes[n, after] += 1 / (after - before)
            slopes[n, before] -= 1 / (after - before)
    return slopes


def gaussian_weights(positions: Tensor, sigma: float, size: int) -> Tensor:
    """(T, size): linear interpolation blurred by a Gaussian of ``sigma`` voxels, in closed form (erf)."""
    if sigma < 1e-6:
        return linear_weights(positions, size)
    reach = math.ceil(6 * sigma) + 2  # the image continues with its edge value
    taps = torch.arange(-reach, size + reach, dtype=torch.float64)
    distance = positions.clamp(0, size - 1)[:, None] - taps

    def ramp(t: Tensor) -> Tensor:  # second integral of the Gaussian
        z = t / sigma
        density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        return t * torch.special.ndtr(z) + sigma * density

    raw = (ramp(distance + 1) - 2 * ramp(distance) + ramp(distance - 1)).clamp_min(0)
    weights = raw[:, reach : reach + size].clone()
    weights[:, 0] += raw[:, :reach].sum(1)
    weights[:, -1] += raw[:, reach + size :].sum(1)
    return weights / weights.sum(1, keepdim=True)


def axis_weights(
    size: int, target_size: int, scale: float, offset: float, width: float, profile: Profile, *, slopes: bool = True
) -> Tensor:
    """(target_size, size) weights along one axis; ``width`` is the new voxel's thickness in input voxels."""
    positions = scale * torch.arange(target_size, dtype=torch.float64) + offset
    if profile == "none" or width <= 1 + 1e-6:
        return linear_weights(positions, size)
    if profile == "box":
        return box_weights(positions, width, size, slopes=slopes)
    return gaussian_weights(positions, math.sqrt(width**2 - 1) / _FWHM_PER_SIGMA, size)


def resample(
    data: Tensor,
    source: VoxelGrid,
    target: VoxelGrid,
    *,
    profile: Profile = "box",
    thickness_mm: float | Sequence[float] | None = None,
) -> Tensor:
    """Values of ``data`` (..., I, J, K) on ``source``, seen on ``target``; differentiable, any float dtype.

    Args:
        profile: slice profile on axes whose new voxels are thicker than the old: "box" (mean over the voxel),
            "gaussian" (sigma^2 = (fwhm_out^2 - fwhm_in^2) / 2.355^2), or "none" (linear interpolation: aliases).
        thickness_mm: extent of a target voxel's profile, one number or one per axis; its spacing by default. 5 mm
            slices every 2 mm are ``thickness_mm=5`` on a grid of spacing 2.

    Beyond the outermost voxel centres the edge value continues; a box that is partly outside the field of view is the
    mean over its part inside. Equal grids return ``data`` itself.

    Raises:
        ValueError: for an unknown profile, data not on ``source``, values that are not finite (each would spread
            along its lines), or grids whose axes are not parallel.
        TypeError: if ``data`` is not floating point (labels: ``resample_labels``).
    """
    return _resample(data, source, target, profile, thickness_mm, slopes=True)


def _resample(
    data: Tensor,
    source: VoxelGrid,
    target: VoxelGrid,
    profile: Profile,
    thickness_mm: float | Sequence[float] | None,
    *,
    slopes: bool,
) -> Tensor:
    """``resample``; without ``slopes`` a box takes plain overlaps."""
    _check(data, "data", source, profile)
    if not data.is_floating_point():
        raise TypeError(f"data must be floating point, got {data.dtype}; for labels use resample_labels")
    scale, offset = index_map(source, target)
    thickness = target.spacing_mm.tolist() if thickness_mm is None else as_spacing_mm(thickness_mm, "thickness_mm")
    spacing = source.spacing_mm.tolist()
    weights: dict[int, Tensor] = {}
    for axis in sorted(range(3), key=lambda a: target.shape[a] / source.shape[a]):  # shrinking axes first: less work
        size, new_size, width = source.shape[axis], target.shape[axis], thickness[axis] / spacing[axis]
        step, start = float(scale[axis]), float(offset[axis])
        if size == new_size and abs(step - 1) * size < 1e-6 and abs(start) < 1e-6 and width <= 1 + 1e-6:
            continue
        weights[axis] = axis_weights(size, new_size, step, start, width, profile, slopes=slopes)
    if weights:
        _check_finite(data)
    for axis, matrix in weights.items():
        data = _along_axis(data, matrix.to(data.device, data.dtype), data.ndim - 3 + axis)
    return data


def _check(values: Tensor, name: str, source: VoxelGrid, profile: str) -> None:
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")
    if tuple(values.shape[-3:]) != source.shape:
        raise ValueError(f"{name} must end in the source grid's shape {source.shape}, got {tuple(values.shape)}")


def _check_finite(data: Tensor) -> None:
    """Raise if a value is NaN or inf: the sum, which is cheap, is then not finite (nor where it overflows)."""
    if bool(torch.isfinite(data.sum(dtype=torch.promote_types(data.dtype, torch.float32)))):
        return
    count = int((~torch.isfinite(data)).sum())
    if count:
        raise ValueError(f"data must be finite, fill or mask it first; {count} of {data.numel()} values are NaN or inf")


def _along_axis(data: Tensor, weights: Tensor, axis: int) -> Tensor:
    if axis == data.ndim - 1:
        return data @ weights.T
    flat = data.flatten(axis + 1)  # (..., n, rest)
    return (weights @ flat).unflatten(-1, data.shape[axis + 1 :])


def resample_labels(labels: Tensor, source: VoxelGrid, target: VoxelGrid, *, profile: Profile = "box") -> Tensor:
    """Integer ``labels`` (..., I, J, K) on ``target``: each voxel takes the label that fills most of it.

    Partial volume: with the box profile a label's share is the part of the new voxel that its voxels cover, and the
    largest share wins (the lower label on a tie). Equal grids return ``labels`` itself.

    Raises:
        ValueError: as ``resample``.
        TypeError: if ``labels`` is not an integer tensor.
    """
    _check(labels, "labels", source, profile)
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"labels must be integers, got {labels.dtype}")
    if source.is_close(target, atol_mm=1e-6):
        return labels
    shape = (*labels.shape[:-3], *target.shape)
    best, winner = torch.full(shape, -1.0, device=labels.device), labels.new_zeros(shape)
    for label in torch.unique(labels):
        share = _resample((labels == label).float(), source, target, profile, None, slopes=False)
        better = share > best + 1e-6
        best, winner = torch.where(better, share, best), torch.where(better, label, winner)
    return winner
