import math

import pytest
import torch
from torch import Tensor

from medattn.geometry import VoxelGrid, resample, resample_labels
from tests.geometry.grids import SEEDS, close, grid_of, noise, random_grid, world_of

PROFILES = ("box", "gaussian", "none")


def along(axis: int, values: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """An array of ``shape`` that varies as ``values`` along ``axis`` only."""
    view = [1, 1, 1]
    view[axis] = -1
    return values.reshape(view).expand(shape)


# -- identity, order of axes, flips --------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_equal_grids_return_the_same_tensor(profile: str) -> None:
    for seed in SEEDS:
        grid = random_grid(seed)
        data = noise(2, *grid.shape)
        assert resample(data, grid, VoxelGrid(grid.shape, grid.affine), profile=profile) is data


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_one_voxel_along_an_axis_moves_exactly_that_axis(axis: int) -> None:
    grid = grid_of((3, 4, 5))
    data = torch.arange(60.0).reshape(3, 4, 5)
    start = [int(a == axis) for a in range(3)]
    moved = resample(data, grid, grid.crop(start, grid.shape))
    assert torch.equal(moved, data[start[0] :, start[1] :, start[2] :])


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_target_flipped_cropped_and_padded_moves_voxels_without_interpolation(seed: int, profile: str) -> None:
    grid = random_grid(seed)
    data = noise(*grid.shape, seed=seed)
    inside = grid.flip(0).flip(2).crop((1, 0, 1), grid.shape)
    close(resample(data, grid, inside, profile=profile), data.flip(0, 2)[1:, :, 1:])
    edges = torch.nn.functional.pad(data[None, None], (2, 1, 0, 0, 0, 3), mode="replicate")[0, 0]
    close(resample(data, grid, grid.pad((0, 0, 2), (3, 0, 1)), profile=profile), edges)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", SEEDS)
def test_resampling_commutes_with_flips_of_source_and_of_target(seed: int, profile: str) -> None:
    grid = random_grid(seed)
    data = noise(*grid.shape, seed=seed)
    target = grid.resampled(grid.spacing_mm * torch.tensor([2.3, 0.6, 1.4]))
    straight = resample(data, grid, target, profile=profile)
    close(resample(data.flip(0), grid.flip(0), target, profile=profile), straight)
    close(resample(data, grid, target.flip(1), profile=profile), straight.flip(1))


# -- what survives and what does not -------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("factors", [(2.5, 1, 0.6), (1, 3, 1.7), (0.4, 0.7, 4), (1.3, 1.3, 1.3)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_linear_ramp_in_mm_survives(seed: int, factors: tuple[float, float, float], profile: str) -> None:
    source = VoxelGrid((36, 30, 33), random_grid(seed).affine)
    slope = torch.tensor([0.7, -1.1, 0.4], dtype=torch.float64)
    target = source.resampled(source.spacing_mm * torch.tensor(factors))
    seen = resample(world_of(source) @ slope, source, target, profile=profile)
    index = source.to_index(world_of(target))
    reach = 2.0 * torch.tensor(factors).clamp_min(0.5)  # about 5 sigma: farther in, no profile reaches an edge
    inner = ((index >= reach) & (index <= torch.tensor(source.shape) - 1 - reach)).all(-1)
    assert inner.sum() > 50
    close(seen[inner], (world_of(target) @ slope)[inner], atol=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("factor", [1.5, 2.0, 2.6, 5.0])
def test_a_ramp_survives_a_box_up_to_the_very_edge(axis: int, factor: float) -> None:
    source = grid_of((26, 26, 26))
    spacing = [1.0, 1.0, 1.0]
    spacing[axis] = factor
    target = source.resampled(spacing)
    count = target.shape[axis]
    target = target if count * factor <= 26 else target.crop([int(a == axis) for a in range(3)], target.shape)
    lowest = target.to_world([0, 0, 0])[axis] - factor / 2
    assert lowest >= -0.5 - 1e-9
    ramp, wanted = world_of(source)[..., axis], world_of(target)[..., axis]
    last = [slice(None)] * 3
    last[axis] = slice(0, math.floor((25.5 - float(lowest)) / factor + 1e-9))
    close(resample(ramp, source, target)[tuple(last)], wanted[tuple(last)])


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("value", [1.0, -1024.0])
def test_a_constant_stays_that_constant(profile: str, value: float) -> None:
    for seed in SEEDS:
        grid = random_grid(seed)
        target = grid.resampled(grid.spacing_mm * torch.tensor([2.7, 0.4, 1.2])).pad(3, (0, 2, 5))  # beyond the edges
        for dtype in (torch.float32, torch.float64):
            data = torch.full((1, *grid.shape), value, dtype=dtype)
            seen = resample(data, grid, target, profile=profile)
            assert ((seen - value).abs() <= 1e-6 * abs(value)).all()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_stripes_above_nyquist_do_not_survive_on_a_coarser_axis(axis: int) -> None:
    source = grid_of((48, 48, 48))
    stripes = along(axis, torch.arange(48.0) % 2, source.shape)
    for factor, profile, bound in [(4, "box", 1e-6), (2, "box", 1e-6), (4, "gaussian", 0.02), (3, "gaussian", 0.02)]:
        spacing = [1.0, 1.0, 1.0]
        spacing[axis] = factor
        seen = resample(stripes, source, source.resampled(spacing), profile=profile)
        assert seen.shape[axis] == 48 // factor
        inner = seen.narrow(axis, 2, 48 // factor - 4)
        assert ((inner - 0.5).abs() <= bound).all()


def test_without_a_profile_stripes_alias() -> None:
    source = grid_of((6, 6, 48))
    stripes = along(2, torch.arange(48.0) % 2, source.shape)
    seen = resample(stripes, source, source.resampled((1, 1, 3)), profile="none")
    assert seen[0, 0, :4].tolist() == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("frequency", [0.2, 0.3, 0.4])
def test_a_gaussian_removes_and_a_box_damps_waves_above_the_new_nyquist(frequency: float) -> None:
    source = grid_of((4, 4, 120))  # to 4 mm: Nyquist is 0.125 per mm
    wave = along(2, torch.cos(2 * math.pi * frequency * torch.arange(120.0)), source.shape)
    target = source.resampled((1, 1, 4))
    gaussian, box = (resample(wave, source, target, profile=p)[0, 0, 4:-4] for p in ("gaussian", "box"))
    sigma = math.sqrt(15) / 2.3548
    assert gaussian.abs().max() <= math.exp(-2 * (math.pi * sigma * frequency) ** 2) + 1e-3
    dirichlet = math.sin(4 * math.pi * frequency) / (4 * math.sin(math.pi * frequency))
    assert box.abs().max() <= abs(dirichlet) + 1e-4


@pytest.mark.parametrize("profile", PROFILES)
def test_only_axes_that_get_coarser_are_blurred(profile: str) -> None:
    source = grid_of((5, 6, 24))
    data = noise(5, 6, 24)
    seen = resample(data, source, source.resampled((1, 1, 4)), profile=profile)
    for i, j in [(0, 0), (2, 3), (4, 5)]:
        column = grid_of((1, 1, 24))
        alone = resample(data[i : i + 1, j : j + 1], column, column.resampled((1, 1, 4)), profile=profile)
        close(seen[i, j], alone[0, 0])


def test_a_thick_slice_averages_noise_and_interpolation_does_not() -> None:
    source = grid_of((40, 40, 100))
    data = noise(40, 40, 100)
    thick = source.resampled((1, 1, 5))
    assert float(resample(data, source, thick).std()) == pytest.approx(0.447, abs=0.01)
    assert float(resample(data, source, thick, profile="none").std()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_blobs_centroid_stays_where_it_is_in_the_world(seed: int, profile: str) -> None:
    oblique = random_grid(seed)
    affine = oblique.affine.clone()
    affine[:3, :3] = oblique.direction * torch.tensor([1.0, 0.8, 1.2])
    source = VoxelGrid((40, 44, 48), affine)
    centre = torch.tensor([19.3, 22.9, 24.4], dtype=torch.float64)
    blob = torch.exp(-(((source.indices() - centre) / 3.5) ** 2).sum(-1) / 2)
    for factors in [(1.5, 1, 2), (0.5, 2.2, 1), (3, 0.7, 0.9)]:
        target = source.resampled(source.spacing_mm * torch.tensor(factors)).flip(1)
        seen = resample(blob, source, target, profile=profile)
        centroid = (seen[..., None] * world_of(target)).sum((0, 1, 2)) / seen.sum()
        assert float((centroid - source.to_world(centre)).norm()) < 0.01


# -- thickness is its own setting ----------------------------------------------------------------------


def test_slices_of_5_mm_every_2_mm_overlap() -> None:
    source = grid_of((1, 1, 25))
    impulse = torch.zeros(1, 1, 25)
    impulse[0, 0, 10] = 1.0
    target = VoxelGrid((1, 1, 12), torch.diag(torch.tensor([1.0, 1.0, 2.0, 1.0])))  # centres 0, 2, .., 22
    seen = resample(impulse, source, target, thickness_mm=(1, 1, 5))
    close(seen[0, 0], [0, 0, 0, 0, 0.2, 0.2, 0.2, 0, 0, 0, 0, 0], atol=1e-6)


def test_thin_slices_with_gaps_see_nothing_of_the_gaps() -> None:
    source = grid_of((1, 1, 25))
    values = noise(1, 1, 25)
    target = VoxelGrid((1, 1, 5), torch.diag(torch.tensor([1.0, 1.0, 5.0, 1.0])))
    close(resample(values, source, target, thickness_mm=1.0)[0, 0], values[0, 0, ::5])


def test_thick_slices_blur_on_an_equal_grid_too() -> None:
    grid = grid_of((1, 1, 9))
    impulse = torch.zeros(1, 1, 9)
    impulse[0, 0, 4] = 1.0
    third = 1 / 3
    seen = resample(impulse, grid, grid, thickness_mm=(1, 1, 3))
    close(seen[0, 0], [0, 0, 0, third, third, third, 0, 0, 0], atol=1e-6)


# -- tensors of any kind -------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_batch_dimensions_and_strides_make_no_difference(profile: str) -> None:
    source = grid_of((4, 6, 8))
    target = source.resampled((1.5, 0.7, 2))
    batch = noise(2, 3, 4, 6, 8)
    seen = resample(batch, source, target, profile=profile)
    assert seen.shape == (2, 3, *target.shape)
    close(seen[1, 2], resample(batch[1, 2], source, target, profile=profile))
    strided = batch.permute(4, 3, 2, 1, 0).contiguous().permute(4, 3, 2, 1, 0)
    assert not strided.is_contiguous()
    close(resample(strided, source, target, profile=profile), seen)
    assert resample(batch[:0], source, target, profile=profile).shape == (0, 3, *target.shape)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_dtype_is_kept(dtype: torch.dtype) -> None:
    source = grid_of((4, 6, 8))
    exact = resample(noise(4, 6, 8), source, source.resampled(2.0))
    seen = resample(noise(4, 6, 8).to(dtype), source, source.resampled(2.0))
    assert seen.dtype == dtype
    close(seen.double(), exact, atol=0.02)


@pytest.mark.parametrize("profile", PROFILES)
def test_gradients_are_right(profile: str) -> None:
    source = grid_of((3, 4, 5))
    target = source.resampled((1.5, 0.8, 2.0)).flip(0)
    data = noise(2, 3, 4, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: resample(x, source, target, profile=profile), (data,))


def test_the_input_is_not_changed() -> None:
    source = grid_of((3, 4, 5))
    data = noise(3, 4, 5)
    before = data.clone()
    resample(data, source, source.resampled(2.0))
    assert torch.equal(data, before)


# -- errors --------------------------------------------------------------------------------------------


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    grid = grid_of((2, 3, 4))
    with pytest.raises(ValueError, match="profile must be one of box, gaussian, none, got 'cubic'"):
        resample(torch.zeros(2, 3, 4), grid, grid, profile="cubic")
    with pytest.raises(ValueError, match="profile must be one of box, gaussian, none, got 'cubic'"):
        resample_labels(torch.zeros(2, 3, 4, dtype=torch.int64), grid, grid, profile="cubic")


def test_an_array_that_is_not_on_the_source_grid_is_refused() -> None:
    grid = grid_of((2, 3, 4))
    with pytest.raises(ValueError, match=r"data must end in the source grid's shape \(2, 3, 4\), got \(1, 4, 3, 2\)"):
        resample(torch.zeros(1, 4, 3, 2), grid, grid)
    with pytest.raises(ValueError, match=r"labels must end in the source grid's shape \(2, 3, 4\), got \(4, 3, 2\)"):
        resample_labels(torch.zeros(4, 3, 2, dtype=torch.int64), grid, grid)


def test_integers_and_floats_go_to_their_own_function() -> None:
    grid = grid_of((2, 3, 4))
    with pytest.raises(TypeError, match="data must be floating point, got torch.int16; for labels use resample_labels"):
        resample(torch.zeros(2, 3, 4, dtype=torch.int16), grid, grid)
    with pytest.raises(TypeError, match="labels must be integers, got torch.float32"):
        resample_labels(torch.zeros(2, 3, 4), grid, grid)


def test_modes_and_profiles_that_do_not_exist_or_do_not_go_together_are_refused() -> None:
    grid = grid_of((2, 3, 4))
    with pytest.raises(ValueError, match="mode must be one of linear, nearest, cubic, got 'spline'"):
        resample(torch.zeros(2, 3, 4), grid, grid, mode="spline")
    with pytest.raises(ValueError, match="mode 'nearest' takes no slice profile, got profile 'box'"):
        resample(torch.zeros(2, 3, 4), grid, grid, mode="nearest", profile="box")


def test_a_thickness_is_positive() -> None:
    grid = grid_of((2, 3, 4))
    with pytest.raises(ValueError, match="thickness_mm must be positive and finite, one or three numbers in mm, got 0"):
        resample(torch.zeros(2, 3, 4), grid, grid, thickness_mm=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_refused_and_not_spread(value: float) -> None:
    source = VoxelGrid.from_spacing((6, 5, 4), 1.0)
    data = torch.zeros(6, 5, 4)
    data[1, 2, 3] = value
    with pytest.raises(ValueError, match="1 of 120 values are NaN or inf"):
        resample(data, source, source.resampled(2.0))


def test_a_sum_that_overflows_is_not_taken_for_a_value_that_is_not_finite() -> None:
    source = VoxelGrid.from_spacing((4, 4, 4), 1.0)
    huge = torch.full((4, 4, 4), 3e38)
    assert resample(huge, source, source.resampled((1.0, 1.0, 2.0)), profile="none").shape == (4, 4, 2)


def test_equal_grids_return_the_data_itself_whatever_it_holds() -> None:
    source = VoxelGrid.from_spacing((2, 2, 2), 1.0)
    data = torch.full((2, 2, 2), float("nan"))
    assert resample(data, source, source) is data


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shift", [-1.0, 1.0])
def test_a_target_wholly_outside_is_an_error_and_one_that_overlaps_is_not(axis: int, shift: float) -> None:
    source = VoxelGrid.from_spacing((4, 5, 6), (1.0, 2.0, 3.0))
    labels = torch.ones(4, 5, 6, dtype=torch.long)
    for fraction, overlaps in ((0.99, True), (1.0, False), (50.0, False)):
        affine = source.affine
        affine[axis, 3] += shift * fraction * source.extent_mm[axis]
        target = VoxelGrid(source.shape, affine)
        if overlaps:
            assert resample(labels.double(), source, target).unique().tolist() == [1.0]
            continue
        for call in (
            lambda target=target: resample(labels.double(), source, target),
            lambda target=target: resample(labels, source, target, mode="nearest"),
            lambda target=target: resample_labels(labels, source, target),
        ):
            with pytest.raises(
                ValueError, match=rf"target must overlap the source's field of view.* on axis {'ijk'[axis]}"
            ):
                call()
