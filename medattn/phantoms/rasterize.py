"""How much of each voxel each ellipsoid shows: counts of points, front to back, tile by tile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.geometry.grid import Triple
from medattn.phantoms.ellipsoid import SURFACE, Ellipsoid

Box = tuple[slice, slice, slice]

_TILE_POINTS = 1 << 20


def rasterize(
    ellipsoids: Sequence[Ellipsoid], background: float, grid: VoxelGrid, steps: Triple
) -> tuple[Tensor, Tensor]:
    """Mean intensity (I, J, K) float32 and most frequent label (I, J, K) int64 of ``steps`` points per voxel.

    The points are the midpoints of a voxel's equal parts; a later ellipsoid hides earlier ones. Among labels with
    equally many points the lower wins.
    """
    solids = [_Solid.on(grid, ellipsoid) for ellipsoid in ellipsoids]
    image, labels = torch.empty(grid.shape), torch.empty(grid.shape, dtype=torch.int64)
    for tile in _tiles(grid.shape, steps):
        image[tile], labels[tile] = _render(solids, background, tile, steps)
    return image, labels


def _render(solids: list[_Solid], background: float, tile: Box, steps: Triple) -> tuple[Tensor, Tensor]:
    """Image and labels of the voxels of ``tile``: counts the points that each ellipsoid shows, from front to back.

    Counts are integers, added up in the ellipsoids' order, so the order of voxels and points changes no bit.
    """
    points, shape = math.prod(steps), tuple(s.stop - s.start for s in tile)
    names = sorted({0, *(solid.label for solid in solids)})
    shares = torch.zeros((len(names), *shape), dtype=torch.int32)
    shares[0] = points
    covered = torch.zeros((*steps, *shape), dtype=torch.bool)
    total, rest = torch.zeros(shape, dtype=torch.float64), torch.full(shape, points, dtype=torch.int32)
    for solid in reversed(solids):
        box = solid.box(tile)
        if box is None:
            continue
        count = solid.show(covered, tile, box)
        total[box] += solid.intensity * count
        rest[box] -= count
        shares[0][box] -= count
        shares[names.index(solid.label)][box] += count
    image = (total + background * rest) / points
    return image.float(), _largest(shares, names)


def _tiles(shape: Triple, steps: Triple) -> Iterator[Box]:
    """Boxes of voxels that cover ``shape``, of at most ``_TILE_POINTS`` points or one row: what memory it takes."""
    per_row = shape[2] * math.prod(steps)
    wide = min(shape[1], max(1, _TILE_POINTS // per_row))
    deep = min(shape[0], max(1, _TILE_POINTS // (per_row * wide)))
    for i in range(0, shape[0], deep):
        for j in range(0, shape[1], wide):
            yield slice(i, min(i + deep, shape[0])), slice(j, min(j + wide, shape[1])), slice(0, shape[2])


def _largest(shares: Tensor, names: list[int]) -> Tensor:
    """The name (ascending) with the largest share (N, ...), the lower one on a tie."""
    best, winner = shares[0], torch.full(shares.shape[1:], names[0], dtype=torch.int64)
    for share, name in zip(shares[1:], names[1:], strict=True):
        winner[share > best] = name
        best = torch.maximum(best, share)
    return winner


@dataclass(frozen=True)
class _Solid:
    """An ellipsoid in voxel indices: inside where d' Q d <= 1, d = index - center; |d_a| <= reach_a there."""

    form: list[list[float]]
    center: list[float]
    reach: list[float]
    intensity: float
    label: int

    @classmethod
    def on(cls, grid: VoxelGrid, ellipsoid: Ellipsoid) -> _Solid:
        to_unit = ellipsoid.to_unit_sphere() @ grid.affine[:3, :3]
        form = to_unit.T @ to_unit
        reach, center = torch.linalg.inv(form).diagonal().sqrt(), grid.to_index(ellipsoid.center_mm)
        return cls(form.tolist(), center.tolist(), reach.tolist(), ellipsoid.intensity, ellipsoid.label)

    def box(self, tile: Box) -> Box | None:
        """The part of ``tile``, counted from its start, whose voxels may touch the ellipsoid; None if there is none."""
        found = []
        for span, center, reach in zip(tile, self.center, self.reach, strict=True):
            first = max(span.start, math.floor(center - reach + 0.5 - 1e-6))
            stop = min(span.stop, math.floor(center + reach + 0.5 + 1e-6) + 1)
            if first >= stop:
                return None
            found.append(slice(first - span.start, stop - span.start))
        return found[0], found[1], found[2]

    def show(self, covered: Tensor, tile: Box, box: Box) -> Tensor:
        """Points of each voxel of ``box`` (int32) that lie inside and were free in ``covered``; covers them.

        Args:
            covered: (Sx, Sy, Sz, I, J, K) over ``tile``.
        """
        x, y, z = (self._away(covered, tile, box, axis) for axis in range(3))
        (xx, xy, xz), (_, yy, yz), (_, _, zz) = self.form
        value = 2 * (xz * x + yz * y) + zz * z
        value.mul_(z).add_(x * (xx * x + 2 * xy * y) + yy * y * y)
        seen = covered[(..., *box)]
        shown = (value <= SURFACE).logical_and_(~seen)
        seen |= shown
        return shown.flatten(0, 2).sum(0, dtype=torch.int32)

    def _away(self, covered: Tensor, tile: Box, box: Box, axis: int) -> Tensor:
        """Distance of the points of ``box`` from the centre along ``axis``, in voxels, shaped to broadcast."""
        steps = covered.shape[axis]
        parts = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps - 0.5
        voxels = torch.arange(box[axis].start, box[axis].stop, dtype=torch.float64) + tile[axis].start
        shape = [1] * 6
        shape[axis], shape[axis + 3] = steps, len(voxels)
        return (voxels + (parts[:, None] - self.center[axis])).reshape(shape)
