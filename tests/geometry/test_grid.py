import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from medattn.geometry import VoxelGrid
from tests.geometry.grids import SEEDS, close, random_grid, world_of

IDENTITY = torch.eye(4, dtype=torch.float64)


# -- what a grid is ------------------------------------------------------------------------------------


def test_properties_of_a_permuted_grid() -> None:
    rows = [[0, 0, 3, 10], [1, 0, 0, 20], [0, 2, 0, 30], [0, 0, 0, 1]]
    grid = VoxelGrid((4, 5, 6), torch.tensor(rows))
    assert grid.affine.dtype == torch.float64
    assert grid.spacing_mm.tolist() == [1.0, 2.0, 3.0]
    assert grid.extent_mm.tolist() == [4.0, 10.0, 18.0]
    assert grid.axcodes == ("A", "S", "R")
    assert grid.direction.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert grid.origin_mm.tolist() == [10.0, 20.0, 30.0]
    assert grid.center_index.tolist() == [1.5, 2.0, 2.5]
    assert grid.fov_center_mm.tolist() == [17.5, 21.5, 34.0]
    assert grid.is_orthogonal


def test_a_permuted_grid_reoriented_to_ras_has_permuted_shape_and_spacing() -> None:
    rows = [[0, 0, 3, 0], [1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 1]]
    canonical = VoxelGrid((4, 5, 6), torch.tensor(rows)).reoriented("RAS")
    assert canonical.shape == (6, 4, 5)
    assert canonical.spacing_mm.tolist() == [3.0, 1.0, 2.0]
    assert canonical.axcodes == ("R", "A", "S")


def test_a_sheared_grid_keeps_its_shear() -> None:
    affine = IDENTITY.clone()
    affine[1, 2] = 0.3
    grid = VoxelGrid((2, 3, 4), affine)
    close(grid.spacing_mm, [1, 1, 1.0440307], atol=1e-7)
    assert grid.to_world([0, 0, 1]).tolist() == [0.0, 0.3, 1.0]
    assert not grid.is_orthogonal


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rotated_grid_is_orthogonal_and_a_sheared_one_is_not(seed: int) -> None:
    assert random_grid(seed, shear=0.0).is_orthogonal
    assert not random_grid(seed, shear=0.3).is_orthogonal


def test_from_spacing_centres_the_field_of_view() -> None:
    grid = VoxelGrid.from_spacing((4, 3, 2), (1, 2, 5), center_mm=(10, 20, 30))
    assert grid.shape == (4, 3, 2)
    assert grid.origin_mm.tolist() == [8.5, 18.0, 27.5]
    assert grid.fov_center_mm.tolist() == [10.0, 20.0, 30.0]
    assert VoxelGrid.from_spacing((4, 3, 2), 2.0).spacing_mm.tolist() == [2.0, 2.0, 2.0]


def test_a_grid_cannot_be_changed_through_its_fields_or_its_source() -> None:
    affine = torch.eye(4, dtype=torch.float64)
    grid = VoxelGrid((2, 3, 4), affine)
    affine[0, 3] = 7.0
    grid.origin_mm[0] = 7.0
    assert grid.affine[0, 3] == 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        grid.shape = (1, 1, 1)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4, 5), (0, 3, 4), (-1, 3, 4), (2.0, 3, 4), (True, 3, 4), 4, "234"])
def test_a_shape_is_three_positive_integers(shape: object) -> None:
    with pytest.raises(ValueError, match=r"shape must be (three )?positive integers.*, got"):
        VoxelGrid(shape, IDENTITY)


@pytest.mark.parametrize(
    "kind", [np.asarray, torch.tensor, copy.deepcopy, lambda rows: np.array(rows, np.float32), np.asfortranarray]
)
def test_an_affine_is_any_array_and_is_copied(kind: Callable[[list[list[float]]], Any]) -> None:
    rows = [[0.0, 0, 3, 1], [1, 0, 0, 2], [0, 2, 0, 3], [0, 0, 0, 1]]
    given = kind(rows)
    grid = VoxelGrid((2, 3, 4), given)
    given[0][3] = 99.0
    assert grid.affine.tolist() == rows
    assert grid.affine.dtype == torch.float64


