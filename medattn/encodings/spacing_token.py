"""Telling a model the spacing as information, apart from any use of it as geometry."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from medattn.geometry.grid import VoxelGrid

NUM_FEATURES = 12


def spacing_features(grids: Sequence[VoxelGrid], reference_spacing_mm: float) -> Tensor:
    """(B, 12) float64: log(spacing / reference) of the axes i, j, k, then the direction matrix row by row."""
    rows = [torch.cat([(grid.spacing_mm / reference_spacing_mm).log(), grid.direction.flatten()]) for grid in grids]
    return torch.stack(rows)


def checked_reference_mm(value: float) -> float:
    """``value`` as a positive spacing in mm."""
    if not 0 < value < math.inf:
        raise ValueError(f"reference_spacing_mm must be positive and finite, got {value!r}")
    return float(value)


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
        self.reference_spacing_mm = checked_reference_mm(reference_spacing_mm)
        self.mlp = nn.Sequential(nn.Linear(NUM_FEATURES, dim), nn.GELU(), nn.Linear(dim, dim))

    def features(self, grids: Sequence[VoxelGrid]) -> Tensor:
        """(B, 12) float64, see ``spacing_features``."""
        return spacing_features(grids, self.reference_spacing_mm)

    def forward(self, grids: Sequence[VoxelGrid]) -> Tensor:
        """(B, 1, dim) prefix token of each grid."""
        weight = next(self.mlp.parameters())
        out: Tensor = self.mlp(self.features(grids).to(weight.device, weight.dtype))
        return out[:, None]
