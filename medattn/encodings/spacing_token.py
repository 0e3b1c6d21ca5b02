"""Telling a model the spacing as information, apart from any use of it as geometry."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from medattn.geometry.grid import VoxelGrid


class SpacingToken(nn.Module):
    """One extra token per volume that carries its voxel spacing and axis directions, as told by its grid.

    Features: log(spacing / reference) of the three array axes and the nine direction cosines, through a two-layer
    perceptron. It has no place in space: it is not rotated and gets no position.

    Args:
        dim: token width.
        reference_spacing_mm: the spacing whose three log features are 0.
    """

    def __init__(self, dim: int, *, reference_spacing_mm: float = 1.0) -> None:
        super().__init__()
        if not 0 < reference_spacing_mm < math.inf:
            raise ValueError(f"reference_spacing_mm must be positive and finite, got {reference_spacing_mm!r}")
        self.reference_spacing_mm = float(reference_spacing_mm)
        self.mlp = nn.Sequential(nn.Linear(12, dim), nn.GELU(), nn.Linear(dim, dim))

    def features(self, grids: Sequence[VoxelGrid]) -> Tensor:
        """(B, 12) float64: log spacing ratios (i, j, k), then the direction matrix row by row."""
        rows = [
            torch.cat([(grid.spacing_mm / self.reference_spacing_mm).log(), grid.direction.flatten()]) for grid in grids
        ]
        return torch.stack(rows)

    def forward(self, grids: Sequence[VoxelGrid]) -> Tensor:
        """(B, 1, dim) prefix token of each grid."""
        weight = next(self.mlp.parameters())
        out: Tensor = self.mlp(self.features(grids).to(weight.device, weight.dtype))
        return out[:, None]
