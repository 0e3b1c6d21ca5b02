"""``Volume``: data and grid stay in step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from medattn.geometry import VoxelGrid
from medattn.volumes import (
    Note,
    NoteKind,
    Volume,
    VolumeError,
    check_same_grid,
    load_volume,
    save_dicom_seg,
    save_volume,
    to_original,
)


def oblique_grid(shape: tuple[int, int, int] = (3, 4, 5)) -> VoxelGrid:
    affine = torch.tensor(
        [[0.2, -1.9, 0.3, -40], [0.9, 0.4, 0.6, 12], [-0.1, 0.3, 2.8, 700], [0, 0, 0, 1]], dtype=torch.float64
    )
    return VoxelGrid(shape, affine)


def world_volume() -> Volume:
    """Three channels that hold each voxel's own position in mm."""
    grid = oblique_grid()
    return Volume(grid.to_world(grid.indices()).permute(3, 0, 1, 2), grid, (Note(NoteKind.SHEARED, "yes"),), "scan")


def holds_its_own_positions(volume: Volume) -> bool:
    expected = volume.grid.to_world(volume.grid.indices()).permute(3, 0, 1, 2)
    return torch.allclose(volume.data, expected, atol=1e-9)


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 3, 4, 6), (1, 5, 4, 3), (1, 1, 3, 4, 5), (0, 3, 4, 5)])
def test_data_must_have_a_channel_axis_and_the_shape_of_the_grid(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"'scan'.*\(3, 4, 5\).*got \(") as caught:
        Volume(torch.zeros(shape), oblique_grid(), name="scan")
    assert str(shape) in str(caught.value)


def test_crop_moves_the_grid_with_the_data() -> None:
    cropped = world_volume().crop((1, 0, 2), (3, 4, 5))
    assert cropped.data.shape == (3, 2, 4, 3)
    assert holds_its_own_positions(cropped)


def test_crop_of_the_identity_shifts_the_origin() -> None:
    volume = Volume(torch.arange(24.0).reshape(1, 4, 3, 2), VoxelGrid((4, 3, 2), torch.eye(4)))
    cropped = volume.crop((2, 0, 0), (4, 3, 2))
    assert cropped.grid.origin_mm.tolist() == [2, 0, 0]
    assert cropped.data[0, 0, 0].tolist() == [12, 13]


@pytest.mark.parametrize(("start", "stop"), [((0, 0, 0), (4, 4, 5)), ((2, 0, 0), (2, 4, 5)), ((-1, 0, 0), (3, 4, 5))])
def test_crop_outside_the_volume_is_an_error(start: Any, stop: Any) -> None:
    with pytest.raises(ValueError, match="start|crop"):
        world_volume().crop(start, stop)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_flip_moves_the_grid_with_the_data_and_twice_is_nothing(axis: int) -> None:
    volume = world_volume()
    flipped = volume.flip(axis)
    assert holds_its_own_positions(flipped)
    assert not torch.equal(flipped.data, volume.data)
    assert torch.equal(flipped.flip(axis).data, volume.data)


def test_flip_has_no_axis_for_the_channels() -> None:
    with pytest.raises(ValueError, match="axis must be 0, 1 or 2, got 3"):
        world_volume().flip(3)


@pytest.mark.parametrize("axcodes", ["RAS", "LPS", "SAR", "ILP", "PIR"])
def test_reoriented_moves_the_grid_with_the_data(axcodes: str) -> None:
    volume = world_volume().reoriented(axcodes)
    assert "".join(volume.grid.axcodes) == axcodes
    assert holds_its_own_positions(volume)


def test_name_and_notes_survive_every_operation() -> None:
    volume = world_volume()
    for other in (volume.flip(0), volume.crop((0, 0, 0), (1, 1, 1)), volume.reoriented("RAS")):
        assert (other.name, other.notes) == ("scan", volume.notes)


def volume_at(
    origin: Any = (0.0, 0.0, 0.0), spacing: Any = (1.0, 2.0, 3.0), degrees: float = 0.0, shape: Any = (3, 4, 5)
) -> Volume:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    affine = torch.eye(4, dtype=torch.float64)
    affine[:2, :2] = torch.tensor([[cos, -sin], [sin, cos]])
    affine[:3, :3] *= torch.tensor(spacing)
    affine[:3, 3] = torch.tensor(origin)
    return Volume(torch.zeros(1, *shape), VoxelGrid(shape, affine), name=f"at {origin}")


