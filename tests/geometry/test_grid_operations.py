import copy
import itertools
import pickle

import nibabel as nib
import numpy as np
import pytest
import torch

from medattn.geometry import VoxelGrid
from tests.geometry.grids import SEEDS, close, random_grid, world_of

IDENTITY = torch.eye(4, dtype=torch.float64)
ALL_CODES = [
    "".join(ends) for order in itertools.permutations(["LR", "PA", "IS"]) for ends in itertools.product(*order)
]


def test_affines_after_operations_on_an_identity_grid() -> None:
    grid = VoxelGrid((4, 5, 6), IDENTITY)
    assert grid.crop((2, 0, 0), (4, 5, 6)).origin_mm.tolist() == [2.0, 0.0, 0.0]
    flipped = grid.flip(0)
    assert flipped.affine[:, 0].tolist() == [-1.0, 0.0, 0.0, 0.0]
    assert flipped.origin_mm.tolist() == [3.0, 0.0, 0.0]
    halved = grid.patch_grid(2)
    assert (halved.spacing_mm.tolist(), halved.origin_mm.tolist()) == ([2.0] * 3, [0.5] * 3)
    assert grid.permute((2, 0, 1)).affine[:3, :3].tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert grid.pad((3, 0, 0), 0).origin_mm.tolist() == [-3.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", SEEDS)
def test_crop_moves_voxels_as_slicing_does(seed: int) -> None:
    grid = random_grid(seed)
    stop = [n - 1 for n in grid.shape]
    cropped = grid.crop((0, 1, 1), stop)
    close(world_of(cropped), world_of(grid)[0 : stop[0], 1 : stop[1], 1 : stop[2]])


@pytest.mark.parametrize("seed", SEEDS)
def test_pad_keeps_old_voxels_and_crop_undoes_it(seed: int) -> None:
    grid = random_grid(seed)
    before, after = (1, 0, 3), (2, 4, 0)
    padded = grid.pad(before, after)
    i, j, k = grid.shape
    assert padded.shape == (i + 3, j + 4, k + 3)
    close(world_of(padded)[1 : 1 + i, 0:j, 3 : 3 + k], world_of(grid))
    assert padded.crop(before, (1 + i, j, 3 + k)).is_close(grid, atol_mm=1e-9)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_flip_moves_voxels_as_torch_flip_does_and_is_its_own_inverse(seed: int, axis: int) -> None:
    grid = random_grid(seed)
    close(world_of(grid.flip(axis)), world_of(grid).flip(axis))
    close(grid.flip(axis).fov_center_mm, grid.fov_center_mm)
    assert grid.flip(axis).flip(axis).is_close(grid, atol_mm=1e-9)


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("seed", SEEDS)
def test_permute_moves_voxels_as_tensor_permute_does(seed: int, axes: tuple[int, int, int]) -> None:
    grid = random_grid(seed)
    close(world_of(grid.permute(axes)), world_of(grid).permute(*axes, 3))
    close(grid.permute(axes).fov_center_mm, grid.fov_center_mm)


@pytest.mark.parametrize("codes", ALL_CODES)
def test_reoriented_moves_voxels_as_permute_and_flip_do_and_reaches_the_codes(codes: str) -> None:
    for seed in SEEDS:
        grid = random_grid(seed)
        axes, flips = grid.orientation_to(codes)
        target = grid.reoriented(codes)
        assert target.axcodes == tuple(codes)
        close(world_of(target), world_of(grid).permute(*axes, 3).flip(flips))


@pytest.mark.parametrize("codes", ALL_CODES)
def test_reoriented_agrees_with_nibabel(codes: str) -> None:
    for seed in SEEDS:
        grid = random_grid(seed)
        data = np.arange(np.prod(grid.shape), dtype=np.float32).reshape(grid.shape)
        orientation = nib.orientations.io_orientation(grid.affine.numpy())
        transform = nib.orientations.ornt_transform(orientation, nib.orientations.axcodes2ornt(codes))
        oracle = nib.Nifti1Image(data, grid.affine.numpy()).as_reoriented(transform)
        axes, flips = grid.orientation_to(codes)
        moved = torch.from_numpy(data).permute(axes).flip(flips)
        assert np.array_equal(moved.numpy(), np.asarray(oracle.dataobj))
        close(grid.reoriented(codes).affine, oracle.affine)


@pytest.mark.parametrize("seed", SEEDS)
def test_reorienting_there_and_back_changes_nothing(seed: int) -> None:
    grid = random_grid(seed)
    assert grid.reoriented("SLP").reoriented(grid.axcodes).is_close(grid, atol_mm=1e-9)


@pytest.mark.parametrize("spacing", [(1.7, 0.6, 3.1), 2.0, (0.3, 9.0, 1.0)])
@pytest.mark.parametrize("seed", SEEDS)
def test_resampled_keeps_centre_and_axes_and_has_exactly_the_spacing(seed: int, spacing: object) -> None:
    grid = random_grid(seed)
    coarse = grid.resampled(spacing)
    wanted = torch.as_tensor(spacing, dtype=torch.float64).expand(3)
    close(coarse.spacing_mm, wanted)
    close(coarse.fov_center_mm, grid.fov_center_mm)
    close(coarse.direction, grid.direction)
    offset = (coarse.indices() - coarse.center_index) * wanted
    close(world_of(coarse), grid.fov_center_mm + offset @ grid.direction.T)
    multi = torch.tensor([n > 1 for n in coarse.shape])
    assert bool(((coarse.extent_mm - grid.extent_mm).abs() <= 0.51 * wanted)[multi].all())


def test_resampled_follows_the_extent_rule() -> None:
    fine = VoxelGrid((3, 3, 3), IDENTITY).resampled(0.5)
    assert (fine.shape, fine.origin_mm.tolist()) == ((6, 6, 6), [-0.25, -0.25, -0.25])
    assert VoxelGrid((128, 128, 32), IDENTITY).resampled((2, 1, 0.2)).shape == (64, 128, 160)
    assert VoxelGrid((10, 10, 1), IDENTITY).resampled((1, 1, 5)).shape == (10, 10, 1)


def test_an_image_and_its_label_get_the_same_size_despite_noise_in_the_header() -> None:
    for noise in (-1e-5, 0.0, 1e-5):
        noisy = torch.diag(torch.tensor([3.0 + noise, 3.0 + noise, 3.0 + noise, 1.0], dtype=torch.float64))
        assert VoxelGrid((120, 121, 122), noisy).resampled(4.0).shape == (90, 91, 92)  # from 90, 90.75, 91.5


def test_rounding_the_size_does_not_stretch_the_voxels() -> None:
    grid = VoxelGrid((256, 256, 256), torch.diag(torch.tensor([0.9, 0.9, 0.9, 1.0], dtype=torch.float64)))
    resampled = grid.resampled(1.0)
    assert resampled.shape == (230, 230, 230)
    close(resampled.spacing_mm, [1.0, 1.0, 1.0])
    centre = 0.9 * 127.5
    close(resampled.to_world([0, 0, 0]), [centre - 114.5] * 3)
    close(resampled.to_world([229, 229, 229]), [centre + 114.5] * 3)


def test_a_chain_of_operations_carries_the_world_along() -> None:
    for seed in SEEDS:
        grid = random_grid(seed)
        chained = grid.pad(2, (1, 0, 0)).flip(1).permute((1, 2, 0)).crop((1, 2, 0), (3, 4, 3))
        marker = torch.full((*grid.pad(2, (1, 0, 0)).shape, 3), float("nan"), dtype=torch.float64)
        i, j, k = grid.shape
        marker[2 : 2 + i, 2 : 2 + j, 2 : 2 + k] = world_of(grid)
        moved = marker.flip(1).permute(1, 2, 0, 3)[1:3, 2:4, 0:3]
        known = ~moved.isnan()
        assert known.any()
        close(world_of(chained)[known], moved[known])


@pytest.mark.parametrize("seed", SEEDS)
def test_operations_that_ask_for_nothing_return_the_same_grid(seed: int) -> None:
    grid = random_grid(seed)
    same = [
        grid.crop((0, 0, 0), grid.shape),
        grid.pad(0, 0),
        grid.permute((0, 1, 2)),
        grid.reoriented(grid.axcodes),
        grid.resampled(grid.spacing_mm),
        grid.patch_grid(1),
    ]
    assert all(other.is_close(grid, atol_mm=1e-9) for other in same)


@pytest.mark.parametrize(
    ("start", "stop"),
    [((0, 0, 0), (5, 3, 4)), ((2, 0, 0), (2, 3, 4)), ((2, 0, 0), (1, 3, 4)), ((0, 0, 0), (2, 3, 0))],
)
def test_a_crop_outside_the_grid_names_axis_and_bounds(start: tuple[int, ...], stop: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"crop on axis [ijk] must satisfy 0 <= start < stop <= \d, got \d to \d"):
        VoxelGrid((2, 3, 4), IDENTITY).crop(start, stop)


def test_other_bad_arguments_name_the_requirement_and_the_value() -> None:
    grid = VoxelGrid((2, 3, 4), IDENTITY)
    with pytest.raises(ValueError, match=r"start must be >= 0 integers.*got \(-1, 0, 0\)"):
        grid.crop((-1, 0, 0), (2, 3, 4))
    with pytest.raises(ValueError, match="before must be >= 0 integers.*got -1"):
        grid.pad(-1, 0)
    with pytest.raises(ValueError, match="axis must be 0, 1 or 2, got 3"):
        grid.flip(3)
    with pytest.raises(ValueError, match="axis must be 0, 1 or 2, got -1"):
        grid.flip(-1)
    with pytest.raises(ValueError, match=r"permutation of \(0, 1, 2\), got \(0, 0, 1\)"):
        grid.permute((0, 0, 1))
    with pytest.raises(ValueError, match="axcodes must be one of each .* got 'RAR'"):
        grid.reoriented("RAR")


@pytest.mark.parametrize("spacing", [0, -1.0, float("nan"), float("inf"), (1, 2), (1, 2, 0), (1, 1, 1, 1)])
def test_a_spacing_is_positive_and_finite(spacing: object) -> None:
    with pytest.raises(ValueError, match="spacing_mm must be positive and finite, one or three numbers in mm, got"):
        VoxelGrid((2, 3, 4), IDENTITY).resampled(spacing)
    with pytest.raises(ValueError, match="spacing_mm must be positive and finite"):
        VoxelGrid.from_spacing((2, 3, 4), spacing)


def test_is_close_compares_every_voxel_in_mm() -> None:
    grid = VoxelGrid((100, 3, 4), IDENTITY)
    nudged, shifted, scaled = (IDENTITY.clone() for _ in range(3))
    nudged[0, 3], shifted[0, 3], scaled[0, 0] = 1e-4, 26.76, 1.0001
    assert grid.is_close(VoxelGrid((100, 3, 4), nudged))
    assert not grid.is_close(VoxelGrid((100, 3, 4), shifted))
    assert not grid.is_close(VoxelGrid((100, 3, 4), scaled))  # 99 voxels later the error is 9.9e-3 mm
    assert grid.is_close(VoxelGrid((100, 3, 4), scaled), atol_mm=0.01)
    assert not grid.is_close(VoxelGrid((100, 4, 3), IDENTITY))


def test_a_rotation_by_ten_degrees_is_not_close() -> None:
    c, s = np.cos(np.pi / 18), np.sin(np.pi / 18)
    turned = torch.tensor([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    assert not VoxelGrid((5, 6, 7), IDENTITY).is_close(VoxelGrid((5, 6, 7), turned), atol_mm=0.5)


def test_with_spacing_keeps_shape_directions_and_centre_and_changes_only_the_spacing():
    for seed in range(20):
        grid = random_grid(seed)
        told = grid.with_spacing((1.5, 4.0, 2.5))
        assert told.shape == grid.shape
        close(told.spacing_mm, torch.tensor([1.5, 4.0, 2.5]).double())
        close(told.direction, grid.direction)
        close(told.fov_center_mm, grid.fov_center_mm)


def test_with_spacing_refuses_what_is_no_spacing():
    with pytest.raises(ValueError, match="spacing_mm must be positive and finite"):
        random_grid(0).with_spacing((1.0, 0.0, 1.0))


@pytest.mark.parametrize(
    "change",
    [
        lambda grid: grid.affine.add_(1),
        lambda grid: grid.affine.numpy().fill(7),
        lambda grid: grid.origin_mm.add_(5),
        lambda grid: grid.spacing_mm.mul_(2),
        lambda grid: grid.direction.zero_(),
    ],
)
def test_nothing_done_in_place_to_what_a_grid_gives_out_reaches_the_grid(change) -> None:
    grid = random_grid(0)
    before = grid.affine
    change(grid)
    assert torch.equal(grid.affine, before)


def test_a_grid_refuses_assignment_and_keeps_its_affine() -> None:
    grid = random_grid(0)
    before = grid.affine
    with pytest.raises(AttributeError):
        grid.affine += 1
    with pytest.raises(AttributeError):
        grid.shape = (1, 1, 1)
    assert torch.equal(grid.affine, before)


def test_a_grid_does_not_keep_the_callers_array() -> None:
    affine = torch.eye(4, dtype=torch.float64)
    grid = VoxelGrid((2, 2, 2), affine)
    affine[0, 0] = 9
    assert grid.spacing_mm.tolist() == [1.0, 1.0, 1.0]


def test_grids_survive_pickle_and_deepcopy() -> None:
    grid = random_grid(1)
    for copied in (pickle.loads(pickle.dumps(grid)), copy.deepcopy(grid)):
        assert copied.shape == grid.shape and torch.equal(copied.affine, grid.affine)


@pytest.mark.parametrize("size", [torch.tensor(2), np.array(2), np.int64(2), 2, (2, 2, 2), torch.tensor([2, 2, 2])])
def test_sizes_may_be_given_as_scalars_and_arrays_of_any_kind(size) -> None:
    assert VoxelGrid((4, 6, 8), IDENTITY).patch_grid(size).shape == (2, 3, 4)
    assert VoxelGrid((4, 6, 8), IDENTITY).resampled(size).shape == (2, 3, 4)
