"""Any grid to any grid: turned, sheared, permuted, against closed forms and independent interpolators."""

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates
from torch import Tensor

from medattn.geometry import VoxelGrid, oblique, resample, resample_labels
from medattn.geometry.resample import regridded
from medattn.geometry.separable import alignment
from tests.geometry.grids import SEEDS, close, grid_of, noise, random_grid, world_of


def turned(grid: VoxelGrid, degrees: float, axis: int = 2) -> VoxelGrid:
    """``grid`` turned about the centre of its field of view, around a world axis."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = torch.eye(4, dtype=torch.float64)
    a, b = (axis + 1) % 3, (axis + 2) % 3
    turn[a, a], turn[a, b], turn[b, a], turn[b, b] = c, -s, s, c
    turn[:3, 3] = grid.fov_center_mm - turn[:3, :3] @ grid.fov_center_mm
    return VoxelGrid(grid.shape, turn @ grid.affine)


def big(seed: int) -> VoxelGrid:
    return VoxelGrid((34, 30, 32), random_grid(seed).affine)


def other(seed: int, source: VoxelGrid, spacing_mm: tuple[float, float, float]) -> VoxelGrid:
    """A small grid of another orientation in the middle of ``source``."""
    target = VoxelGrid.from_spacing((6, 5, 7), spacing_mm, center_mm=source.fov_center_mm)
    return turned(turned(target, 20 + 10 * seed, axis=0), 35 - 20 * seed, axis=2)


def blob(grid: VoxelGrid, centre: Tensor, sigma_mm: float) -> Tensor:
    return torch.exp(-((world_of(grid) - centre) ** 2).sum(-1) / (2 * sigma_mm**2))


# -- interpolation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_linear_interpolation_is_scipys(seed: int) -> None:
    source = big(seed)
    target = other(seed, source, (0.7, 2.0, 1.1)).pad(4, 3)
    data = noise(*source.shape, seed=seed)
    index = source.to_index(world_of(target)).permute(3, 0, 1, 2).numpy()
    oracle = map_coordinates(data.numpy(), index, order=1, mode="nearest")
    close(resample(data, source, target, profile="none"), oracle)


@pytest.mark.parametrize("seed", SEEDS)
def test_nearest_takes_the_voxel_whose_centre_is_nearest_in_index(seed: int) -> None:
    source = big(seed)
    target = other(seed, source, (0.7, 2.0, 1.1)).pad(4, 3)
    data = torch.arange(math.prod(source.shape)).reshape(source.shape)
    index = source.to_index(world_of(target)).numpy()
    rounded = np.clip(np.floor(index + 0.5).astype(int), 0, np.array(source.shape) - 1)
    expected = data.numpy()[tuple(np.moveaxis(rounded, -1, 0))]
    for values in (data, data.double(), data.to(torch.int16)):
        seen = resample(values, source, target, mode="nearest")
        assert seen.dtype == values.dtype
        assert torch.equal(seen, torch.from_numpy(expected).to(values.dtype))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("profile", ["none", "box", "gaussian"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_ramp_in_mm_survives_any_change_of_orientation(seed: int, profile: str, mode: str) -> None:
    source = big(seed)
    spacing = float(source.spacing_mm.min())
    target = other(seed, source, (0.8 * spacing, 1.1 * spacing, 1.6 * spacing))
    slope = torch.tensor([0.7, -1.1, 0.4], dtype=torch.float64)
    index = source.to_index(world_of(target))
    reach = 5 if profile == "gaussian" else 3
    inner = ((index > reach) & (index < torch.tensor(source.shape) - 1.0 - reach)).all(-1)
    assert inner.sum() > 40
    seen = resample(world_of(source) @ slope, source, target, mode=mode, profile=profile)
    close(seen[inner], (world_of(target) @ slope)[inner], atol=1e-3 if profile == "gaussian" else 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_cubic_interpolation_is_exact_for_quadratics(seed: int) -> None:
    source = VoxelGrid((20, 21, 22), random_grid(seed).affine)
    form = noise(3, 3, seed=seed)

    def quadratic(grid: VoxelGrid) -> Tensor:
        x = grid_index(grid)
        return torch.einsum("...a,ab,...b->...", x, form, x) + x.sum(-1)

    def grid_index(grid: VoxelGrid) -> Tensor:  # small numbers, linear in the world
        return source.to_index(world_of(grid)) / 10

    steps = float(source.spacing_mm.min())
    target = other(seed, source, (0.5 * steps, 0.9 * steps, 0.6 * steps))
    close(resample(quadratic(source), source, target, mode="cubic", profile="none"), quadratic(target))
    parallel = source.crop((4, 4, 4), (16, 17, 18)).resampled(source.spacing_mm * torch.tensor([0.6, 1, 0.4]))
    close(resample(quadratic(source), source, parallel, mode="cubic"), quadratic(parallel))


def test_cubic_weights_halfway_are_those_of_keys() -> None:
    source = grid_of((1, 1, 6))
    halfway = VoxelGrid((1, 1, 1), torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 2.5], [0, 0, 0, 1]]))
    for voxel, weight in enumerate([0, -1 / 16, 9 / 16, 9 / 16, -1 / 16, 0]):
        impulse = torch.zeros(1, 1, 6, dtype=torch.float64)
        impulse[0, 0, voxel] = 1
        close(resample(impulse, source, halfway, mode="cubic"), [[[weight]]])


# -- profiles ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["none", "box", "gaussian"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_grid_turned_by_almost_nothing_is_seen_as_the_parallel_grid_is(axis: int, profile: str) -> None:
    source = VoxelGrid.from_spacing((30, 26, 28), (1.0, 1.3, 0.9))
    data = blob(source, torch.tensor([1.0, -2.0, 1.5]), 4.0)
    target = source.resampled((2.0, 1.3, 3.6))
    almost = turned(target, 0.01, axis)
    assert alignment(source, target) is not None
    assert alignment(source, almost) is None
    close(resample(data, source, almost, profile=profile), resample(data, source, target, profile=profile), atol=8e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_thick_oblique_slice_is_the_mean_of_the_image_over_its_box(seed: int) -> None:
    source = VoxelGrid.from_spacing((40, 40, 40), 1.0)
    centre = torch.tensor([0.6, -0.3, 0.2], dtype=torch.float64)
    target = other(seed, source, (1.0, 1.0, 5.0))
    inner = (torch.arange(100, dtype=torch.float64) + 0.5) / 20 - 2.5  # 5 mm in steps of .05
    points = world_of(target)[..., None, :] + inner[:, None] * target.direction[:, 2]
    mean = torch.exp(-((points - centre) ** 2).sum(-1) / (2 * 16)).mean(-1)
    seen = resample(blob(source, centre, 4.0), source, target)
    close(seen, mean, atol=3 / (8 * 16))  # what linear interpolation may lose: h^2 / 8 of each second derivative
    thin = resample(blob(source, centre, 4.0), source, target, thickness_mm=1.0)
    close(thin, blob(target, centre, 4.0), atol=3 / (8 * 16))
    assert float((thin - mean).abs().max()) > 0.04


@pytest.mark.parametrize(("profile", "variance"), [("box", (1.3**2 - 1) / 12), ("gaussian", (1.3**2 - 1) / 2.3548**2)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_voxel_little_thicker_than_the_old_adds_just_the_variance_that_is_missing(
    seed: int, profile: str, variance: float
) -> None:
    source = VoxelGrid.from_spacing((40, 40, 40), 1.0)
    target = other(seed, source, (1.0, 1.0, 1.0))
    along = (world_of(source) - source.fov_center_mm) @ target.direction[:, 1]  # cubic is exact for its square
    seen = {
        p: resample(along**2, source, target, mode="cubic", profile=p, thickness_mm=(1.0, 1.3, 1.0))
        for p in (profile, "none")
    }
    close(seen[profile] - seen["none"], torch.full(target.shape, variance), atol=1e-4)


@pytest.mark.parametrize("profile", ["none", "box", "gaussian"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_blobs_centroid_stays_where_it_is_when_the_grid_turns(seed: int, profile: str) -> None:
    affine = random_grid(seed).affine
    affine[:3, :3] = random_grid(seed).direction * torch.tensor([1.0, 0.8, 1.2])  # sheared, as gantry tilt is
    source = VoxelGrid((40, 44, 48), affine)
    centre = source.to_world([19.3, 22.9, 24.4])
    target = turned(VoxelGrid.from_spacing((30, 28, 13), (1.1, 1.0, 3.0), center_mm=centre + 0.3), 25 + seed, seed % 3)
    seen = resample(blob(source, centre, 3.2), source, target, profile=profile)
    centroid = (seen[..., None] * world_of(target)).sum((0, 1, 2)) / seen.sum()
    assert float((centroid - centre).norm()) < 0.01


@pytest.mark.parametrize("turn", [10.0, 30.0, 45.0])
def test_stripes_that_a_turned_coarse_grid_cannot_hold_become_their_mean(turn: float) -> None:
    source = grid_of((24, 24, 48))
    stripes = (torch.arange(48.0) % 2).expand(source.shape)
    target = turned(source.resampled((1, 1, 4)), turn, axis=2).crop((7, 7, 2), (17, 17, 10))
    assert alignment(source, target) is None
    assert float((resample(stripes, source, target) - 0.5).abs().max()) <= 0.02
    assert float((resample(stripes, source, target, profile="none") - 0.5).abs().max()) <= 0.5


def test_a_constant_stays_that_constant_on_any_grid() -> None:
    for seed in SEEDS:
        source = random_grid(seed)
        target = other(seed, source, (0.3, 6.0, 2.0)).pad(3, 3)
        for mode in ("linear", "cubic"):
            seen = resample(torch.full(source.shape, -1024.0), source, target, mode=mode)
            close(seen, torch.full(target.shape, -1024.0), atol=1e-2)


# -- order of axes, batches, memory, gradients ---------------------------------------------------------


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 0, 1), (1, 2, 0), (0, 2, 1)])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_a_permuted_and_flipped_grid_moves_voxels_without_interpolation(axes: tuple[int, ...], mode: str) -> None:
    grid = random_grid(3)
    data = noise(2, *grid.shape)
    expected = data.permute(0, *(a + 1 for a in axes)).flip(2)
    seen = resample(data, grid, grid.permute(axes).flip(1), mode=mode)
    torch.testing.assert_close(seen, expected, rtol=0, atol=1e-9)


def test_a_permuted_thick_grid_is_the_thick_grid_permuted() -> None:
    source = random_grid(4)
    data = noise(*source.shape)
    thick = source.resampled(source.spacing_mm * torch.tensor([1.0, 2.2, 0.7]))
    seen = resample(data, source, thick.permute((2, 0, 1)))
    close(seen, resample(data, source, thick).permute(2, 0, 1))


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_batches_strides_and_slabs_make_no_difference(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = big(1)
    target = other(1, source, (1.0, 2.0, 9.0))
    batch = noise(2, 3, *source.shape)
    seen = resample(batch, source, target, mode=mode)
    assert seen.shape == (2, 3, *target.shape)
    close(seen[1, 2], resample(batch[1, 2], source, target, mode=mode))
    strided = batch.permute(4, 3, 2, 1, 0).contiguous().permute(4, 3, 2, 1, 0)
    close(resample(strided, source, target, mode=mode), seen)
    monkeypatch.setattr(oblique, "_MAX_POINTS", 1)
    close(resample(batch, source, target, mode=mode), seen)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_computed_in_single(dtype: torch.dtype) -> None:
    source = big(2)
    data = noise(*source.shape).to(dtype)
    for target in (other(2, source, (1.0, 2.0, 3.0)), source.resampled(source.spacing_mm * 1.7)):
        seen = resample(data, source, target)
        assert seen.dtype == dtype
        exact = resample(data.double(), source, target)
        tolerance = 1e-5 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
        assert float((seen.double() - exact).abs().max()) <= tolerance


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("parallel", [True, False])
def test_gradients_are_those_of_the_linear_map(mode: str, parallel: bool) -> None:
    source = random_grid(0)
    target = source.resampled(source.spacing_mm * 1.6) if parallel else other(0, source, (2.0, 1.0, 3.0))
    data = noise(*source.shape).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: resample(x, source, target, mode=mode), data)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_the_result_is_the_same_on_a_gpu(mode: str) -> None:
    source = big(0)
    data = noise(2, *source.shape).float()
    for target in (other(0, source, (2.0, 1.0, 3.0)), source.resampled(source.spacing_mm * 1.6)):
        seen = resample(data.cuda(), source, target, mode=mode)
        assert seen.is_cuda
        torch.testing.assert_close(seen.cpu(), resample(data, source, target, mode=mode), rtol=0, atol=1e-4)


# -- outside the field of view -------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_outside_the_field_of_view_the_edge_continues_unless_a_value_is_given(axis: int) -> None:
    source = grid_of((3, 3, 3))
    data = torch.ones(3, 3, 3)
    before = [2 * int(a == axis) for a in range(3)]
    target = source.pad(before, 0)
    assert resample(data, source, target).flatten().tolist() == [1.0] * 45
    seen = resample(data, source, target, outside=-7.0)
    assert seen.narrow(axis, 0, 2).unique().tolist() == [-7.0]
    assert seen.narrow(axis, 2, 3).unique().tolist() == [1.0]


def test_the_field_of_view_reaches_half_a_voxel_beyond_the_outermost_centres() -> None:
    source = grid_of((4, 1, 1))
    target = source.resampled((0.5, 1, 1)).pad((1, 0, 0), (1, 0, 0))  # centres -.75, -.25, .25, .. 3.25, 3.75
    seen = resample(torch.ones(4, 1, 1), source, target, outside=0.0)
    assert seen.flatten().tolist() == [0.0, *[1.0] * 8, 0.0]
    turned_target = turned(source.pad(3, 3), 45, axis=0)
    inside = source.to_index(world_of(turned_target))
    expected = ((inside >= -0.5) & (inside <= torch.tensor([3.5, 0.5, 0.5]))).all(-1)
    seen = resample(torch.ones(4, 1, 1), source, turned_target, outside=0.0)
    assert torch.equal(seen > 0.5, expected)
    assert 0 < int(expected.sum()) < 4 * 7 * 7


def test_a_value_that_is_not_finite_is_refused_by_the_oblique_path_too() -> None:
    source = big(0)
    data = torch.zeros(source.shape)
    data[17, 15, 16] = float("nan")
    with pytest.raises(ValueError, match="1 of 32640 values are NaN or inf"):
        resample(data, source, other(0, source, (1.0, 1.0, 1.0)))


# -- labels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [90, 180, 270])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_labels_turned_by_right_angles_lose_nothing(turn: int, axis: int) -> None:
    labels = torch.randint(0, 5, (5, 5, 5), generator=torch.Generator().manual_seed(0))
    grid = grid_of((5, 5, 5))
    there = resample_labels(labels, grid, turned(grid, turn, axis))
    assert not torch.equal(there, labels)
    assert torch.equal(resample_labels(there, turned(grid, turn, axis), grid), labels)


@pytest.mark.parametrize("profile", ["none", "box", "gaussian"])
@pytest.mark.parametrize("seed", SEEDS)
def test_only_looking_where_a_label_is_changes_nothing(seed: int, profile: str) -> None:
    """The oracle computes every label's share everywhere."""
    rng = np.random.default_rng(seed)
    source = VoxelGrid((18, 20, 16), random_grid(seed).affine)
    labels = torch.zeros(source.shape, dtype=torch.int64)
    for label in range(1, 6):
        low = [int(rng.integers(0, n - 4)) for n in source.shape]
        labels[low[0] : low[0] + 4, low[1] : low[1] + 3, low[2] : low[2] + 4] = label
    parallel = source.resampled(source.spacing_mm * torch.tensor([2.3, 0.8, 1.4])).permute((1, 2, 0))
    for target in (parallel, other(seed, source, (2.0, 1.0, 4.0)).pad(3, 3)):
        shares = [
            regridded((labels == label).float(), source, target, "linear", profile, None, slopes=False)
            for label in range(6)
        ]
        best, winner = torch.stack(shares).max(0)
        seen = resample_labels(labels, source, target, profile=profile)
        clear = (torch.stack(shares).topk(2, 0).values * torch.tensor([1.0, -1.0])[:, None, None, None]).sum(0) > 1e-5
        assert best.shape == target.shape and int(clear.sum()) > 100
        assert torch.equal(seen[clear], winner[clear])


def test_labels_outside_the_field_of_view_can_be_background() -> None:
    grid = grid_of((2, 2, 2))
    labels = torch.full((2, 2, 2), 4)
    assert resample_labels(labels, grid, grid.pad(1, 1)).unique().tolist() == [4]
    assert int((resample_labels(labels, grid, grid.pad(1, 1), outside=0) == 4).sum()) == 8
