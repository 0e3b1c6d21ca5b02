"""Saved volumes come back the same, also through other readers, and never half."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.volumes import Note, NoteKind, Volume, VolumeError, load_volume, save_volume

SUFFIXES = ("x.nii", "x.nii.gz")


def random_grid(seed: int, *, shear: float = 0.0, reflect: bool = False) -> VoxelGrid:
    """An oblique grid (3, 4, 5) with spacing from 0.1 to 10 mm, far from the scanner's origin."""
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
    if (torch.linalg.det(rotation) < 0) != reflect:
        rotation[:, 0] *= -1
    affine = torch.eye(4, dtype=torch.float64)
    affine[:3, :3] = rotation * 10 ** (torch.rand(3, generator=generator, dtype=torch.float64) * 2 - 1)
    affine[:3, 2] += shear * affine[:3, 1]
    affine[:3, 3] = torch.rand(3, generator=generator, dtype=torch.float64) * 1000 - 500
    return VoxelGrid((3, 4, 5), affine)


def random_data(channels: int = 1) -> Tensor:
    return torch.randn(channels, 3, 4, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("name", SUFFIXES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shear", [0.0, 0.3])
@pytest.mark.parametrize("reflect", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_an_image_comes_back_on_its_grid(
    tmp_path: Path, seed: int, reflect: bool, shear: float, channels: int, name: str
) -> None:
    volume = Volume(random_data(channels), random_grid(seed, shear=shear, reflect=reflect))
    save_volume(tmp_path / name, volume)
    back = load_volume(tmp_path / name)
    assert torch.equal(back.data, volume.data)
    assert torch.allclose(back.grid.affine, volume.grid.affine, atol=1e-4)
    expected = [NoteKind.CHANNELS] * (channels > 1) + [NoteKind.SHEARED] * (shear > 0)
    assert [note.kind for note in back.notes] == expected


@pytest.mark.parametrize(("shear", "codes"), [(0.0, (1, 1)), (0.3, (1, 0)), (0.02, (1, 0))])
def test_sform_and_qform_are_one_geometry_and_a_shear_is_left_to_the_sform(
    tmp_path: Path, shear: float, codes: tuple[int, int]
) -> None:
    from nibabel.nifti1 import Nifti1Image

    grid = random_grid(1, shear=shear)
    save_volume(tmp_path / "x.nii", Volume(random_data(), grid))
    header = Nifti1Image.from_filename(tmp_path / "x.nii").header
    assert (int(header["sform_code"]), int(header["qform_code"])) == codes
    assert np.allclose(header.get_sform(), grid.affine.numpy(), atol=1e-4)
    if codes[1]:
        assert np.allclose(header.get_qform(), grid.affine.numpy(), atol=1e-4)
    assert np.allclose(header.get_zooms(), grid.spacing_mm.numpy(), rtol=1e-6)
    assert header.get_xyzt_units()[0] == "mm"


@pytest.mark.parametrize("seed", range(3))
def test_nibabel_and_simpleitk_read_the_same_voxels_in_the_same_places(tmp_path: Path, seed: int) -> None:
    from nibabel.nifti1 import Nifti1Image

    sitk = pytest.importorskip("SimpleITK")
    volume = Volume(random_data(), random_grid(seed))
    save_volume(tmp_path / "x.nii.gz", volume)
    by_nibabel, by_itk = Nifti1Image.from_filename(tmp_path / "x.nii.gz"), sitk.ReadImage(str(tmp_path / "x.nii.gz"))
    assert np.array_equal(by_nibabel.get_fdata(), volume.data[0].numpy())
    assert np.array_equal(sitk.GetArrayFromImage(by_itk).transpose(2, 1, 0), volume.data[0].numpy())
    world = volume.grid.to_world((2, 3, 4)).numpy()
    assert np.allclose((by_nibabel.affine @ [2, 3, 4, 1])[:3], world, atol=1e-3)
    lps = np.array(by_itk.TransformIndexToPhysicalPoint((2, 3, 4)))
    assert np.allclose(lps * [-1, -1, 1], world, atol=1e-3)


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ((0, 255), np.uint8),
        ((0, 256), np.int16),
        ((-1, 3), np.int16),
        ((0, 40000), np.int32),
        ((0, 16777217), np.int32),
        ((0, 2**40), np.int64),
    ],
)
def test_integers_are_stored_as_integers_without_scaling(tmp_path: Path, values: Any, stored: Any) -> None:
    from nibabel.nifti1 import Nifti1Image

    data = torch.tensor(values).repeat(30).reshape(1, 3, 4, 5)
    save_volume(tmp_path / "x.nii", Volume(data, random_grid(0)))
    image = Nifti1Image.from_filename(tmp_path / "x.nii")
    assert image.get_data_dtype() == stored
    proxy: Any = image.dataobj
    assert (proxy.slope, proxy.inter) == (1.0, 0.0)
    assert np.asarray(image.dataobj).tolist() == data[0].tolist()
    if min(values) >= 0:
        assert torch.equal(load_volume(tmp_path / "x.nii", labels=True).data, data)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16])