@pytest.mark.parametrize("affine", ["identity", None, [[1, 2], [3]], np.array([["a"]])])
def test_an_affine_that_is_no_array_of_numbers_is_refused(affine: object) -> None:
    with pytest.raises(ValueError, match="affine must"):
        VoxelGrid((2, 3, 4), affine)


def test_shapes_of_other_integer_types_are_taken() -> None:
    for shape in (np.array([2, 3, 4]), torch.Size([2, 3, 4]), torch.tensor([2, 3, 4]), [2, 3, 4]):
        assert VoxelGrid(shape, IDENTITY).shape == (2, 3, 4)


def test_a_grid_needs_a_usable_affine() -> None:
    with pytest.raises(ValueError, match="affine must be finite"):
        VoxelGrid((2, 3, 4), torch.full((4, 4), float("nan")))
    with pytest.raises(ValueError, match="affine is singular"):
        VoxelGrid((2, 3, 4), torch.diag(torch.tensor([1.0, 0.0, 1.0, 1.0])))


@pytest.mark.parametrize("seed", SEEDS)
def test_to_index_inverts_to_world(seed: int) -> None:
    grid = random_grid(seed)
    index = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 100
    close(grid.to_index(grid.to_world(index)), index)
    close(grid.to_world(grid.to_index(index)), index)


def test_indices_are_in_raster_order() -> None:
    flat = VoxelGrid((2, 3, 4), IDENTITY).indices().reshape(-1, 3)
    expected = np.stack(np.unravel_index(np.arange(24), (2, 3, 4)), axis=-1)
    assert flat.tolist() == expected.tolist()


# -- patches: the centre of a patch is the mean of its voxels' centres ---------------------------------


def test_patch_centres_of_a_thick_slice_scan() -> None:
    tokens = VoxelGrid((8, 12, 8), torch.diag(torch.tensor([1.0, 1.0, 5.0, 1.0]))).patch_grid((4, 4, 2))
    assert tokens.shape == (2, 3, 4)
    assert tokens.spacing_mm.tolist() == [4.0, 4.0, 10.0]
    assert tokens.to_world([0, 0, 0]).tolist() == [1.5, 1.5, 2.5]
    assert tokens.to_world([0, 0, 1]).tolist() == [1.5, 1.5, 12.5]
    assert tokens.to_world([0, 1, 0]).tolist() == [1.5, 5.5, 2.5]
    assert tokens.to_world([1, 0, 0]).tolist() == [5.5, 1.5, 2.5]


@pytest.mark.parametrize("patch", [(1, 1, 1), (2, 3, 4), (4, 1, 3), (3, 2, 1)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_patch_centre_is_the_mean_of_its_voxels_centres(seed: int, patch: tuple[int, int, int]) -> None:
    a, b, c = patch
    grid = VoxelGrid((2 * a, 3 * b, 4 * c), random_grid(seed).affine)
    blocks = world_of(grid).reshape(2, a, 3, b, 4, c, 3).mean(dim=(1, 3, 5))
    close(world_of(grid.patch_grid(patch)), blocks)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_incomplete_last_patch_is_that_of_the_padded_grid(seed: int) -> None:
    affine = random_grid(seed).affine
    short, full = VoxelGrid((5, 7, 9), affine), VoxelGrid((6, 8, 12), affine)
    assert short.patch_grid((2, 4, 3)).is_close(full.patch_grid((2, 4, 3)).crop((0, 0, 0), (3, 2, 3)), atol_mm=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_patches_of_patches_are_larger_patches(seed: int) -> None:
    grid = VoxelGrid((12, 8, 6), random_grid(seed).affine)
    twice = grid.patch_grid((2, 2, 1)).patch_grid((3, 2, 2))
    assert twice.is_close(grid.patch_grid((6, 4, 2)), atol_mm=1e-9)
    close(twice.fov_center_mm, grid.fov_center_mm)


@pytest.mark.parametrize("patch", [0, -4, 2.5, 4.0, "4", None, True, (4, 4), (4, 4, 0), (4, 4, 4, 4), float("nan")])
def test_a_patch_size_is_positive_integers(patch: object) -> None:
    with pytest.raises(ValueError, match="patch_size must be positive integers, one or three of them, got"):
        VoxelGrid((8, 8, 8), IDENTITY).patch_grid(patch)
