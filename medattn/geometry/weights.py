"""Resampling along one axis as a (new, old) matrix of weights: interpolation, slice profiles; pure functions.

All weights of a row sum to 1, and all but nearest reproduce a linear ramp exactly where they reach no edge of the
image, so nothing is shifted.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Mode = Literal["linear", "nearest", "cubic"]
Profile = Literal["box", "gaussian", "none"]
MODES = ("linear", "nearest", "cubic")
PROFILES = ("box", "gaussian", "none")
CUBIC_SLOPE = -0.5
"""Keys' a: the value that makes cubic convolution exact for quadratics (Keys 1981, IEEE TASSP 29)."""

_FWHM_PER_SIGMA = 2.0 * math.sqrt(2.0 * math.log(2.0))


def nearest_index(positions: Tensor, size: int) -> Tensor:
    """Index of the voxel centre nearest to each position; halfway goes up, beyond the ends the end voxel."""
    return torch.floor(positions + 0.5).clamp(0, size - 1).long()


def linear_weights(positions: Tensor, size: int) -> Tensor:
    """(T, size): linear interpolation at fractional ``positions`` (T,), the edge value beyond the ends."""
    distance = (positions.clamp(0, size - 1)[:, None] - torch.arange(size, dtype=torch.float64)).abs()
    return (1 - distance).clamp_min(0)


def cubic_taps(fraction: Tensor) -> Tensor:
    """(..., 4): weights of the voxels at -1, 0, 1 and 2 from the one below, for ``fraction`` (...) in [0, 1]."""
    a, t = CUBIC_SLOPE, fraction[..., None] + torch.tensor([1.0, 0.0, -1.0, -2.0], dtype=fraction.dtype)
    t = t.abs()
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return torch.where(t <= 1, near, torch.where(t < 2, far, 0.0))


def cubic_weights(positions: Tensor, size: int) -> Tensor:
    """(T, size): cubic convolution at fractional ``positions`` (T,), the edge value beyond the ends."""
    inside = positions.clamp(0, size - 1)
    below = torch.floor(inside)
    columns = (below[:, None].long() + torch.arange(-1, 3)).clamp(0, size - 1)
    weights = torch.zeros(len(positions), size, dtype=torch.float64)
    return weights.scatter_add_(1, columns, cubic_taps(inside - below))


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
    weights = (overlap + _times_slopes(moment) if slopes else overlap) / total.clamp_min(1e-12)
    outside = total[:, 0] <= 1e-9  # wholly beyond the field of view: the edge value
    return torch.where(outside[:, None], linear_weights(positions, size), weights)


def _times_slopes(moment: Tensor) -> Tensor:
    """``moment`` (T, n) of each voxel's slope, as weights of voxels; slopes are central, at the ends one-sided."""
    size = moment.shape[1]
    if size == 1:
        return torch.zeros_like(moment)
    run = torch.full((size,), 2.0, dtype=torch.float64)
    run[[0, -1]] = 1.0
    share = moment / run
    weights = torch.zeros_like(moment)
    weights[:, 1:] += share[:, :-1]
    weights[:, -1] += share[:, -1]
    weights[:, :-1] -= share[:, 1:]
    weights[:, 0] -= share[:, 0]
    return weights


def gaussian_weights(positions: Tensor, sigma: float, size: int) -> Tensor:
    """(T, size): linear interpolation blurred by a Gaussian of ``sigma`` voxels, in closed form (erf)."""
    if sigma < 1e-6:
        return linear_weights(positions, size)
    inside = positions.clamp(0, size - 1)
    reach = math.ceil(6 * sigma) + 2
    taps = torch.floor(inside)[:, None] + torch.arange(-reach, reach + 1, dtype=torch.float64)
    ramps = _blurred_ramp(
        inside[:, None] - taps + torch.tensor([[[1.0]], [[0.0]], [[-1.0]]], dtype=torch.float64), sigma
    )
    raw = (ramps[0] - 2 * ramps[1] + ramps[2]).clamp_min(0)
    columns = taps.long().clamp(0, size - 1)  # the image continues with its edge value
    weights = torch.zeros(len(positions), size, dtype=torch.float64).scatter_add_(1, columns, raw)
    return weights / weights.sum(1, keepdim=True)


def _blurred_ramp(t: Tensor, sigma: float) -> Tensor:
    """max(t, 0) blurred by a Gaussian: its second integral."""
    z = t / sigma
    return t * torch.special.ndtr(z) + sigma / math.sqrt(2 * math.pi) * torch.exp(-(z**2) / 2)


def standard_widths(profile: Profile) -> float:
    """How many of its standard deviations the full width of a profile is."""
    return math.sqrt(12.0) if profile == "box" else _FWHM_PER_SIGMA


def is_thicker(width: float, own_width: float = 1.0) -> bool:
    """True if a profile of ``width`` integrates over more than the ``own_width`` of what it is applied to."""
    return width > own_width * (1 + 1e-6)


def profile_weights(
    positions: Tensor, size: int, width: float, profile: Profile, *, own_width: float = 1.0, slopes: bool = True
) -> Tensor:
    """(T, size): a slice profile of full ``width``, in input voxels, over an image that is ``own_width`` wide already.

    "box" is the mean over ``width``; "gaussian" adds what is missing: sigma^2 = (width^2 - own_width^2) / 2.355^2.
    """
    if profile == "box":
        return box_weights(positions, width, size, slopes=slopes)
    return gaussian_weights(positions, math.sqrt(width**2 - own_width**2) / _FWHM_PER_SIGMA, size)