def test_every_integer_type_can_be_saved(tmp_path: Path, dtype: torch.dtype) -> None:
    data = (torch.arange(60) % 2).reshape(1, 3, 4, 5)
    save_volume(tmp_path / "x.nii", Volume(data.to(dtype), random_grid(0)))
    assert torch.equal(load_volume(tmp_path / "x.nii", labels=True).data, data)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats_are_stored_as_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    from nibabel.nifti1 import Nifti1Image

    data = random_data().to(dtype).requires_grad_()
    save_volume(tmp_path / "x.nii", Volume(data, random_grid(0)))
    assert Nifti1Image.from_filename(tmp_path / "x.nii").get_data_dtype() == np.float32
    assert torch.equal(load_volume(tmp_path / "x.nii").data, data.detach().float())


def test_what_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="must be real"):
        save_volume(tmp_path / "x.nii", Volume(random_data().to(torch.complex64), random_grid(0)))
    huge = torch.full((1, 3, 4, 5), 2**64 - 1, dtype=torch.uint64)
    with pytest.raises(VolumeError, match="64 bits with a sign"):
        save_volume(tmp_path / "x.nii", Volume(huge, random_grid(0)))
    long = VoxelGrid((32768, 1, 1), torch.eye(4))
    with pytest.raises(VolumeError, match=r"at most 32767 per axis, got shape \(1, 32768, 1, 1\)"):
        save_volume(tmp_path / "x.nii", Volume(torch.zeros(1, 32768, 1, 1), long))
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_orientation_is_not_written_as_if_it_were_known(tmp_path: Path) -> None:
    note = Note(NoteKind.ORIENTATION_UNKNOWN, "no form")
    volume = Volume(random_data(), VoxelGrid((3, 4, 5), torch.diag(torch.tensor([1.0, 2, 3, 1]))), (note,))
    save_volume(tmp_path / "x.nii", volume)
    with pytest.warns(UserWarning, match="both 0"):
        back = load_volume(tmp_path / "x.nii")
    assert not back.orientation_known
    assert back.grid.spacing_mm.tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", ["x.hdr", "x.img", "x.gz", "x"])
def test_another_suffix_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(VolumeError, match=r"must end in one of \.nii, \.nii\.gz, "):
        save_volume(tmp_path / name, Volume(random_data(), random_grid(0)))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        save_volume(tmp_path / "nowhere" / "x.nii", Volume(random_data(), random_grid(0)))


@pytest.mark.parametrize("name", SUFFIXES)
def test_saving_replaces_and_leaves_nothing_else(tmp_path: Path, name: str) -> None:
    for scale in (1.0, 2.0):
        save_volume(tmp_path / name, Volume(random_data() * scale, random_grid(0)))
    assert torch.equal(load_volume(tmp_path / name).data, random_data() * 2)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", SUFFIXES)
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / name
    save_volume(path, Volume(random_data(), random_grid(0)))
    before = path.read_bytes()

    def fail(temporary: Path, volume: Volume) -> None:
        temporary.write_bytes(before[:100])
        raise OSError("disk full")

    monkeypatch.setattr("medattn.volumes.nifti.write", fail)
    with pytest.raises(OSError, match="disk full"):
        save_volume(path, Volume(random_data() * 2, random_grid(0)))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_equal_volumes_give_equal_files(tmp_path: Path) -> None:
    for name in ("a.nii.gz", "b.nii.gz"):
        save_volume(tmp_path / name, Volume(random_data(), random_grid(0)))
    content = (tmp_path / "a.nii.gz").read_bytes()
    assert content == (tmp_path / "b.nii.gz").read_bytes()
    assert content[3:8] == bytes(5)  # gzip's flags (no name) and its time of writing


def test_the_order_in_memory_changes_nothing(tmp_path: Path) -> None:
    data = random_data(2)
    strided = data.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    for number, variant in enumerate((data, strided, data.flip(1).flip(1))):
        save_volume(tmp_path / f"{number}.nii.gz", Volume(variant, random_grid(0)))
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("name", SUFFIXES)
def test_any_gzip_and_any_reader_unpacks_what_is_written(tmp_path: Path, name: str) -> None:
    volume = Volume(torch.arange(60).reshape(1, 3, 4, 5), random_grid(0))
    save_volume(tmp_path / name, volume)
    content = (tmp_path / name).read_bytes()
    if name.endswith(".gz"):
        content = gzip.decompress(content)
    assert len(content) == 352 + 60
    assert content[344:348] == b"n+1\0"
    assert list(content[352:]) == volume.data[0].permute(2, 1, 0).flatten().tolist()
