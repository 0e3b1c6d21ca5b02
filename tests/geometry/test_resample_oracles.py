"""Resampling against independent definitions: SimpleITK, plain means, numerical integration."""

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from torch import Tensor

from medattn.geometry import VoxelGrid, resample
from medattn.geometry.weights import box_weights, gaussian_weights, linear_weights
from tests.geometry.grids import SEEDS, close, grid_of, noise, random_grid, world_of


def _sitk_linear(data: Tensor, source: VoxelGrid, target: VoxelGrid) -> Tensor:
    """SimpleITK's linear interpolation; both grids in one frame, so LPS or RAS does not matter."""
    image = sitk.GetImageFromArray(data.numpy().transpose(2, 1, 0))
    image.SetSpacing(source.spacing_mm.tolist())
    image.SetOrigin(source.origin_mm.tolist())
    image.SetDirection(source.direction.flatten().tolist())
    filter_ = sitk.ResampleImageFilter()
    filter_.SetSize(target.shape)
    filter_.SetOutputSpacing(target.spacing_mm.tolist())
    filter_.SetOutputOrigin(target.origin_mm.tolist())
    filter_.SetOutputDirection(target.direction.flatten().tolist())
    filter_.SetInterpolator(sitk.sitkLinear)
    filter_.SetDefaultPixelValue(float("nan"))
    return torch.from_numpy(sitk.GetArrayFromImage(filter_.Execute(image)).transpose(2, 1, 0).copy())


@pytest.mark.parametrize("factors", [(0.6, 1.7, 0.8), (2.3, 0.5, 1.0)])
@pytest.mark.parametrize("seed", SEEDS)
def test_linear_interpolation_is_simpleitks(seed: int, factors: tuple[float, float, float]) -> None:
    source = VoxelGrid((9, 11, 7), random_grid(seed, shear=0.0).affine)
    data = noise(9, 11, 7, seed=seed)
    target = source.resampled(source.spacing_mm * torch.tensor(factors)).flip(2)
    index = source.to_index(world_of(target))
    inner = ((index >= 0) & (index <= torch.tensor(source.shape) - 1)).all(-1)
    assert inner.sum() > 50
    ours = resample(data, source, target, profile="none")
    close(ours[inner], _sitk_linear(data, source, target)[inner], atol=1e-6)


@pytest.mark.parametrize("ratio", [(2, 3, 4), (1, 2, 5), (3, 1, 1)])
def test_a_box_over_whole_voxels_is_their_plain_mean(ratio: tuple[int, int, int]) -> None:
    a, b, c = ratio
    source = VoxelGrid((4 * a, 3 * b, 2 * c), random_grid(3).affine)
    data = noise(2, 4 * a, 3 * b, 2 * c)
    target = source.resampled(source.spacing_mm * torch.tensor(ratio))
    assert target.is_close(source.patch_grid(ratio), atol_mm=1e-9)
    close(resample(data, source, target), data.reshape(2, 4, a, 3, b, 2, c).mean((2, 4, 6)))


@pytest.mark.parametrize("width", [1.25, 1.5, 2.75, 4.0])
def test_a_box_integrates_the_piecewise_linear_image(width: float) -> None:
    values = noise(14)
    positions = torch.tensor([2.0, 3.5, 6.125, 7.75, 10.0], dtype=torch.float64)
    slope = torch.gradient(values)[0]  # central inside, one-sided at the ends
    fine = (torch.arange(14 * 400, dtype=torch.float64) + 0.5) / 400 - 0.5
    voxel = (fine + 0.5).floor().long()
    image = values[voxel] + slope[voxel] * (fine - voxel)
    oracle = torch.stack([image[(fine - p).abs() < width / 2].mean() for p in positions])
    close(box_weights(positions, width, 14) @ values, oracle)


@pytest.mark.parametrize("count", [3, 5, 7, 11])
def test_boxes_that_tile_the_field_of_view_keep_its_mean(count: int) -> None:
    values = noise(12)
    width = 12 / count
    positions = (torch.arange(count, dtype=torch.float64) + 0.5) * width - 0.5
    assert float((box_weights(positions, width, 12) @ values).mean()) == pytest.approx(float(values.mean()), abs=1e-12)


@pytest.mark.parametrize("count", [11, 10, 8, 5])
def test_every_coarser_grid_over_the_same_field_of_view_keeps_the_mean(count: int) -> None:
    source = grid_of((3, 4, 12))
    data = noise(3, 4, 12)
    target = source.resampled((1, 1, 12 / count))
    assert target.shape == (3, 4, count)
    close(resample(data, source, target).mean(-1), data.mean(-1))
    assert float((resample(data, source, target, profile="none").mean(-1) - data.mean(-1)).abs().max()) > 0.01


@pytest.mark.parametrize(("thickness", "variance"), [(2.0, 0.5410), (4.0, 2.7051), (5.0, 4.3281)])
def test_a_gaussian_makes_up_the_difference_of_the_two_widths(thickness: float, variance: float) -> None:
    source = grid_of((1, 1, 61))
    impulse = torch.zeros(1, 1, 61, dtype=torch.float64)
    impulse[0, 0, 30] = 1.0
    seen = resample(impulse, source, source, profile="gaussian", thickness_mm=(1, 1, thickness))[0, 0]
    offsets = torch.arange(61, dtype=torch.float64) - 30
    # (thickness^2 - 1) / 2.3548^2, and 1/6 of linear interpolation itself
    assert float((seen * offsets**2).sum()) == pytest.approx(variance + 1 / 6, abs=2e-3)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.5])
def test_a_gaussian_is_linear_interpolation_convolved_with_it(sigma: float) -> None:
    values = noise(9)
    positions = torch.tensor([0.0, 1.3, 4.0, 6.5, 8.0], dtype=torch.float64)
    offsets = torch.linspace(-8 * sigma, 8 * sigma, 20001, dtype=torch.float64)
    kernel = torch.exp(-(offsets**2) / (2 * sigma**2))
    curve = np.interp((positions[:, None] + offsets).numpy(), np.arange(9), values.numpy())  # edge value beyond
    oracle = torch.from_numpy(curve) @ (kernel / kernel.sum())
    close(gaussian_weights(positions, sigma, 9) @ values, oracle, atol=1e-5)


def test_weights_of_every_profile_sum_to_one_inside_and_outside() -> None:
    positions = torch.linspace(-20, 30, 401, dtype=torch.float64)
    for size in (1, 2, 3, 11):
        rows = [linear_weights(positions, size)]
        rows += [box_weights(positions, width, size) for width in (1.01, 1.5, 4.0, 25.0)]
        rows += [gaussian_weights(positions, sigma, size) for sigma in (1e-9, 0.05, 0.8, 3.0)]
        for weights in rows:
            assert weights.shape == (401, size)
            close(weights.sum(1), torch.ones(401))
