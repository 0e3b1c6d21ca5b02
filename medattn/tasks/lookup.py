"""The image-free baseline: which label is usual at this place of the patient frame?

One subject in one frame is an atlas. What a lookup by position scores without seeing a voxel bounds what an arm's score
may owe to memory; it must be low before a difference between arms means anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from medattn.coordinates import CoordinateJitter
from medattn.geometry import VoxelGrid
from medattn.tasks.sampling import generator_for
from medattn.tasks.subject import Scan

CELL_MM = 6.0
HALF_WIDTH_MM = 300.0


class PositionLookup:
    """How often each label was seen per cell of ``CELL_MM`` in ``patient_mm``, over jittered training scans.

    Args:
        scans: the training scans.
        jitter: how far the told frame strays, as it did for the arms.
        draws: jittered copies of each scan that are counted.
        seed: of the jitter.
    """

    def __init__(
        self, scans: Sequence[Scan], num_classes: int, jitter: CoordinateJitter, *, draws: int = 4, seed: int = 0
    ) -> None:
        side = round(2 * HALF_WIDTH_MM / CELL_MM)
        votes = torch.zeros(side**3 * num_classes, dtype=torch.int64)
        for number, scan in enumerate(scans):
            for draw in range(draws):
                told, origin = jitter.draw(scan.grid, generator_for("lookup", seed, number, draw))
                places = _cells(told, origin, side) * num_classes + scan.labels[0].flatten()
                votes += torch.bincount(places, minlength=len(votes))
        self._side, self._votes = side, votes.reshape(-1, num_classes).float()

    def predict(self, told: VoxelGrid, origin_mm: Tensor) -> Tensor:
        """Votes (classes, I, J, K) for a scan of which only its told grid and origin are known."""
        return self._votes[_cells(told, origin_mm, self._side)].T.reshape(-1, *told.shape)


def _cells(told: VoxelGrid, origin_mm: Tensor, side: int) -> Tensor:
    """Cell number of every voxel, flat in raster order; places beyond the atlas fall in its outermost cells."""
    points = told.to_world(told.indices().reshape(-1, 3)) - origin_mm
    cell = ((points + HALF_WIDTH_MM) / CELL_MM).floor().long().clamp(0, side - 1)
    return (cell[:, 0] * side + cell[:, 1]) * side + cell[:, 2]
