"""Token coordinates with their axes kept apart, and a scan on which all frames differ."""

from collections.abc import Sequence

import torch
from torch import Tensor

from medattn.coordinates import token_coordinates
from medattn.geometry import VoxelGrid

PATCH = (4, 4, 2)


def lps_like() -> VoxelGrid:
    """(8, 12, 8) voxels of 2 x 1 x 5 mm; axis 0 runs to the left; centre of the field of view (93, 55.5, 37.5)."""
    rows = [[-2, 0, 0, 100], [0, 1, 0, 50], [0, 0, 5, 20], [0, 0, 0, 1]]
    return VoxelGrid((8, 12, 8), torch.tensor(rows))


def tokens(grid: VoxelGrid, patch: Sequence[int], frame: str, **options: object) -> Tensor:
    """Coordinates with the token axes unflattened, (i, j, k, 3)."""
    shape = grid.patch_grid(patch).shape
    return token_coordinates(grid, patch, frame, **options).reshape(*shape, -1)
