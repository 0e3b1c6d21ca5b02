"""``ResampleToSpacingd``: the way back, by ``Compose.inverse`` and ``Invertd``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from monai.data import MetaTensor
from monai.transforms import (
    Compose,
    Flipd,
    Invertd,
    Orientationd,
    RandSpatialCropd,
    Resize,
    SpatialCropd,
    SpatialPadd,
)

from medattn.geometry import VoxelGrid
from medattn.integrations.monai import ResampleToSpacingd, from_metatensor, to_metatensor
from medattn.volumes import Volume, check_same_grid
from tests.geometry.grids import close, grid_of, noise, random_grid, world_of
from tests.integrations.tensors import along_k, tensor_on, world_volume

STEPS = [
    Orientationd(["x", "label"], "SLA", labels=None),
    ResampleToSpacingd(["x", "label"], 1.3, label_keys="label"),
    Flipd(["x", "label"], 1),
]


def processed(grid: VoxelGrid, *, lazy: bool = False) -> tuple[Compose, dict[str, Any]]:
    pipeline = Compose([*STEPS, SpatialCropd(["x", "label"], roi_start=(0, 0, 0), roi_end=(90, 90, 90))], lazy=lazy)
    return pipeline, pipeline({"x": to_metatensor(world_volume(grid)), "label": tensor_on(grid, 1)})


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_compose_inverse_lands_on_the_grid_from_before(seed: int, lazy: bool) -> None:
    grid = VoxelGrid((14, 13, 16), random_grid(seed).affine)
    pipeline, done = processed(grid, lazy=lazy)
    pipeline.lazy = False  # MONAI inverts eagerly anyway, but warns
    back = pipeline.inverse(done)
    volume = from_metatensor(back["x"])
    assert volume.grid.shape == grid.shape
    close(volume.grid.affine, grid.affine, atol=1e-10)
    inner = volume.crop((5, 5, 5), [n - 5 for n in grid.shape])  # where the edge value does not reach
    close(inner.data, world_of(inner.grid).permute(3, 0, 1, 2), atol=1e-3 if lazy else 1e-9)
    assert back["label"].unique().tolist() == [1]
    assert back["label"].dtype == (torch.float32 if lazy else torch.int64)  # MONAI's lazy transforms give float32
    assert back["x"].applied_operations == []


def test_crops_and_pads_before_and_after_are_undone_too() -> None:
    keys, grid = ["x", "label"], VoxelGrid((24, 22, 20), random_grid(2).with_spacing((1.0, 1.2, 1.5)).affine)
    pipeline = Compose(
        [
            RandSpatialCropd(keys, (16, 15, 14), random_size=False),
            *STEPS,
            RandSpatialCropd(keys, (12, 11, 10), random_size=False),
            SpatialPadd(keys, (16, 16, 16)),
        ]
    ).set_random_state(3)
    done = pipeline({"x": to_metatensor(world_volume(grid)), "label": tensor_on(grid, 1)})
    check_same_grid(from_metatensor(done["x"]), from_metatensor(done["label"]))
    back = {key: from_metatensor(tensor) for key, tensor in pipeline.inverse(done).items()}
    for volume in back.values():
        assert volume.grid.shape == grid.shape
        close(volume.grid.affine, grid.affine, atol=1e-9)
    kept = back["label"].data[0] == 1
    error = (back["x"].data - world_of(grid).permute(3, 0, 1, 2)).abs().amax(0)
    right = error < 1e-6
    assert int(kept.sum()) > 1500  # 1320 voxels of 1.3 mm fill 1610 of the scan's
    assert int((right & kept).sum()) > 900  # the others have a value from beyond the crop averaged in


def ramp_and_labels(nearest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A ramp, and labels 0 and 7, resampled from 2 mm to 1 mm voxels; both go back through Invertd."""
    pipeline = ResampleToSpacingd("x", (1.0, 1.0, 2.0))
    done = pipeline({"x": along_k(torch.zeros(6))})
    assert done["x"].shape == (1, 1, 1, 3)
    done["ramp"] = MetaTensor([[[[0.0, 1.0, 2.0]]]])
    done["labels"] = MetaTensor([[[[0, 7, 7]]]])
    back = Invertd(["ramp", "labels"], pipeline, orig_keys="x", nearest_interp=nearest)(done)
    assert torch.equal(back["ramp"].affine, grid_of((1, 1, 6)).affine)
    return back["ramp"].as_tensor()[0, 0, 0], back["labels"].as_tensor()[0, 0, 0]


def test_invertd_brings_probabilities_back_linearly_and_integers_as_labels() -> None:
    ramp, labels = ramp_and_labels(nearest=False)
    assert ramp.tolist() == [0, 0.25, 0.75, 1.25, 1.75, 2]
    assert labels.tolist() == [0, 0, 7, 7, 7, 7] and labels.dtype == torch.int64


def test_invertd_at_its_default_takes_the_nearest_value_and_integers_as_labels() -> None:
    ramp, labels = ramp_and_labels(nearest=True)
    assert ramp.tolist() == [0, 0, 1, 1, 2, 2]
    assert labels.tolist() == [0, 0, 7, 7, 7, 7] and labels.dtype == torch.int64


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_invertd_at_its_default_makes_no_new_values_whatever_the_mode(mode: Any) -> None:
    pipeline = ResampleToSpacingd("x", (1.7, 2.3, 0.9), mode=mode)
    done = pipeline({"x": tensor_on(random_grid(1))})
    done["pred"] = (done["x"] > 0).float() * 7
    back = Invertd("pred", pipeline, orig_keys="x")(done)["pred"]
    assert back.shape[1:] == random_grid(1).shape
    assert back.unique().tolist() == [0, 7]


def test_labels_held_as_floats_go_back_by_partial_volume() -> None:
    resampling = ResampleToSpacingd("label", 3.0, label_keys="label")
    tensor = to_metatensor(Volume((noise(1, 6, 6, 6) > 0).float(), grid_of((6, 6, 6))))
    back = resampling.inverse(resampling({"label": tensor}))["label"]
    assert back.dtype == torch.float32 and back.unique().tolist() == [0, 1]
    assert back.shape == (1, 6, 6, 6)


def test_undoing_what_was_not_done_is_an_error() -> None:
    with pytest.raises(ValueError, match="empty 'applied_operations'"):
        ResampleToSpacingd("x", 2.0).inverse({"x": tensor_on(grid_of((4, 5, 6)))})


def test_images_and_labels_still_lie_on_one_grid_afterwards() -> None:
    _, done = processed(random_grid(0))
    check_same_grid(from_metatensor(done["x"]), from_metatensor(done["label"]))
    assert from_metatensor(Resize((4, 4, 4))(done["x"])).grid.shape == (4, 4, 4)
