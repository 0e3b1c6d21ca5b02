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
        draws: jitters per scan; each is used for its share of the scan's voxels, so all voxels vote once.
        balance: votes are divided by (all votes of the label)^balance. With 0 the most frequent label wins, which is
            background wherever the frame is uncertain and understates what position gives; 0.5 scores highest under
            the demo's jitter (of 0, 0.25, 0.5, 0.75, 1), so it is the harder bar for the arms.
        seed: of the jitter.
    """

    def __init__(
        self,
        scans: Sequence[Scan],
        num_classes: int,
        jitter: CoordinateJitter,
        *,
        draws: int = 4,
        balance: float = 0.0,
        seed: int = 0,
    ) -> None:
        side = round(2 * HALF_WIDTH_MM / CELL_MM)
        votes = torch.zeros(side**3 * num_classes)
        for number, scan in enumerate(scans):
            for draw in range(draws):
                told, origin = jitter.draw(scan.grid, generator_for("lookup", seed, number, draw))
                voxels, labels = told.indices().reshape(-1, 3)[draw::draws], scan.labels[0].flatten()[draw::draws]
                places = _cells(told.to_world(voxels) - origin, side) * num_classes + labels
                votes.index_add_(0, places, torch.ones(len(places)))
        by_cell = votes.reshape(-1, num_classes)
        self._side, self._votes = side, by_cell / by_cell.sum(0).clamp_min(1) ** balance

    def predict(self, told: VoxelGrid, origin_mm: Tensor) -> Tensor:
        """Votes (classes, I, J, K) for a scan of which only its told grid and origin are known."""
        points = told.to_world(told.indices().reshape(-1, 3)) - origin_mm
        return self._votes[_cells(points, self._side)].T.reshape(-1, *told.shape)


def _cells(points_mm: Tensor, side: int) -> Tensor:
    """Cell number of every point (N, 3); places beyond the atlas fall in its outermost cells."""
    cell = ((points_mm + HALF_WIDTH_MM) / CELL_MM).floor().long().clamp(0, side - 1)
    return (cell[:, 0] * side + cell[:, 1]) * side + cell[:, 2]
