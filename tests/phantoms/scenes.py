"""Scenes for tests: random crowds of rotated ellipsoids, and layers as flat as ellipsoids get."""

import numpy as np
import torch
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.phantoms import Ellipsoid, Scene

HALF_SPACE_MM = 1e6


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return rotation


def crowd(seed: int, grid: VoxelGrid, count: int = 12) -> Scene:
    """Overlapping ellipsoids with labels 0 to 4 around the middle of ``grid``, of about its size and smaller."""
    rng = np.random.default_rng(seed)
    center, size = grid.fov_center_mm.numpy(), float(grid.extent_mm.max())
    return Scene(
        -7.25,
        tuple(
            Ellipsoid(
                tuple(center + rng.uniform(-0.4, 0.4, 3) * size),
                tuple(rng.uniform(0.08, 0.4, 3) * size),
                float(rng.normal()) * 100,
                int(rng.integers(0, 5)),
                tuple(map(tuple, random_rotation(rng))),
            )
            for _ in range(count)
        ),
    )


def below(height_mm: float, intensity: float, label: int) -> Ellipsoid:
    """Everything under ``height_mm`` along S, to a few nm near the S axis."""
    return Ellipsoid((0, 0, height_mm - HALF_SPACE_MM), (HALF_SPACE_MM,) * 3, intensity, label)


def above(height_mm: float, intensity: float, label: int) -> Ellipsoid:
    """Everything over ``height_mm`` along S."""
    return Ellipsoid((0, 0, height_mm + HALF_SPACE_MM), (HALF_SPACE_MM,) * 3, intensity, label)


def one_voxel(spacing_mm: object = 8.0) -> VoxelGrid:
    return VoxelGrid.from_spacing((1, 1, 1), spacing_mm)


def points_in_voxels(grid: VoxelGrid, steps: tuple[int, int, int]) -> Tensor:
    """(I, J, K, S, 3) mm: the midpoints of each voxel's equal parts, one at a time: the oracle for rendering."""
    parts = [[(s + 0.5) / n - 0.5 for s in range(n)] for n in steps]
    offsets = torch.tensor([[a, b, c] for a in parts[0] for b in parts[1] for c in parts[2]], dtype=torch.float64)
    return grid.to_world(grid.indices()[..., None, :] + offsets)
