"""Random grids that hide nothing: never cubic, oblique, sheared, left- and right-handed, far from the origin."""

import numpy as np
import torch
from torch import Tensor

from medattn.geometry import VoxelGrid

SEEDS = range(6)


def random_affine(rng: np.random.Generator, *, shear: float = 0.3) -> np.ndarray:
    """(4, 4): a random rotation or reflection, shear up to ``shear``, spacing .4 to 5 mm, origin within 300 mm."""
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    sheared = np.eye(3)
    sheared[np.triu_indices(3, 1)] = rng.uniform(-shear, shear, 3)
    affine = np.eye(4)
    affine[:3, :3] = rotation @ np.diag(rng.choice([-1.0, 1.0], 3)) @ sheared @ np.diag(rng.uniform(0.4, 5.0, 3))
    affine[:3, 3] = rng.uniform(-300, 300, 3)
    return affine


def random_grid(seed: int, *, shear: float = 0.3) -> VoxelGrid:
    """A grid with three different sizes between 3 and 8."""
    rng = np.random.default_rng(seed)
    return VoxelGrid(tuple(rng.permutation(np.arange(3, 9))[:3]), torch.from_numpy(random_affine(rng, shear=shear)))


def world_of(grid: VoxelGrid) -> Tensor:
    """(I, J, K, 3): the world position of each voxel, an array that array operations can carry along."""
    return grid.to_world(grid.indices())


def grid_of(shape: tuple[int, int, int], spacing: object = 1.0) -> VoxelGrid:
    """Along the RAS axes, origin 0."""
    diagonal = torch.cat([torch.as_tensor(spacing, dtype=torch.float64).expand(3), torch.ones(1, dtype=torch.float64)])
    return VoxelGrid(shape, torch.diag(diagonal))


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal, float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(actual: Tensor, expected: object, atol: float = 1e-9) -> None:
    """Assert equal shapes and values to ``atol``, in the precision of ``actual``."""
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)
