"""Small ``MetaTensor`` images whose place in the world is known."""

from __future__ import annotations

from typing import Any

import torch
from monai.data import MetaTensor

from medattn.geometry import VoxelGrid
from medattn.integrations.monai import to_metatensor
from medattn.volumes import Volume
from tests.geometry.grids import grid_of, noise, world_of


def world_volume(grid: VoxelGrid) -> Volume:
    """Three channels that hold each voxel's own position in mm."""
    return Volume(world_of(grid).permute(3, 0, 1, 2).contiguous(), grid, name="world")


def tensor_on(grid: VoxelGrid, values: Any = None, name: str = "") -> MetaTensor:
    data = noise(1, *grid.shape) if values is None else torch.as_tensor(values).expand(1, *grid.shape)
    return to_metatensor(Volume(data, grid, name=name))


def along_k(values: Any, spacing_mm: float = 1.0) -> MetaTensor:
    """(1, 1, 1, n), origin 0."""
    values = torch.as_tensor(values)
    return to_metatensor(Volume(values[None, None, None], grid_of((1, 1, len(values)), spacing_mm)))
