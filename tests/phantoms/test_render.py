"""Rendering: against one point at a time, and the laws that hold whatever the grid."""

import numpy as np
import pytest
import torch
from torch.nn.functional import avg_pool3d

from medattn.geometry import VoxelGrid
from medattn.phantoms import Ellipsoid, Scene
from tests.geometry.grids import SEEDS, random_grid
from tests.phantoms.scenes import above, below, crowd, one_voxel, points_in_voxels, random_rotation

STEPS = (2, 3, 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_image_is_the_mean_and_label_the_majority_of_the_points_of_each_voxel(seed: int) -> None:
    grid = random_grid(seed)
    scene = crowd(seed, grid)
    intensity, label = scene.sample(points_in_voxels(grid, STEPS))
    votes = torch.stack([(label == value).sum(-1) for value in range(5)]).numpy()
    image, labels = scene.render(grid, supersample=STEPS)
    assert len(labels.unique()) >= 3
    assert image.dtype == torch.float32 and labels.dtype == torch.int64
    torch.testing.assert_close(image[0].double(), intensity.double().mean(-1), atol=1e-4, rtol=0)
    assert np.array_equal(labels[0].numpy(), votes.argmax(0))  # numpy's argmax takes the lowest on a tie


@pytest.mark.parametrize("seed", SEEDS)
def test_one_point_per_voxel_is_the_scene_at_the_voxel_centres(seed: int) -> None:
    grid = random_grid(seed)
    scene = crowd(seed, grid)
    image, labels = scene.render(grid, supersample=1)
    intensity, label = scene.sample(grid.to_world(grid.indices()))
    assert torch.equal(image[0], intensity) and torch.equal(labels[0], label)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_flipped_grid_shows_the_flipped_array(seed: int, axis: int) -> None:
    grid = random_grid(seed)
    scene = crowd(seed, grid)
    for flipped, plain in zip(scene.render(grid.flip(axis)), scene.render(grid), strict=True):
        assert torch.equal(flipped, plain.flip(axis + 1))


@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 1, 0), (0, 2, 1)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_permuted_grid_shows_the_permuted_array(seed: int, axes: tuple[int, int, int]) -> None:
    grid = random_grid(seed)
    scene = crowd(seed, grid)
    for permuted, plain in zip(scene.render(grid.permute(axes)), scene.render(grid), strict=True):
        assert torch.equal(permuted, plain.permute(0, *(a + 1 for a in axes)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cropped_grid_shows_the_cropped_array(seed: int) -> None:
    grid = random_grid(seed)
    scene = crowd(seed, grid)
    start, stop = (1, 0, 1), tuple(n - 1 for n in grid.shape)
    box = (slice(None), *(slice(a, b) for a, b in zip(start, stop, strict=True)))
    for cropped, whole in zip(scene.render(grid.crop(start, stop)), scene.render(grid), strict=True):
        assert torch.equal(cropped, whole[box])


@pytest.mark.parametrize("seed", SEEDS)
def test_turning_and_moving_scene_and_grid_together_changes_nothing(seed: int) -> None:
    grid, rng = random_grid(seed), np.random.default_rng(seed)
    scene, turn, shift = crowd(seed, grid), random_rotation(rng), rng.uniform(-500, 500, 3)
    moved = Scene(
        scene.background,
        tuple(
            Ellipsoid(turn @ e.center_mm + shift, e.radii_mm, e.intensity, e.label, turn @ np.array(e.rotation))
            for e in scene.ellipsoids
        ),
    )
    rigid = np.block([[turn, shift[:, None]], [np.zeros((1, 3)), np.ones((1, 1))]])
    oblique = VoxelGrid(grid.shape, torch.from_numpy(rigid) @ grid.affine)
    for there, here in zip(moved.render(oblique), scene.render(grid), strict=True):
        assert torch.equal(there, here)


@pytest.mark.parametrize("factor", [(2, 2, 2), (3, 1, 2)])
def test_a_coarse_voxel_is_the_mean_of_the_fine_voxels_in_it(factor: tuple[int, int, int]) -> None:
    fine = VoxelGrid(tuple(4 * f for f in factor), random_grid(1).affine)
    scene = crowd(1, fine)
    image, _ = scene.render(fine, supersample=2)
    coarse, _ = scene.render(fine.patch_grid(factor), supersample=tuple(2 * f for f in factor))
    torch.testing.assert_close(coarse, avg_pool3d(image, factor), atol=1e-4, rtol=0)


@pytest.mark.parametrize("points", [1, 64, 1000])
def test_the_size_of_the_working_tiles_changes_nothing(monkeypatch: pytest.MonkeyPatch, points: int) -> None:
    grid = random_grid(2)
    scene = crowd(2, grid)
    image, labels = scene.render(grid)
    monkeypatch.setattr("medattn.phantoms.rasterize._TILE_POINTS", points)
    again, again_labels = scene.render(grid)
    assert torch.equal(again, image) and torch.equal(again_labels, labels)


@pytest.mark.parametrize(
    ("spacing_mm", "points"),
    [((1.0, 6.0, 6.1), (3, 3, 5)), ((10.0, 3.0, 13.5), (5, 3, 7)), ((2.0, 8.0, 16.0), (3, 5, 9))],
)
def test_by_default_points_are_at_most_2_mm_apart_odd_and_at_least_3(
    spacing_mm: tuple[float, float, float], points: tuple[int, int, int]
) -> None:
    grid = VoxelGrid.from_spacing((6, 5, 4), spacing_mm)
    scene = crowd(3, grid)
    assert torch.equal(scene.render(grid)[0], scene.render(grid, supersample=points)[0])
    assert not torch.equal(scene.render(grid)[0], scene.render(grid, supersample=[p + 2 for p in points])[0])


# -- literal values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("height_mm", "share"), [(-4, 0.0), (-2, 0.25), (0, 0.5), (2, 0.75), (4, 1.0)])
def test_an_edge_across_a_voxel_mixes_by_volume(height_mm: float, share: float) -> None:
    image, labels = Scene(-100.0, (below(height_mm, 300.0, 1),)).render(one_voxel(8.0), supersample=4)
    assert image.item() == -100 + 400 * share
    assert labels.item() == int(share > 0.5)


def test_a_thick_slice_averages_along_its_thickness_only() -> None:
    grid = VoxelGrid.from_spacing((1, 1, 3), (2.0, 2.0, 16.0))
    image, _ = Scene(0.0, (below(-4.0, 64.0, 1),)).render(grid, supersample=8)
    assert image.flatten().tolist() == [64.0, 16.0, 0.0]


@pytest.mark.parametrize("order", [1, -1])
def test_labels_with_equal_shares_give_the_lower_one_whoever_is_painted_last(order: int) -> None:
    halves = (below(0.0, 1.0, 5), above(0.0, 1.0, 3))[::order]
    assert Scene(0.0, halves).render(one_voxel(), supersample=4)[1].item() == 3


def test_the_largest_share_wins_without_a_majority() -> None:
    layers = (below(-1.0, 0.0, 2), above(2.0, 0.0, 7))  # shares of 8 parts: 3 of label 2, 3 of label 0, 2 of label 7
    assert Scene(0.0, layers).render(one_voxel(), supersample=8)[1].item() == 0
    layers = (below(0.0, 0.0, 2), above(1.0, 0.0, 7))  # 4, 1 and 3
    assert Scene(0.0, layers).render(one_voxel(), supersample=8)[1].item() == 2


def test_parts_with_one_label_add_up_to_its_share() -> None:
    layers = (below(-1.0, 10.0, 6), above(2.0, 20.0, 6))  # 3 and 2 parts of 8 against 3 unlabelled
    image, labels = Scene(0.0, layers).render(one_voxel(), supersample=8)
    assert (image.item(), labels.item()) == (8.75, 6)


@pytest.mark.parametrize("spacing_mm", [(3, 3, 3), (2, 2, 8), (7, 3, 2)])
def test_volume_and_centre_of_an_ellipsoid_are_right_in_mm(spacing_mm: tuple[float, float, float]) -> None:
    rng, affine = np.random.default_rng(5), np.eye(4)
    affine[:3, :3] = random_rotation(rng) @ np.diag(spacing_mm)
    grid = VoxelGrid(tuple(round(120 / s) for s in spacing_mm), torch.from_numpy(affine))
    center = grid.fov_center_mm + torch.tensor([3.3, -2.1, 5.7])
    solid = Ellipsoid(tuple(center), (30, 22, 16), 1.0, 1, tuple(map(tuple, random_rotation(rng))))
    image, labels = Scene(0.0, (solid,)).render(grid)
    volume = 44233.625  # 4/3 pi 30 22 16 mm3
    voxel = float(torch.linalg.det(grid.affine[:3, :3]).abs())
    assert float(image.double().sum()) * voxel == pytest.approx(volume, rel=0.01)
    assert float(labels.sum()) * voxel == pytest.approx(volume, rel=0.02)
    weights = image[0].double()[..., None]
    centroid = (weights * grid.to_world(grid.indices())).sum((0, 1, 2)) / weights.sum()
    torch.testing.assert_close(centroid, center, atol=0.05, rtol=0)


@pytest.mark.parametrize(("steps", "rms"), [(1, 0.22), (2, 0.057), (3, 0.025), (4, 0.014)])
def test_the_error_at_an_edge_is_what_the_docstring_says(steps: int, rms: float) -> None:
    rng, errors = np.random.default_rng(0), []
    for _ in range(30):
        grid, turn = VoxelGrid.from_spacing((3, 3, 3), 1.0), random_rotation(rng)
        flat = Ellipsoid(tuple(turn[:, 0] * (1e5 + rng.uniform(-1, 1))), (1e5,) * 3, 1.0)
        exact, _ = Scene(0.0, (flat,)).render(grid, supersample=24)
        cut = (exact > 0) & (exact < 1)
        errors.append((Scene(0.0, (flat,)).render(grid, supersample=steps)[0] - exact)[cut])
    assert float(torch.cat(errors).square().mean().sqrt()) == pytest.approx(rms, rel=0.15)
