"""Resampling between any two voxel grids: anti-aliased, never shifted, batched, differentiable.

Between grids with parallel axes (in any order and direction) each axis is a banded matrix product; oblique ones are
interpolated at points. On an axis that gets coarser the image is integrated over the slice profile of the new voxel; on
the others it is interpolated. Equal axes are passed through untouched.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from medattn.geometry.grid import VoxelGrid, as_spacing_mm
from medattn.geometry.oblique import resample_oblique
from medattn.geometry.separable import alignment, resample_parallel
from medattn.geometry.weights import MODES, PROFILES, Mode, Profile

Thickness = float | Sequence[float]


def resample(
    data: Tensor,
    source: VoxelGrid,
    target: VoxelGrid,
    *,
    mode: Mode = "linear",
    profile: Profile | None = None,
    thickness_mm: Thickness | None = None,
    outside: float | None = None,
) -> Tensor:
    """Values of ``data`` (..., I, J, K) on ``source``, seen on ``target``; differentiable, any float dtype and device.

    Args:
        mode: how to interpolate on axes that do not get coarser: "linear", "cubic" (Keys' cubic convolution) or
            "nearest" (any dtype; takes no profile).
        profile: slice profile on axes whose new voxels are thicker than the old: "box" (mean over the voxel; the
            default), "gaussian" (sigma^2 = (fwhm_out^2 - fwhm_in^2) / 2.355^2), or "none" (interpolation: aliases).
        thickness_mm: extent of a target voxel's profile, one number or one per target axis; its spacing by default.
            5 mm slices every 2 mm are ``thickness_mm=5`` on a grid of spacing 2.
        outside: value of target voxels whose centres lie outside the field of view; by default the edge value
            continues.

    Between parallel grids, a box that is partly outside the field of view is the mean over its part inside; between
    oblique ones the edge value continues. Equal grids return ``data`` itself.

    Raises:
        ValueError: for an unknown mode or profile, a profile with mode "nearest", data not on ``source``, or values
            that are not finite where the result needs them (each would spread along its lines), or a target wholly
            outside the source's field of view.
        TypeError: if ``data`` is not floating point and has to be interpolated (labels: ``resample_labels``).
    """
    profile = checked_profile(data, "data", source, target, mode, profile)
    if mode != "nearest" and not data.is_floating_point():
        raise TypeError(f"data must be floating point, got {data.dtype}; for labels use resample_labels")
    seen = regridded(data, source, target, mode, profile, thickness_mm)
    if mode != "nearest" and seen is not data:
        _check_finite(data, seen)
    if outside is not None:
        seen = seen.masked_fill(~field_of_view(source, target).to(seen.device), outside)
    return seen


def regridded(
    data: Tensor,
    source: VoxelGrid,
    target: VoxelGrid,
    mode: Mode,
    profile: Profile,
    thickness_mm: Thickness | None,
    *,
    slopes: bool = True,
) -> Tensor:
    """``resample`` without checks of its values; without ``slopes`` a box takes plain overlaps."""
    thickness = target.spacing_mm.tolist() if thickness_mm is None else as_spacing_mm(thickness_mm, "thickness_mm")
    work = data.float() if data.dtype in (torch.float16, torch.bfloat16) and mode != "nearest" else data
    along = alignment(source, target)
    if along is None:
        seen = resample_oblique(work, source, target, thickness, mode, profile, slopes=slopes)
    else:
        spacing = source.spacing_mm.tolist()
        widths = [thick / spacing[axis] for thick, axis in zip(thickness, along.axes, strict=True)]
        seen = resample_parallel(work, along, target.shape, widths, mode, profile, slopes=slopes)
    return data if seen is work else seen.to(data.dtype)


def checked_profile(
    values: Tensor, name: str, source: VoxelGrid, target: VoxelGrid, mode: str, profile: Profile | None
) -> Profile:
    """The profile to use: a box, and none for "nearest", unless one is named; raises what ``resample`` does."""
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if profile is not None and profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")
    if mode == "nearest" and profile not in (None, "none"):
        raise ValueError(f"mode 'nearest' takes no slice profile, got profile {profile!r}")
    if tuple(values.shape[-3:]) != source.shape:
        raise ValueError(f"{name} must end in the source grid's shape {source.shape}, got {tuple(values.shape)}")
    _check_overlap(source, target)
    return profile or ("none" if mode == "nearest" else "box")


def _check_overlap(source: VoxelGrid, target: VoxelGrid) -> None:
    """Raise if the fields of view lie apart along an axis of ``source``: nothing but its edge would be seen."""
    for axis, low, high, size in zip("ijk", *_end_index(source, target), source.shape, strict=True):
        if high <= -0.5 or low >= size - 0.5:
            raise ValueError(
                f"target must overlap the source's field of view, which has {size} voxels on axis {axis}; it lies at "
                f"index {low:.6g} to {high:.6g} (are both in RAS+ mm?)"
            )


def _check_finite(data: Tensor, seen: Tensor) -> None:
    """Raise if NaN or inf in ``data`` has reached ``seen``, whose sum (cheap) is then not finite."""
    if bool(torch.isfinite(seen.sum(dtype=torch.promote_types(seen.dtype, torch.float32)))):
        return
    count = int((~torch.isfinite(data)).sum())
    if count:
        raise ValueError(f"data must be finite, fill or mask it first; {count} of {data.numel()} values are NaN or inf")


def field_of_view(source: VoxelGrid, target: VoxelGrid, *, slack: float = 0.0) -> Tensor:
    """Boolean, of the target's shape: True where a voxel's centre lies in a voxel of ``source`` (to 1e-6 voxel).

    Args:
        slack: where the target ends no more than this many source voxels beyond the source, its end counts as inside:
            a grid of rounded size falls short of the field of view that it was made for by up to a quarter voxel.
    """
    inner = torch.linalg.inv(source.affine) @ target.affine
    i, j, k = (torch.arange(n, dtype=torch.float64) for n in target.shape)
    ends = _end_index(source, target)
    inside = torch.ones(target.shape, dtype=torch.bool)
    for axis, size in enumerate(source.shape):
        row = inner[axis]
        low, high = -0.5 - 1e-6, size - 0.5 + 1e-6
        low -= slack if ends[0][axis] >= low - slack else 0.0
        high += slack if ends[1][axis] <= high + slack else 0.0
        index = row[0] * i[:, None, None] + row[1] * j[:, None] + row[2] * k + row[3]
        inside &= (index >= low) & (index <= high)
    return inside


def _end_index(source: VoxelGrid, target: VoxelGrid) -> tuple[list[float], list[float]]:
    """Lowest and highest source index, per source axis, of the corners of the target's field of view."""
    corners = torch.cartesian_prod(*(torch.tensor([-0.5, n - 0.5], dtype=torch.float64) for n in target.shape))
    index = source.to_index(target.to_world(corners))
    return index.amin(0).tolist(), index.amax(0).tolist()
