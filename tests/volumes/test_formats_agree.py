"""One volume, whatever format carries it and whichever library wrote it: one array and one affine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from medattn.geometry import VoxelGrid
from medattn.volumes import NoteKind, Volume, load_volume, save_volume
from tests.volumes.header_writing import itk_affine, itk_values, write_metaimage, write_nrrd

sitk = pytest.importorskip("SimpleITK")

ATOL_MM = 1e-4  # NIfTI has positions in float32


class Truth(NamedTuple):
    """``array`` (I, J, K) of some type, and the RAS ``affine`` (4, 4) of its voxels."""

    array: Any
    affine: Any


def truth_of(seed: int, dtype: str, *, most: int = 250) -> Truth:
    """An oblique volume, sometimes reflected, 0.5 to 5 mm, far from the origin."""
    generator = np.random.default_rng(seed)
    affine = np.eye(4)
    affine[:3, :3] = np.linalg.qr(generator.normal(size=(3, 3)))[0] * generator.uniform(0.5, 5, 3)
    affine[:3, 3] = generator.uniform(-300, 300, 3)
    return Truth(generator.integers(0, most, (4, 5, 6)).astype(dtype), affine)


def itk_image(truth: Truth) -> Any:
    image = sitk.GetImageFromArray(truth.array.transpose(2, 1, 0))
    lps = np.diag([-1.0, -1, 1, 1]) @ truth.affine
    spacing = np.linalg.norm(lps[:3, :3], axis=0)
    image.SetSpacing(spacing.tolist())
    image.SetDirection((lps[:3, :3] / spacing).ravel().tolist())
    image.SetOrigin(lps[:3, 3].tolist())
    return image


def write_ours(suffix: str, folder: Path, truth: Truth) -> Path:
    path = folder / f"ours{suffix}"
    grid = VoxelGrid(truth.array.shape, torch.from_numpy(truth.affine))
    save_volume(path, Volume(torch.from_numpy(truth.array)[None], grid))
    return path


def write_itk(suffix: str, packed: bool, folder: Path, truth: Truth) -> Path:
    path = folder / f"itk{suffix}"
    sitk.WriteImage(itk_image(truth), str(path), useCompression=packed)
    return path


def write_nibabel(folder: Path, truth: Truth) -> Path:
    from nibabel.nifti1 import Nifti1Image

    image = Nifti1Image(truth.array, truth.affine)
    image.header.set_xyzt_units("mm")
    image.to_filename(folder / "nibabel.nii")
    return folder / "nibabel.nii"


ARMS: dict[str, Callable[[Path, Truth], Any]] = {
    **{f"ours{suffix}": partial(write_ours, suffix) for suffix in (".nii", ".nii.gz", ".nrrd", ".mha")},
    **{f"itk{suffix}": partial(write_itk, suffix, False) for suffix in (".nii", ".nrrd", ".nhdr", ".mha", ".mhd")},
    **{f"itk{suffix}-packed": partial(write_itk, suffix, True) for suffix in (".nrrd", ".nhdr", ".mha", ".mhd")},
    "nibabel.nii": write_nibabel,
}
"""Each writes the truth into a folder and returns what to give ``load_volume``."""

each_arm = pytest.mark.parametrize("arm", ARMS)


@each_arm
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "float32"])
@pytest.mark.parametrize("seed", range(3))
def test_an_image_is_one_image(tmp_path: Path, seed: int, dtype: str, arm: str) -> None:
    truth = truth_of(seed, dtype)
    volume = load_volume(ARMS[arm](tmp_path, truth), strict=True)
    assert volume.data.dtype == torch.float32
    assert np.array_equal(volume.data[0].numpy(), truth.array.astype(np.float32))
    assert np.abs(volume.grid.affine.numpy() - truth.affine).max() < ATOL_MM


@each_arm
@pytest.mark.parametrize(("dtype", "most"), [("uint8", 5), ("uint16", 60_000), ("int32", 2**31 - 1)])
@pytest.mark.parametrize("seed", range(3))
def test_a_label_map_is_one_label_map(tmp_path: Path, seed: int, dtype: str, most: int, arm: str) -> None:
    truth = truth_of(seed, dtype, most=most)
    volume = load_volume(ARMS[arm](tmp_path, truth), strict=True, labels=True)
    assert volume.data.dtype == torch.int64
    assert np.array_equal(volume.data[0].numpy(), truth.array)
    assert np.abs(volume.grid.affine.numpy() - truth.affine).max() < ATOL_MM


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "float32"])
@pytest.mark.parametrize("tilt", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_a_dicom_series_is_the_same_volume_as_a_nifti_file(tmp_path: Path, seed: int, tilt: float, dtype: str) -> None:
    """Slices of a series ascend along row x column direction, which reverses the last axis of a reflected truth."""
    pytest.importorskip("pydicom")
    from tests.volumes.dicom_writing import write_grid

    array, affine = truth_of(seed, dtype)
    affine[:3, 2] += tilt * affine[:3, 0]
    write_grid(tmp_path / "series", array, affine, Modality="MR")
    series = load_volume(tmp_path / "series", strict=True)
    if np.linalg.det(affine[:3, :3]) < 0:
        series = series.flip(2)
    nifti = load_volume(write_nibabel(tmp_path, Truth(array, affine)))
    assert np.array_equal(series.data.numpy(), nifti.data.numpy())
    assert np.array_equal(series.data[0].numpy(), array.astype(np.float32))
    assert np.abs((series.grid.affine - nifti.grid.affine).numpy()).max() < ATOL_MM
    assert np.abs(series.grid.affine.numpy() - affine).max() < ATOL_MM


@each_arm
def test_lps_diag_1_2_3_is_ras_diag_minus_1_minus_2_3(tmp_path: Path, arm: str) -> None:
    ras = np.array([[-1, 0, 0, -10], [0, -2, 0, -20], [0, 0, 3, 30], [0, 0, 0, 1]], dtype=float)
    truth = Truth(np.arange(24, dtype=np.int16).reshape(2, 3, 4), ras)
    image = itk_image(truth)
    assert (image.GetSpacing(), image.GetOrigin()) == ((1, 2, 3), (10, 20, 30))
    assert image.GetDirection() == (1, 0, 0, 0, 1, 0, 0, 0, 1)
    volume = load_volume(ARMS[arm](tmp_path, truth))
    assert volume.grid.affine.tolist() == ras.tolist()
    assert volume.data.tolist() == [truth.array.tolist()]


@each_arm
def test_an_lps_identity_turned_to_ras_has_its_first_two_axes_reversed(tmp_path: Path, arm: str) -> None:
    truth = Truth(np.arange(24, dtype=np.int16).reshape(2, 3, 4), np.diag([-1.0, -1, 1, 1]))
    volume = load_volume(ARMS[arm](tmp_path, truth))
    assert volume.grid.axcodes == ("L", "P", "S")
    turned = volume.reoriented("RAS")
    assert turned.grid.affine.tolist() == [[1, 0, 0, -1], [0, 1, 0, -2], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert turned.data.tolist() == [truth.array[::-1, ::-1].tolist()]


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
@pytest.mark.parametrize("components", [1, 2, 3, 4])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["x.nrrd", "x.nhdr", "x.mha", "x.mhd"])
def test_every_type_that_itk_writes_is_read_as_itk_reads_it(
    tmp_path: Path, name: str, packed: bool, components: int, dtype: str
) -> None:
    generator = np.random.default_rng(0)
    shape = (5, 4, 3) if components == 1 else (5, 4, 3, components)
    image = sitk.GetImageFromArray(generator.integers(0, 100, shape).astype(dtype), isVector=components > 1)
    rotation = np.linalg.qr(generator.normal(size=(3, 3)))[0]
    image.SetDirection((rotation * np.sign(np.linalg.det(rotation))).ravel().tolist())
    image.SetSpacing((0.7, 1.3, 5.1))
    image.SetOrigin((-101.3, 27.1, 333.7))
    sitk.WriteImage(image, str(tmp_path / name), useCompression=packed)
    volume = load_volume(tmp_path / name, strict=True)
    assert np.array_equal(volume.data.numpy(), itk_values(image))
    assert np.abs(volume.grid.affine.numpy() - itk_affine(sitk.ReadImage(str(tmp_path / name)))).max() < 1e-12
    assert [note.kind for note in volume.notes] == [NoteKind.CHANNELS] * (components > 1)


NRRD_HEADERS = [
    {"space directions": "(0,0,-1) (0,2,0) (3,0,0)"},
    {"space": "right-anterior-superior"},
    {"space": "left-anterior-superior"},
    {"space directions": "(0.6,0.8,0) (-1.6,1.2,0) (0,0,3)"},
    {"space directions": "(1,0,0) (0,2,0) (0,1.5,3)"},
    {"space directions": "(1e-1,0,0) (0,0,2.5) (0,-30,0)", "space origin": "(-100.25,3e2,0)"},
]
METAIMAGE_HEADERS: list[dict[str, str | None]] = [
    {"TransformMatrix": "0 1 0 -1 0 0 0 0 1"},
    {"TransformMatrix": "0 0 -1 0 1 0 1 0 0"},
    {"TransformMatrix": "0.6 0.8 0 -0.8 0.6 0 0 0 1", "Offset": "-100.25 3e2 0"},
    {"TransformMatrix": "1 0 0 0 1 0 0 0.6 0.8"},
    {"ElementSpacing": None, "ElementSize": "0.1 2.5 30"},
]


@pytest.mark.parametrize("changes", NRRD_HEADERS)
def test_a_nrrd_header_means_what_itk_takes_it_for(tmp_path: Path, changes: dict[str, str | None]) -> None:
    path = write_nrrd(tmp_path / "x.nrrd", changes)
    assert np.abs(load_volume(path).grid.affine.numpy() - itk_affine(sitk.ReadImage(str(path)))).max() < 1e-12


def test_directions_of_itk_are_columns(tmp_path: Path) -> None:
    image = sitk.ReadImage(str(write_nrrd(tmp_path / "x.nrrd", NRRD_HEADERS[0])))
    assert image.GetSpacing() == (1, 2, 3)
    assert image.GetDirection() == (0, 0, 1, 0, 1, 0, -1, 0, 0)


@pytest.mark.parametrize("changes", METAIMAGE_HEADERS)
def test_a_metaimage_header_means_what_itk_takes_it_for(tmp_path: Path, changes: dict[str, str | None]) -> None:
    path = write_metaimage(tmp_path / "x.mha", changes)
    assert np.abs(load_volume(path).grid.affine.numpy() - itk_affine(sitk.ReadImage(str(path)))).max() < 1e-12
