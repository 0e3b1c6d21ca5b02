"""Resampling label maps by partial volume, and what that does to the size of each label."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from medattn.geometry.grid import Triple, VoxelGrid, as_spacing_mm
from medattn.geometry.resample import Thickness, checked_profile, field_of_view, regridded
from medattn.geometry.weights import Profile


def resample_labels(
    labels: Tensor,
    source: VoxelGrid,
    target: VoxelGrid,
    *,
    profile: Profile = "box",
    thickness_mm: Thickness | None = None,
    outside: int | None = None,
) -> Tensor:
    """Integer ``labels`` (..., I, J, K) on ``target``: each voxel takes the label that fills most of it.

    Partial volume: with the box profile a label's share is the part of the new voxel that its voxels cover, and the
    largest share wins (the lower label on a tie). On axes that do not get coarser shares are interpolated linearly.
    Equal grids return ``labels`` itself. ``label_changes`` tells what was lost.

    Raises:
        ValueError: as ``resample``.
        TypeError: if ``labels`` is not an integer tensor.
    """
    checked_profile(labels, "labels", source, target, "linear", profile)
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"labels must be integers, got {labels.dtype}")
    if source.is_close(target, atol_mm=1e-6) and thickness_mm is None:
        return labels
    best = torch.full((*labels.shape[:-3], *target.shape), -1.0, device=labels.device)
    winner = labels.new_zeros(best.shape)
    for label in torch.unique(labels):
        mask = labels == label
        old, new = _regions(mask, source, target, target.spacing_mm.tolist() if thickness_mm is None else thickness_mm)
        if new is None:
            continue
        part, best_here, winner_here = _part(mask, old).float(), _part(best, new), _part(winner, new)
        share = regridded(part, source.crop(*old), target.crop(*new), "linear", profile, thickness_mm, slopes=False)
        better = share > best_here + 1e-6
        best_here.copy_(torch.where(better, share, best_here))
        winner_here.masked_fill_(better, label)
    if outside is not None:
        winner = winner.masked_fill(~field_of_view(source, target).to(winner.device), outside)
    return winner


Bounds = tuple[Triple, Triple]
"""(start, stop) as ``VoxelGrid.crop`` takes them."""


def _part(values: Tensor, bounds: Bounds) -> Tensor:
    """A view of the last three axes of ``values`` within ``bounds``."""
    for axis, (start, stop) in zip((-3, -2, -1), zip(*bounds, strict=True), strict=True):
        values = values.narrow(axis, start, stop - start)
    return values


def _regions(
    mask: Tensor, source: VoxelGrid, target: VoxelGrid, thickness_mm: Thickness
) -> tuple[Bounds, Bounds | None]:
    """The part of ``source`` that decides where a label is, and the part of ``target`` that it can reach (or None).

    Everything if the label touches the edge of the source, since the edge value continues.
    """
    whole = ((0, 0, 0), source.shape), ((0, 0, 0), target.shape)
    box = _bounding_box(mask)
    if any(a == 0 or b == n for a, b, n in zip(*box, source.shape, strict=True)):
        return whole
    reach_mm = 2.5 * max(as_spacing_mm(thickness_mm, "thickness_mm")) + float(source.spacing_mm.max())
    reach = math.ceil(reach_mm / float(source.spacing_mm.min()))  # voxels; 2.5 FWHM holds a Gaussian, and a box
    corners = torch.cartesian_prod(
        *(torch.tensor([a - reach, b - 1.0 + reach], dtype=torch.float64) for a, b in zip(*box, strict=True))
    )
    index = target.to_index(source.to_world(corners))
    new = _clipped(index.amin(0).floor().tolist(), (index.amax(0).ceil() + 1).tolist(), target.shape)
    old = _clipped([a - 2 * reach for a in box[0]], [b + 2 * reach for b in box[1]], source.shape)
    assert old is not None
    return old, new


def _bounding_box(mask: Tensor) -> Bounds:
    used = mask.reshape(-1, *mask.shape[-3:]).any(0)
    ranges = [used.any(1).any(1), used.any(0).any(1), used.any(0).any(0)]
    found = [axis.nonzero()[:, 0] for axis in ranges]
    first, last = [int(f[0]) for f in found], [int(f[-1]) + 1 for f in found]
    return (first[0], first[1], first[2]), (last[0], last[1], last[2])


def _clipped(start: list[float], stop: list[float], shape: Triple) -> Bounds | None:
    low = [max(0, int(a)) for a in start]
    high = [min(n, int(b)) for b, n in zip(stop, shape, strict=True)]
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return None
    return (low[0], low[1], low[2]), (high[0], high[1], high[2])


class LabelChange(NamedTuple):
    """How much of a label there was before and is after a resampling, in mm^3."""

    label: int
    before_mm3: float
    after_mm3: float

    @property
    def is_lost(self) -> bool:
        """True if nothing of the label is left."""
        return self.after_mm3 == 0


def label_changes(
    before: Tensor, source: VoxelGrid, after: Tensor, target: VoxelGrid, *, tolerance: float = 0.5
) -> list[LabelChange]:
    """Labels (0, the background, apart) that were lost, or whose volume changed by over ``tolerance`` of itself.

    Volumes are voxel counts times the voxel's volume; for batches they are summed.
    """
    found = []
    sizes = [_sizes(before, source), _sizes(after, target)]
    for label, old in sizes[0].items():
        new = sizes[1].get(label, 0.0)
        if label != 0 and abs(new - old) > tolerance * old:
            found.append(LabelChange(label, old, new))
    return found


def _sizes(labels: Tensor, grid: VoxelGrid) -> dict[int, float]:
    voxel_mm3 = float(torch.linalg.det(grid.affine[:3, :3]).abs())
    values, counts = torch.unique(labels, return_counts=True)
    return {int(v): int(n) * voxel_mm3 for v, n in zip(values, counts, strict=True)}
