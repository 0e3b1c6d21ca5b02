"""Back on the file's grid: whatever was cropped, padded, turned, flipped or resampled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from medattn.geometry import VoxelGrid
from medattn.volumes import NoteKind, Volume, VolumeWarning, load_volume, save_volume
from medattn.volumes.original import to_original
from tests.geometry.grids import random_grid


def scan(seed: int = 0, shape: tuple[int, int, int] = (9, 7, 8)) -> Volume:
    grid = VoxelGrid(shape, random_grid(seed).affine)
    return Volume(torch.randn(2, *shape, generator=torch.Generator().manual_seed(seed)), grid, name="scan")


def labels(volume: Volume) -> torch.Tensor:
    return torch.arange(volume.data[:1].numel()).reshape(1, *volume.grid.shape)


# -- moving voxels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_flips_permutations_and_padding_are_undone_exactly(seed: int) -> None:
    original = scan(seed)
    processed = original.pad((2, 0, 1), (0, 3, 1)).reoriented("PIR").flip(1)
    assert processed.source_grid is original.source_grid
    back = to_original(processed.data, processed)
    assert torch.equal(back.data, original.data)
    assert back.grid is original.grid
    assert torch.equal(to_original(processed, original).data, original.data)


@pytest.mark.parametrize("outside", [0, -1])
def test_what_a_crop_cut_off_gets_the_value_outside(outside: int) -> None:
    original = scan()
    cropped = original.crop((2, 1, 0), (8, 7, 5)).flip(0)
    back = to_original(labels(cropped), cropped, outside=outside)
    assert back.data.dtype == torch.int64
    assert torch.equal(back.data[:, 2:8, 1:7, :5].flip(1), labels(cropped))
    assert int((back.data == outside).sum()) == 9 * 7 * 8 - 6 * 6 * 5 + (outside == 0)


def test_a_value_that_is_not_finite_is_moved_too() -> None:
    original = scan()
    original.data[0, 3, 3, 3] = float("nan")
    cropped = original.crop((1, 1, 1), (8, 6, 7))
    assert torch.equal(to_original(cropped.data, cropped).data.isnan(), original.data.isnan())


# -- resampling ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_linear_field_comes_back_from_coarser_grids_inside(seed: int) -> None:
    grid = VoxelGrid((24, 26, 28), random_grid(seed).affine)
    field = (grid.indices() @ torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))[None]
    coarse = Volume(field, grid).resampled(grid.spacing_mm * torch.tensor([2.0, 1.6, 1.0])).reoriented("LPS")
    back = to_original(coarse.data, coarse)
    assert back.grid.is_close(grid, atol_mm=0)
    inner = (..., slice(4, -4), slice(4, -4), slice(4, -4))
    torch.testing.assert_close(back.data[inner], field[inner], rtol=0, atol=1e-9)


@pytest.mark.parametrize(("length", "spacing"), [(22, 5.0), (10, 3.0), (13, 3.0), (9, 4.0), (7, 2.0), (120, 7.0)])
def test_rounding_of_the_grid_leaves_no_empty_rim(length: int, spacing: float) -> None:
    grid = VoxelGrid.from_spacing((length, 3, 3), 1.0)
    body = Volume(torch.full((1, length, 3, 3), 4), grid)
    coarse = body.resampled((spacing, 1, 1))
    assert to_original(coarse.data, coarse).data.unique().tolist() == [4]
    shares = Volume(torch.ones(1, *coarse.grid.shape), coarse.grid)
    assert to_original(shares, body).data.unique().tolist() == [1.0]


def test_a_crop_of_a_resampled_volume_stays_a_crop() -> None:
    body = Volume(torch.full((1, 20, 4, 4), 4), VoxelGrid.from_spacing((20, 4, 4), 1.0))
    half = body.resampled((2.0, 1, 1)).crop((0, 0, 0), (5, 4, 4))
    assert to_original(half.data, half).data[0, :, 0, 0].tolist() == [4] * 10 + [0] * 10


def test_labels_are_never_mixed_and_probabilities_are_interpolated() -> None:
    line = VoxelGrid.from_spacing((4, 1, 1), 2.0)
    original = Volume(torch.zeros(1, 8, 1, 1), VoxelGrid.from_spacing((8, 1, 1), 1.0))
    stripes = torch.tensor([0, 9, 9, 0]).reshape(1, 4, 1, 1)
    assert to_original(Volume(stripes, line), original).data.flatten().tolist() == [0, 0, 9, 9, 9, 9, 0, 0]
    shares = Volume(torch.tensor([0.0, 1.0, 1.0, 0.0]).reshape(1, 4, 1, 1), line)
    expected = [0.0, 0.25, 0.75, 1.0, 1.0, 0.75, 0.25, 0.0]
    assert to_original(shares, original).data.flatten().tolist() == expected


axis = st.integers(3, 9)


@pytest.mark.filterwarnings("ignore::medattn.volumes.VolumeWarning")  # small labels are lost, as they must be
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(axis, axis, axis),
    factors=st.tuples(*[st.floats(0.4, 3.0)] * 3),
    codes=st.sampled_from(["RAS", "LPS", "PIR", "SLA", "IRP"]),
    whole=st.booleans(),
)
def test_a_resampled_volume_lands_on_the_files_grid(seed: int, shape: tuple, factors: tuple, codes: str, whole) -> None:
    volume = scan(seed, shape)
    if whole:
        volume = Volume((volume.data[:1] * 3).long() % 5, volume.grid)
    grid = volume.grid.resampled(volume.grid.spacing_mm * torch.tensor(factors)).reoriented(codes)
    processed = volume.resampled(grid)
    back = to_original(processed.data, processed)
    assert back.grid.is_close(volume.grid, atol_mm=0)
    assert back.data.shape == volume.data.shape
    assert back.data.dtype == volume.data.dtype
    assert set(back.data.unique().tolist()) <= set(volume.data.unique().tolist()) or not whole
    assert bool(torch.isfinite(back.data.float()).all())


def test_a_prediction_on_a_turned_grid_goes_back_too() -> None:
    original = Volume(torch.zeros(1, 21, 21, 21), VoxelGrid.from_spacing((21, 21, 21), 1.0))
    affine = torch.tensor([[0.8, -0.6, 0, 2], [0.6, 0.8, 0, -3], [0, 0, 1, -8], [0, 0, 0, 1]], dtype=torch.float64)
    small = VoxelGrid((5, 6, 7), affine)
    back = to_original(Volume(torch.full((1, 5, 6, 7), 3), small), original)
    assert back.data.unique().tolist() == [0, 3]
    found = original.grid.to_world(torch.nonzero(back.data[0]).double()).mean(0)
    assert float((found - small.fov_center_mm).norm()) < 0.2
    assert int((back.data == 3).sum()) == pytest.approx(5 * 6 * 7, rel=0.1)


def test_a_tensor_must_have_the_volumes_shape() -> None:
    with pytest.raises(ValueError, match=r"\(9, 7, 8\), the grid's shape, got \(2, 9, 7, 7\)"):
        to_original(torch.zeros(2, 9, 7, 7), scan())


def test_a_loaded_volume_knows_its_file_after_anything(tmp_path: Path) -> None:
    save_volume(tmp_path / "x.nii.gz", scan(3))
    loaded = load_volume(tmp_path / "x.nii.gz")
    processed = loaded.reoriented("RAS").resampled(loaded.grid.spacing_mm.mean().item()).crop((0, 0, 0), (2, 2, 2))
    back = to_original((processed.data[:1] > 0).long(), processed)
    save_volume(tmp_path / "y.nii.gz", back)
    assert load_volume(tmp_path / "y.nii.gz", labels=True).grid.is_close(loaded.grid, atol_mm=1e-3)


# -- labels that a grid cannot hold --------------------------------------------------------------------


def test_a_lost_label_is_a_warning_and_a_note() -> None:
    data = torch.zeros(1, 8, 8, 8, dtype=torch.int64)
    data[0, :4] = 1
    data[0, 6, 6, 6] = 7
    volume = Volume(data, VoxelGrid.from_spacing((8, 8, 8), 1.0), name="organs")
    with pytest.warns(VolumeWarning, match="organs: resampling lost labels 7$"):
        coarse = volume.resampled(4.0)
    assert [(note.kind, dict(note.values)) for note in coarse.notes] == [(NoteKind.LABELS_CHANGED, {"7": [1.0, 0.0]})]


def test_a_grown_label_is_told() -> None:
    data = torch.zeros(1, 10, 1, 1, dtype=torch.int64)
    data[0, 1:4] = 5  # 3 of the 5 that one target voxel is made of: it takes all
    volume = Volume(data, VoxelGrid.from_spacing((10, 1, 1), 1.0), name="organs")
    with pytest.warns(VolumeWarning, match=r"organs: resampling changed the volume of .*: 5 from 3 to 5 mm\^3$"):
        coarse = volume.resampled((5.0, 1, 1))
    assert coarse.data.flatten().tolist() == [5, 0]


def test_labels_that_keep_their_size_are_not_mentioned(recwarn: pytest.WarningsRecorder) -> None:
    data = torch.zeros(1, 10, 1, 1, dtype=torch.int64)
    data[0, 1:5] = 5
    coarse = Volume(data, VoxelGrid.from_spacing((10, 1, 1), 1.0)).resampled((5.0, 1, 1))
    assert coarse.notes == ()
    assert len(recwarn) == 0
