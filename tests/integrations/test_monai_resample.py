"""``ResampleToSpacingd``: images and labels come to lie on one grid."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from monai.data import MetaTensor, set_track_meta
from monai.transforms import Compose, Flipd

from medattn.geometry import VoxelGrid, resample, resample_labels
from medattn.integrations.monai import ResampleToSpacingd, from_metatensor, to_metatensor
from medattn.volumes import Note, NoteKind, Volume, VolumeWarning
from tests.geometry.grids import close, grid_of, noise, random_grid, world_of
from tests.integrations.tensors import along_k, tensor_on, world_volume

# -- the grid -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["box", "gaussian", "none"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_images_are_resampled_as_resample_does(mode: Any, profile: Any) -> None:
    grid = random_grid(2)
    tensor = tensor_on(grid)
    seen = ResampleToSpacingd("image", (1.5, 0.7, 6.0), mode=mode, profile=profile)({"image": tensor})["image"]
    target = grid.resampled((1.5, 0.7, 6.0))
    assert torch.equal(seen.affine, target.affine)
    assert torch.equal(seen.as_tensor(), resample(tensor.as_tensor(), grid, target, mode=mode, profile=profile))


@pytest.mark.parametrize("profile", ["box", "none"])
def test_labels_are_resampled_by_partial_volume_and_keep_their_type(profile: Any) -> None:
    grid = grid_of((7, 5, 6), (1.0, 2.0, 3.0))
    labels = (noise(1, 7, 5, 6) > 0).long() + (noise(1, 7, 5, 6, seed=1) > 0)
    expected = resample_labels(labels, grid, grid.resampled(2.5), profile=profile)
    for dtype in (torch.int64, torch.uint8, torch.float32):
        resampling = ResampleToSpacingd("label", 2.5, label_keys="label", profile=profile)
        seen = resampling({"label": to_metatensor(Volume(labels.to(dtype), grid))})["label"]
        assert seen.dtype == dtype
        assert torch.equal(seen.as_tensor(), expected.to(dtype))


def test_the_field_of_view_decides_how_many_voxels_there_are() -> None:
    seen = ResampleToSpacingd("x", 0.5)({"x": tensor_on(grid_of((3, 3, 3)))})["x"]
    assert seen.shape == (1, 6, 6, 6)
    assert seen.affine[:3, 3].tolist() == [-0.25, -0.25, -0.25]
    wide = ResampleToSpacingd("x", (2, 1, 0.2))({"x": tensor_on(grid_of((128, 128, 32)), 0.0)})["x"]
    assert wide.shape == (1, 64, 128, 160)


@pytest.mark.parametrize(
    ("size", "old", "new", "expected"), [(120, 3.0, 4.0, 90), (1, 1.0, 5.0, 1), (256, 0.9, 1.0, 230)]
)
def test_sizes_are_those_of_the_extent(size: int, old: float, new: float, expected: int) -> None:
    seen = ResampleToSpacingd("x", new)({"x": along_k(torch.zeros(size), old)})["x"]
    assert seen.shape[-1] == expected
    assert seen.pixdim[-1] == pytest.approx(new, abs=1e-12)


def test_every_voxel_is_where_its_affine_says() -> None:
    volume = world_volume(grid_of((256, 2, 3), (0.9, 1.0, 2.0)))
    for spacing in (1.0, 0.5, (3.0, 1.0, 0.7)):
        seen = from_metatensor(ResampleToSpacingd("x", spacing)({"x": to_metatensor(volume)})["x"])
        inner = seen.crop((4, 0, 0), (seen.grid.shape[0] - 4, *seen.grid.shape[1:]))
        close(inner.data[0], world_of(inner.grid)[..., 0], atol=1e-6)


def test_stripes_finer_than_the_new_voxels_are_averaged() -> None:
    stripes = torch.tensor([0.0, 1.0]).repeat(40)
    seen = ResampleToSpacingd("x", (1.0, 1.0, 4.0))({"x": along_k(stripes)})["x"]
    assert seen.shape == (1, 1, 1, 20)
    close(seen.as_tensor(), torch.full((1, 1, 1, 20), 0.5), atol=0.02)


def test_the_spacing_that_it_has_changes_nothing() -> None:
    grid = random_grid(1)
    tensor = tensor_on(grid)
    seen = ResampleToSpacingd("x", grid.spacing_mm)({"x": tensor})["x"]
    assert torch.equal(seen.as_tensor(), tensor.as_tensor())
    close(seen.affine, grid.affine, atol=1e-12)


@pytest.mark.parametrize("spacing", [0, (1, 2), float("nan"), (1, 1, -1)])
def test_a_bad_spacing_is_refused_at_once(spacing: Any) -> None:
    with pytest.raises(ValueError, match="spacing_mm must be positive and finite"):
        ResampleToSpacingd("x", spacing)


def test_a_tensor_in_lps_stays_in_lps_and_in_place() -> None:
    ras = world_volume(grid_of((8, 6, 4), (1.0, 2.0, 3.0)))
    lps = MetaTensor(
        ras.data, affine=torch.tensor([-1.0, -1, 1, 1]).double()[:, None] * ras.grid.affine, meta={"space": "LPS"}
    )
    resampling = ResampleToSpacingd("x", 1.5)
    one, two = (resampling({"x": tensor})["x"] for tensor in (to_metatensor(ras), lps))
    assert two.meta["space"] == "LPS"
    assert torch.equal(one.as_tensor(), two.as_tensor())
    assert torch.equal(from_metatensor(one).grid.affine, from_metatensor(two).grid.affine)
    assert torch.equal(resampling.inverse({"x": two})["x"].affine, lps.affine)


# -- one grid for all keys ------------------------------------------------------------------------------


def noisy(grid: VoxelGrid, amount: float) -> VoxelGrid:
    change = amount * noise(4, 4)
    change[3] = 0
    return VoxelGrid(grid.shape, grid.affine + change)


@pytest.mark.parametrize("keys", [["scan", "label"], ["label", "scan"]])
def test_labels_with_a_noisy_affine_come_to_lie_exactly_on_the_images_grid(keys: list[str]) -> None:
    grid = grid_of((120, 4, 3), 3.0)
    values = (noise(1, *grid.shape) > 0).long()
    data = {"scan": tensor_on(grid), "label": tensor_on(noisy(grid, 1e-5), values)}
    resampling = ResampleToSpacingd(keys, 4.0, label_keys="label")
    seen = resampling(data)
    assert seen["scan"].shape == seen["label"].shape == (1, 90, 3, 2)
    target = grid.resampled(4.0)
    assert torch.equal(seen["scan"].affine, target.affine) and torch.equal(seen["label"].affine, target.affine)
    assert torch.equal(seen["label"].as_tensor(), resample_labels(values, grid, target))
    restored = resampling.inverse(seen)
    for key in keys:
        assert torch.equal(restored[key].affine, data[key].affine)


def test_half_a_voxel_of_extent_cannot_be_decided_twice() -> None:
    grid = grid_of((3, 3, 3), 1.5)  # 4.5 mm at 1 mm: 4 or 5 voxels
    data = {"image": tensor_on(grid), "label": tensor_on(noisy(grid, 1e-4), 1)}
    seen = ResampleToSpacingd(["image", "label"], 1.0, label_keys="label")(data)
    assert seen["image"].shape == seen["label"].shape


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (VoxelGrid((4, 5, 6), grid_of((4, 5, 6)).with_spacing((1, 1, 1.1)).affine), "spacing_mm"),
        (grid_of((5, 5, 6)).crop((1, 0, 0), (5, 5, 6)), "origin_mm"),
        (grid_of((4, 5, 7)), "shape"),
    ],
)
@pytest.mark.parametrize("label_keys", [(), "label"])
def test_grids_that_differ_are_refused_naming_field_keys_and_files(
    other: VoxelGrid, field: str, label_keys: Any
) -> None:
    data = {"image": tensor_on(grid_of((4, 5, 6)), name="a.nii"), "label": tensor_on(other, name="b.nii")}
    with pytest.raises(ValueError, match=rf"'image a.nii' and labels 'label b.nii'.*{field}"):
        ResampleToSpacingd(["image", "label"], 2.0, label_keys=label_keys)(data)


def test_missing_keys_are_an_error_unless_allowed() -> None:
    data = {"image": tensor_on(grid_of((4, 5, 6))), "age": 3}
    with pytest.raises(KeyError, match="label"):
        ResampleToSpacingd(["image", "label"], 2.0)(data)
    seen = ResampleToSpacingd(["image", "label"], 2.0, allow_missing_keys=True)(data)
    assert seen["image"].shape == (1, 2, 3, 3) and seen["age"] == 3
    assert ResampleToSpacingd("label", 2.0, allow_missing_keys=True)(data) == data


# -- what it refuses and reports ------------------------------------------------------------------------


def test_an_integer_image_is_refused_unless_it_is_named_as_labels() -> None:
    with pytest.raises(TypeError, match=r"image 'x' must be floating point \(labels: label_keys\), got torch.int64"):
        ResampleToSpacingd("x", 2.0)({"x": tensor_on(grid_of((4, 5, 6)), 1)})


@pytest.mark.parametrize("value", [0.5, float("nan"), float("inf")])
def test_labels_that_are_no_integers_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="labels 'x' must be integers, got"):
        ResampleToSpacingd("x", 2.0, label_keys="x")({"x": tensor_on(grid_of((4, 5, 6)), value)})


def test_an_error_names_the_key() -> None:
    with pytest.raises(ValueError, match="x: a channel axis is needed"):
        ResampleToSpacingd("x", 2.0)({"x": MetaTensor(torch.zeros(4, 5, 6))})
    with pytest.raises(TypeError, match="x: a MetaTensor is needed"):
        ResampleToSpacingd("x", 2.0)({"x": torch.zeros(1, 4, 5, 6)})


def test_metadata_turned_off_is_an_error_and_no_identity() -> None:
    pipeline = Compose([Flipd("x", 0), ResampleToSpacingd("x", 2.0)])
    set_track_meta(False)
    try:
        with pytest.raises(RuntimeError) as caught:
            pipeline({"x": tensor_on(grid_of((4, 5, 6)))})
    finally:
        set_track_meta(True)
    assert "get_track_meta" in str(caught.value.__cause__)


def test_a_lost_label_is_a_warning_and_a_note_in_the_tensor() -> None:
    labels = torch.zeros(1, 6, 6, 6, dtype=torch.int64)
    labels[0, 2, 2, 2] = 5
    tensor = to_metatensor(Volume(labels, grid_of((6, 6, 6)), (Note(NoteKind.UNITS_ASSUMED, "mm"),), "seg.nii"))
    with pytest.warns(VolumeWarning, match=r"x seg.nii: .*lost labels \[?5"):
        seen = ResampleToSpacingd("x", 3.0, label_keys="x")({"x": tensor})["x"]
    assert [note.kind for note in from_metatensor(seen).notes] == [NoteKind.UNITS_ASSUMED, NoteKind.LABELS_CHANGED]
    assert [note.kind for note in from_metatensor(tensor).notes] == [NoteKind.UNITS_ASSUMED]


def test_the_input_is_left_as_it_was() -> None:
    data = {"x": tensor_on(random_grid(3))}
    kept = copy.deepcopy(data["x"])
    resampling = ResampleToSpacingd("x", 2.0)
    seen = resampling(data)
    steps = copy.deepcopy(seen["x"].applied_operations)
    resampling.inverse(seen)
    assert torch.equal(data["x"].as_tensor(), kept.as_tensor()) and torch.equal(data["x"].affine, kept.affine)
    assert data["x"].applied_operations == []
    assert len(seen["x"].applied_operations) == len(steps) == 1
