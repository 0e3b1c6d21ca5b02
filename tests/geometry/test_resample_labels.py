import pytest
import torch
from torch import Tensor

from medattn.geometry import VoxelGrid, resample_labels
from tests.geometry.grids import SEEDS, grid_of, random_grid

PROFILES = ("box", "gaussian", "none")


def _column(values: list[int], dtype: torch.dtype = torch.int64) -> tuple[Tensor, VoxelGrid]:
    return torch.tensor(values, dtype=dtype).reshape(1, 1, -1), grid_of((1, 1, len(values)))


def test_a_thick_voxel_takes_the_label_that_fills_most_of_it() -> None:
    labels, source = _column([1, 7, 1, 1, 2, 7, 7, 2, 9, 9, 9, 3])
    thick = source.resampled((1, 1, 4))
    assert resample_labels(labels, source, thick).flatten().tolist() == [1, 2, 9]  # 2, 7 tie: the lower
    labels, source = _column([5, 3, 3, 5, 8, 8])
    assert resample_labels(labels, source, source.resampled((1, 1, 2))).flatten().tolist() == [3, 3, 8]


def test_the_largest_share_wins_in_three_dimensions() -> None:
    labels = torch.zeros(4, 2, 2, dtype=torch.uint8)
    labels[0, :, :] = 6  # 4 of the first 8 voxels; 0 has 3, 5 has 1
    labels[1, 0, 0] = 5
    source = grid_of((4, 2, 2))
    assert resample_labels(labels, source, source.resampled(2.0)).flatten().tolist() == [6, 0]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_label_is_invented(seed: int, profile: str) -> None:
    grid = random_grid(seed)
    names = torch.tensor([-3, 0, 4, 250])
    labels = names[torch.randint(0, 4, grid.shape, generator=torch.Generator().manual_seed(seed))]
    target = grid.resampled(grid.spacing_mm * torch.tensor([2.6, 0.45, 1.3])).pad(1, 2)
    seen = resample_labels(labels, grid, target, profile=profile)
    assert seen.shape == target.shape
    assert set(seen.unique().tolist()) <= {-3, 0, 4, 250}


def test_finer_labels_keep_the_voxels_they_had() -> None:
    labels, source = _column([1, 1, 4, 4, 2])
    finer = resample_labels(labels, source, source.resampled((1, 1, 1 / 3)))
    assert finer.flatten().tolist() == [1] * 6 + [4] * 6 + [2] * 3


def test_labels_on_a_flipped_grid_are_flipped() -> None:
    labels = torch.randint(0, 5, (3, 4, 5), generator=torch.Generator().manual_seed(0))
    source = grid_of((3, 4, 5))
    assert torch.equal(resample_labels(labels, source, source.flip(1)), labels.flip(1))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integer_types_and_batches_of_labels_are_kept(dtype: torch.dtype) -> None:
    labels = torch.randint(0, 2, (2, 4, 4, 4), generator=torch.Generator().manual_seed(0)).to(dtype)
    source = grid_of((4, 4, 4))
    target = source.resampled((2, 1, 0.5))
    seen = resample_labels(labels, source, target)
    assert seen.dtype == dtype
    assert torch.equal(seen[1], resample_labels(labels[1], source, target))


def test_a_label_beyond_the_range_of_float32_is_kept() -> None:
    labels, source = _column([16777217, 16777217, 16777216, 16777216], torch.int32)
    assert resample_labels(labels, source, source.resampled((1, 1, 2))).flatten().tolist() == [16777217, 16777216]


def test_labels_on_an_equal_grid_are_the_same_tensor() -> None:
    labels, source = _column([1, 2, 3])
    assert resample_labels(labels, source, VoxelGrid(source.shape, source.affine)) is labels


def test_the_label_that_covers_most_of_a_voxel_wins_by_plain_overlap() -> None:
    generator = torch.Generator().manual_seed(0)
    checked = 0
    for spacing in (1.357, 1.7, 2.3, 3.1):
        source = VoxelGrid.from_spacing((40, 1, 1), 1.0)
        target = source.resampled((spacing, 1.0, 1.0))
        labels = torch.randint(0, 3, (40, 1, 1), generator=generator)
        found = resample_labels(labels, source, target)
        fine = 2000  # points per new voxel
        inside = (torch.arange(fine, dtype=torch.float64) + 0.5) / fine - 0.5
        for n in range(1, target.shape[0] - 1):
            index = (source.to_index(target.to_world((float(n), 0, 0)))[0] + inside * spacing).round().long()
            shares = torch.bincount(labels[index, 0, 0], minlength=3).double() / fine
            first, second = shares.topk(2).values.tolist()
            if first - second > 0.01:
                checked += 1
                assert int(found[n, 0, 0]) == int(shares.argmax())
    assert checked > 40
