"""``LoadVolumed``: every format into MONAI's pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from monai.transforms import Compose, Flip

from medattn.integrations.monai import LoadVolumed, ResampleToSpacingd, from_metatensor, to_metatensor
from medattn.volumes import Volume, VolumeError, load_volume, save_volume
from tests.geometry.grids import close, noise, random_grid


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """An oblique image and its labels, in two formats."""
    grid = random_grid(5, shear=0.0)
    labels = torch.arange(noise(*grid.shape).numel()).reshape(1, *grid.shape) % 3
    save_volume(tmp_path / "image.nii.gz", Volume(noise(1, *grid.shape).float(), grid))
    save_volume(tmp_path / "label.nii", Volume(labels, grid))
    return {"image": tmp_path / "image.nii.gz", "label": str(tmp_path / "label.nii"), "age": 40}


def test_files_are_loaded_as_load_volume_loads_them(files: dict[str, Any]) -> None:
    loaded = LoadVolumed(["image", "label"], label_keys="label")(files)
    image, label = load_volume(files["image"]), load_volume(files["label"], labels=True)
    for key, volume in (("image", image), ("label", label)):
        assert isinstance(loaded[key], MetaTensor)
        assert torch.equal(loaded[key].as_tensor(), volume.data) and loaded[key].dtype == volume.data.dtype
        assert torch.equal(loaded[key].affine, volume.grid.affine)
        assert loaded[key].meta["filename_or_obj"] == str(files[key])
    assert (image.data.dtype, label.data.dtype) == (torch.float32, torch.int64)
    assert loaded["age"] == 40
    assert isinstance(files["image"], Path)  # the input is left as it was


def test_a_single_image_needs_no_transform_of_its_own(files: dict[str, Any]) -> None:
    pipeline = Compose([load_volume, to_metatensor, Flip(0)])
    expected = load_volume(files["image"]).flip(0)
    loaded = from_metatensor(pipeline(files["image"]))
    assert torch.equal(loaded.data, expected.data)
    close(loaded.grid.affine, expected.grid.affine)


def test_what_is_missing_is_an_error_unless_allowed(files: dict[str, Any]) -> None:
    with pytest.raises(KeyError, match="other"):
        LoadVolumed(["image", "other"])(files)
    loaded = LoadVolumed(["image", "other"], allow_missing_keys=True)(files)
    assert isinstance(loaded["image"], MetaTensor) and "other" not in loaded


@pytest.mark.parametrize("transform", [LoadVolumed, lambda *keys: ResampleToSpacingd(keys[0], 1.0, keys[1])])
def test_a_label_key_that_is_no_key_is_refused(transform: Any) -> None:
    with pytest.raises(ValueError, match=r"label_keys must be among the keys \('image',\), got \('label',\)"):
        transform("image", "label")


def test_the_options_of_load_volume_are_passed_on(files: dict[str, Any], tmp_path: Path) -> None:
    import nibabel

    nibabel.Nifti1Image(np.zeros((2, 3, 4), np.int16), np.eye(4)).to_filename(tmp_path / "unit.nii")
    LoadVolumed("image")({"image": tmp_path / "unit.nii"})
    with pytest.raises(VolumeError, match="units_assumed"):
        LoadVolumed("image", strict=True)({"image": tmp_path / "unit.nii"})
    with pytest.raises(VolumeError, match="limit of 7"):
        LoadVolumed("image", max_bytes=7)(files)