@pytest.mark.parametrize(
    ("other", "field", "own", "value"),
    [
        (volume_at((-250.0, 10.0, 20.0)), "origin_mm", "[-223.24, 10.0, 20.0]", "[-250.0, 10.0, 20.0]"),
        (volume_at((-223.24, 10.0, 20.02)), "origin_mm", "[-223.24, 10.0, 20.0]", "[-223.24, 10.0, 20.02]"),
        (volume_at((-223.24, 10.0, 20.0), degrees=10), "direction", "[1.0, 0.0, 0.0]", "[0.9848, -0.1736, 0.0]"),
        (volume_at((-223.24, 10.0, 20.0), (1.0, 2.0, 2.9)), "spacing_mm", "[1.0, 2.0, 3.0]", "[1.0, 2.0, 2.9]"),
        (volume_at((-223.24, 10.0, 20.0), shape=(3, 4, 6)), "shape", "(3, 4, 5)", "(3, 4, 6)"),
    ],
)
def test_grids_that_differ_are_an_error_that_names_the_field_and_both_values(
    other: Volume, field: str, own: str, value: str
) -> None:
    image = volume_at((-223.24, 10.0, 20.0))
    with pytest.raises(ValueError, match=field) as caught:
        check_same_grid(image, other)
    message = str(caught.value)
    assert own in message and value in message
    assert image.name in message and other.name in message
    assert [name for name in ("origin_mm", "spacing_mm", "direction") if name in message] == [field] * (
        field != "shape"
    )


def test_every_field_that_differs_is_named() -> None:
    with pytest.raises(ValueError, match=r"origin_mm .*; spacing_mm .*; direction "):
        check_same_grid(volume_at(), volume_at((1.0, 0.0, 0.0), (1.0, 2.0, 4.0), 5))


@pytest.mark.parametrize("cell", [(0, 0), (1, 1), (0, 1), (2, 2), (0, 3), (2, 3)])
def test_what_rounding_changes_passes(cell: tuple[int, int]) -> None:
    image = volume_at((-223.24, 10.0, 20.0))
    affine = image.grid.affine.clone()
    affine[cell] += 1e-4
    check_same_grid(image, Volume(image.data, VoxelGrid(image.grid.shape, affine)))


def test_the_tolerance_can_be_chosen() -> None:
    check_same_grid(volume_at(), volume_at((0.4, 0.0, 0.0)), atol_mm=0.5)
    with pytest.raises(ValueError, match="origin_mm"):
        check_same_grid(volume_at(), volume_at((1e-4, 0.0, 0.0)), atol_mm=1e-6)


@pytest.mark.parametrize(
    ("data", "grid"), [([[1]], VoxelGrid((1, 1, 1), torch.eye(4))), (torch.zeros(1, 1, 1, 1), None)]
)
def test_what_is_no_tensor_on_a_grid_is_refused_by_name(data: Any, grid: Any) -> None:
    with pytest.raises(
        TypeError, match=r"(data of volume '' must be a Tensor|grid of volume '' must be a VoxelGrid), got "
    ):
        Volume(data, grid)


def test_a_tensor_without_its_grid_can_neither_be_saved_nor_put_back(tmp_path: Path) -> None:
    tensor: Any = torch.zeros(1, 2, 2, 2)
    volume = Volume(tensor, VoxelGrid((2, 2, 2), torch.eye(4)))
    for call in (
        lambda: save_volume(tmp_path / "x.nii", tensor),
        lambda: save_dicom_seg(tmp_path / "x.dcm", tensor),
        lambda: to_original(tensor, tensor),
        lambda: to_original(None, volume),
    ):
        with pytest.raises(TypeError, match="must be a Volume"):
            call()


@pytest.mark.parametrize("path", [3, None, b"x.nii", [3], {"x.nii"}])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(TypeError, match="path must be a path, or a list of paths of DICOM files, got"):
        load_volume(path)


def test_a_series_of_what_has_none_is_refused(tmp_path: Path) -> None:
    save_volume(tmp_path / "x.nii", Volume(torch.zeros(1, 2, 2, 2), VoxelGrid((2, 2, 2), torch.eye(4))))
    with pytest.raises(VolumeError, match=r"x\.nii: series chooses among the series of DICOM files, and this is nifti"):
        load_volume(tmp_path / "x.nii", series="1.2.3")
