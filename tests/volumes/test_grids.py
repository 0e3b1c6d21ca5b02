"""Grids from headers alone are those of the whole files."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from medattn import Volume, VoxelGrid, load_volume, save_volume
from medattn.volumes import VolumeError, save_dicom_seg
from medattn.volumes.find import Source, find_volumes
from medattn.volumes.grids import read_grid
from tests.geometry.grids import random_grid
from tests.volumes.dicom_writing import write_series


def assert_same(path: Path) -> None:
    sources = find_volumes(path).sources
    assert sources
    for source in sources:
        found = read_grid(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = source.labels or source.path.name == "seg.dcm"
            expected = load_volume(source.files or source.path, labels=labels, series=source.series or None).grid
        assert found.shape == expected.shape
        assert torch.equal(found.affine, expected.affine)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".nrrd", ".mha"])
def test_the_grid_of_a_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"scan{suffix}"
    save_volume(path, Volume(torch.randn(1, 4, 5, 6), VoxelGrid((4, 5, 6), random_grid(1).affine)))
    assert_same(path)


def test_the_grid_of_a_pair_of_files(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Pair(np.zeros((4, 5, 6), np.int16), np.diag([2.0, 3.0, 4.0, 1.0]))
    nibabel.save(image, tmp_path / "scan.img")
    assert_same(tmp_path)


def test_the_grids_of_dicom_series_and_segmentations(tmp_path: Path) -> None:
    write_series(tmp_path / "ct", [0, 2, 4])
    assert_same(tmp_path / "ct")
    scan = load_volume(tmp_path / "ct")
    labels = Volume(torch.ones_like(scan.data).long(), scan.grid)
    save_dicom_seg(tmp_path / "seg.dcm", labels, segmentation_type="labelmap")
    assert_same(tmp_path / "seg.dcm")  # as a file that is named
    assert_same(tmp_path)  # and as one that is found


def test_voxels_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "scan.nii"
    save_volume(path, Volume(torch.randn(1, 8, 8, 8), VoxelGrid.from_spacing((8, 8, 8), 2.0)))
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(VolumeError):
        load_volume(path)
    assert read_grid(Source(path)).shape == (8, 8, 8)


def test_what_is_no_volume_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_grid(Source(tmp_path / "scan.nii"))
    (tmp_path / "notes.txt").write_text("no volume")
    with pytest.raises(VolumeError, match="must end in one of"):
        read_grid(Source(tmp_path / "notes.txt"))
    with pytest.raises(VolumeError, match="the folder cannot be listed"):
        read_grid(Source(tmp_path, problem="the folder cannot be listed: no"))
