"""NRRD and MetaImage files that are written: they come back the same, also through SimpleITK."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.volumes import Note, NoteKind, Volume, VolumeError, load_volume, save_volume
from tests.volumes.header_writing import itk_affine, itk_values

SUFFIXES = (".nrrd", ".mha")
SHAPE = (3, 4, 5)

each_suffix = pytest.mark.parametrize("suffix", SUFFIXES)


def grid_of(seed: int, *, shear: float = 0.0, shape: tuple[int, int, int] = SHAPE) -> VoxelGrid:
    """Oblique, sometimes reflected, 0.1 to 10 mm, far from the origin."""
    generator = np.random.default_rng(seed)
    axes = np.linalg.qr(generator.normal(size=(3, 3)))[0] * 10 ** generator.uniform(-1, 1, 3)
    axes[:, 2] += shear * axes[:, 1]
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = axes, generator.uniform(-500, 500, 3)
    return VoxelGrid(shape, torch.from_numpy(affine))


def data_of(channels: int = 1, seed: int = 0) -> Tensor:
    return torch.randn(channels, *SHAPE, generator=torch.Generator().manual_seed(seed))


def saved(path: Path, volume: Volume, **options: Any) -> Volume:
    save_volume(path, volume)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_volume(path, strict=True, **options)


@each_suffix
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("shear", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_an_image_comes_back_here_and_in_itk(
    tmp_path: Path, seed: int, shear: float, channels: int, suffix: str
) -> None:
    sitk = pytest.importorskip("SimpleITK")
    volume = Volume(data_of(channels), grid_of(seed, shear=shear))
    back = saved(tmp_path / f"x{suffix}", volume)
    assert torch.equal(back.data, volume.data)
    assert torch.allclose(back.grid.affine, volume.grid.affine, rtol=0, atol=1e-12)
    assert [note.kind for note in back.notes] == [NoteKind.CHANNELS] * (channels > 1) + [NoteKind.SHEARED] * (shear > 0)
    image = sitk.ReadImage(str(tmp_path / f"x{suffix}"))
    assert np.array_equal(itk_values(image), volume.data.numpy())
    assert np.abs(itk_affine(image) - volume.grid.affine.numpy()).max() < 1e-12


@st.composite
def grids(draw: st.DrawFn) -> VoxelGrid:
    """Any rotation, flips, sometimes a shear, 0.1 to 10 mm, origin up to 500 mm."""
    from scipy.spatial.transform import Rotation

    parts = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 1e-4]), st.floats(-1, 1))
    quaternion = draw(st.tuples(*[parts] * 4).filter(lambda q: np.hypot.reduce(q) > 0.01))
    spacing = np.array(draw(st.tuples(*[st.floats(0.1, 10.0)] * 3)))
    signs = np.array(draw(st.tuples(*[st.sampled_from([1, -1])] * 3)))
    inner = np.eye(3)
    inner[0, 1], inner[0, 2], inner[1, 2] = draw(
        st.one_of(st.just((0.0, 0.0, 0.0)), st.tuples(*[st.floats(-0.5, 0.5)] * 3))
    )
    affine = np.eye(4)
    affine[:3, :3] = Rotation.from_quat(quaternion).as_matrix() @ inner * spacing * signs
    affine[:3, 3] = draw(st.tuples(*[st.floats(-500.0, 500.0)] * 3))
    return VoxelGrid(draw(st.tuples(*[st.integers(1, 5)] * 3)), torch.from_numpy(affine))


on_files = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@each_suffix
@on_files
@given(grid=grids(), seed=st.integers(0, 99), channels=st.integers(1, 3))
def test_any_image_survives_being_saved(tmp_path: Path, suffix: str, grid: VoxelGrid, seed: int, channels: int) -> None:
    data = torch.randn(channels, *grid.shape, generator=torch.Generator().manual_seed(seed))
    back = saved(tmp_path / f"x{suffix}", Volume(data, grid))
    assert torch.equal(back.data, data)
    assert torch.allclose(back.grid.affine, grid.affine, rtol=0, atol=1e-6)


@each_suffix
@on_files
@given(grid=grids(), seed=st.integers(0, 99), most=st.sampled_from([1, 255, 256, 2**15, 2**31, 2**40, 2**63 - 1]))
def test_any_labels_survive_being_saved(tmp_path: Path, suffix: str, grid: VoxelGrid, seed: int, most: int) -> None:
    values = np.random.default_rng(seed).integers(0, most, (1, *grid.shape), endpoint=True)
    back = saved(tmp_path / f"x{suffix}", Volume(torch.from_numpy(values), grid), labels=True)
    assert np.array_equal(back.data.numpy(), values)
    assert torch.allclose(back.grid.affine, grid.affine, rtol=0, atol=1e-6)


@each_suffix
@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ((0, 255), "8-bit unsigned integer"),
        ((0, 256), "16-bit signed integer"),
        ((-1, 3), "16-bit signed integer"),
        ((0, 40000), "32-bit signed integer"),
        ((0, 16777217), "32-bit signed integer"),
        ((0, 2**40), "64-bit signed integer"),
    ],
)
def test_integers_are_stored_as_the_smallest_integers(
    tmp_path: Path, suffix: str, values: tuple[int, int], stored: str
) -> None:
    sitk = pytest.importorskip("SimpleITK")
    data = torch.tensor(values).repeat(30).reshape(1, *SHAPE)
    save_volume(tmp_path / f"x{suffix}", Volume(data, grid_of(0)))
    image = sitk.ReadImage(str(tmp_path / f"x{suffix}"))
    assert image.GetPixelIDTypeAsString() == stored
    assert itk_values(image).tolist() == data.tolist()


@each_suffix
def test_what_cannot_be_stored_is_an_error(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(VolumeError, match="must be real"):
        save_volume(tmp_path / f"x{suffix}", Volume(data_of().to(torch.complex64), grid_of(0)))
    huge = torch.full((1, *SHAPE), 2**64 - 1, dtype=torch.uint64)
    with pytest.raises(VolumeError, match="64 bits with a sign"):
        save_volume(tmp_path / f"x{suffix}", Volume(huge, grid_of(0)))
    assert list(tmp_path.iterdir()) == []


@each_suffix
@pytest.mark.parametrize("channels", [1, 2])
def test_an_unknown_orientation_is_not_written_as_if_it_were_known(tmp_path: Path, suffix: str, channels: int) -> None:
    sitk = pytest.importorskip("SimpleITK")
    grid = VoxelGrid(SHAPE, torch.diag(torch.tensor([1.0, 2, 3, 1])))
    volume = Volume(data_of(channels), grid, (Note(NoteKind.ORIENTATION_UNKNOWN, "no form"),))
    save_volume(tmp_path / f"x{suffix}", volume)
    with pytest.warns(UserWarning, match="axes are taken as R, A, S"):
        back = load_volume(tmp_path / f"x{suffix}")
    assert not back.orientation_known
    assert torch.equal(back.grid.affine, volume.grid.affine)
    assert torch.equal(back.data, volume.data)
    image = sitk.ReadImage(str(tmp_path / f"x{suffix}"))
    assert np.array_equal(itk_values(image), volume.data.numpy())
    assert image.GetSpacing() == (1, 2, 3)


@each_suffix
def test_equal_volumes_give_equal_files_whatever_the_order_in_memory(tmp_path: Path, suffix: str) -> None:
    data = data_of(2)
    strided = data.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    for number, variant in enumerate((data, strided, data.flip(1).flip(1), data.double())):
        save_volume(tmp_path / f"{number}{suffix}", Volume(variant, grid_of(0)))
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


@each_suffix
def test_saving_again_what_was_loaded_gives_the_same_voxels_and_places(tmp_path: Path, suffix: str) -> None:
    first = saved(tmp_path / f"x{suffix}", Volume(data_of(3), grid_of(1)))
    second = saved(tmp_path / f"y{suffix}", first)
    assert torch.equal(first.data, second.data)
    assert torch.allclose(first.grid.affine, second.grid.affine, rtol=0, atol=1e-12)


def test_the_words_of_a_nrrd_header(tmp_path: Path) -> None:
    affine = torch.tensor([[-1.0, 0, 0, -10], [0, -2, 0, -20], [0, 0, 0.1, 30], [0, 0, 0, 1]], dtype=torch.float64)
    save_volume(tmp_path / "x.nrrd", Volume(torch.zeros(2, *SHAPE), VoxelGrid(SHAPE, affine)))
    header = (tmp_path / "x.nrrd").read_bytes().partition(b"\n\n")[0].decode().splitlines()
    assert header == [
        "NRRD0004",
        "type: float",
        "dimension: 4",
        "space: left-posterior-superior",
        "sizes: 2 3 4 5",
        "space directions: none (1.0,0.0,0.0) (0.0,2.0,0.0) (0.0,0.0,0.1)",
        "space origin: (10.0,20.0,30.0)",
        "kinds: vector domain domain domain",
        "endian: little",
        "encoding: gzip",
    ]


def test_the_words_of_a_nrrd_header_of_unknown_orientation(tmp_path: Path) -> None:
    grid = VoxelGrid(SHAPE, torch.diag(torch.tensor([1.0, 2, 3, 1])))
    notes = (Note(NoteKind.ORIENTATION_UNKNOWN, "no form"),)
    save_volume(tmp_path / "x.nrrd", Volume(torch.zeros(2, *SHAPE), grid, notes))
    header = (tmp_path / "x.nrrd").read_bytes().partition(b"\n\n")[0].decode()
    assert "spacings: nan 1.0 2.0 3.0\n" in header
    assert "space" not in header.replace("spacings", "")


def test_the_words_of_a_metaimage_header(tmp_path: Path) -> None:
    affine = torch.tensor([[-1.0, 0, 0, -10], [0, 0, -2, -20], [0, 0.1, 0, 30], [0, 0, 0, 1]], dtype=torch.float64)
    save_volume(tmp_path / "x.mha", Volume(torch.zeros(2, *SHAPE), VoxelGrid(SHAPE, affine)))
    header, _, voxels = (tmp_path / "x.mha").read_bytes().partition(b"LOCAL\n")
    assert header.decode().splitlines() == [
        "ObjectType = Image",
        "NDims = 3",
        "BinaryData = True",
        "BinaryDataByteOrderMSB = False",
        "CompressedData = True",
        f"CompressedDataSize = {len(voxels)}",
        "TransformMatrix = 1.0 0.0 0.0 0.0 0.0 1.0 0.0 1.0 0.0",
        "Offset = 10.0 20.0 30.0",
        "ElementSpacing = 1.0 0.1 2.0",
        "DimSize = 3 4 5",
        "ElementNumberOfChannels = 2",
        "ElementType = MET_FLOAT",
        "ElementDataFile = ",
    ]
