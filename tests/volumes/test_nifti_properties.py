"""Whatever the grid and the data: load(save(v)) = v."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.volumes import Note, NoteKind, Volume, load_volume, save_volume

SHAPES = st.tuples(*[st.integers(1, 5)] * 3)
LIMITS = {torch.uint8: 2**8 - 1, torch.int16: 2**15 - 1, torch.int32: 2**31 - 1, torch.int64: 2**63 - 1}


def rotation(quaternion: tuple[float, ...]) -> Tensor:
    from scipy.spatial.transform import Rotation

    return torch.from_numpy(Rotation.from_quat(quaternion).as_matrix())


@st.composite
def grids(draw: st.DrawFn, shape: tuple[int, int, int]) -> VoxelGrid:
    """Any rotation (half turns and none among them), flips, sometimes a shear, 0.1 to 10 mm, origin up to 500 mm."""
    parts = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 1e-4]), st.floats(-1, 1))
    quaternion = draw(st.tuples(*[parts] * 4).filter(lambda q: math.hypot(*q) > 0.01))
    spacing = draw(st.tuples(*[st.floats(0.1, 10.0)] * 3))
    signs = draw(st.tuples(*[st.sampled_from([1, -1])] * 3))
    shears = draw(st.one_of(st.just((0.0, 0.0, 0.0)), st.tuples(*[st.floats(-0.5, 0.5)] * 3)))
    inner = torch.eye(3, dtype=torch.float64)
    inner[0, 1], inner[0, 2], inner[1, 2] = shears
    affine = torch.eye(4, dtype=torch.float64)
    affine[:3, :3] = rotation(quaternion) @ inner * torch.tensor(spacing) * torch.tensor(signs)
    affine[:3, 3] = torch.tensor(draw(st.tuples(*[st.floats(-500.0, 500.0)] * 3)))
    return VoxelGrid(shape, affine)


@st.composite
def images(draw: st.DrawFn) -> Volume:
    shape, channels = draw(SHAPES), draw(st.integers(1, 3))
    values = draw(npst.arrays(np.float32, (channels, *shape), elements=npst.from_dtype(np.dtype(np.float32))))
    return Volume(torch.from_numpy(values), draw(grids(shape)))


@st.composite
def label_maps(draw: st.DrawFn) -> Volume:
    shape, dtype = draw(SHAPES), draw(st.sampled_from(list(LIMITS)))
    values = draw(npst.arrays(np.int64, (1, *shape), elements=st.integers(0, LIMITS[dtype])))
    return Volume(torch.from_numpy(values).to(dtype), draw(grids(shape)))


@st.composite
def signed_integers(draw: st.DrawFn) -> Volume:
    shape, most = draw(SHAPES), draw(st.sampled_from([2**7, 2**15, 2**24]))
    values = draw(npst.arrays(np.int64, (1, *shape), elements=st.integers(-most, most)))
    return Volume(torch.from_numpy(values), draw(grids(shape)))


def saved_and_loaded(folder: Path, volume: Volume, suffix: str, **options: Any) -> Volume:
    path = folder / f"x{suffix}"
    save_volume(path, volume)
    return load_volume(path, **options)


def check_grid(back: VoxelGrid, grid: VoxelGrid) -> None:
    assert back.shape == grid.shape
    corners = grid.to_world(torch.cartesian_prod(*(torch.tensor([0.0, n - 1.0]) for n in grid.shape)).double())
    moved = (back.to_world(grid.to_index(corners).round()) - corners).norm(dim=-1)
    assert bool((moved <= 1e-4 * (1 + corners.norm(dim=-1) / 500)).all())


def notes_of(volume: Volume) -> list[Note]:
    said = (NoteKind.CHANNELS, NoteKind.SHEARED, NoteKind.NONFINITE_VOXELS)  # of the volume, not of the file
    return [note for note in volume.notes if note.kind not in said]


on_files = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.mark.filterwarnings("ignore::medattn.volumes.VolumeWarning")  # NaN and infinity are among the values
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@on_files
@given(volume=images())
def test_an_image_survives_being_saved(tmp_path: Path, suffix: str, volume: Volume) -> None:
    back = saved_and_loaded(tmp_path, volume, suffix, strict=True)
    assert torch.equal(back.data.view(torch.int32), volume.data.view(torch.int32))  # bit for bit, NaN too
    check_grid(back.grid, volume.grid)
    assert notes_of(back) == []


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@on_files
@given(volume=label_maps())
def test_labels_survive_being_saved(tmp_path: Path, suffix: str, volume: Volume) -> None:
    back = saved_and_loaded(tmp_path, volume, suffix, strict=True, labels=True)
    assert torch.equal(back.data, volume.data.long())
    check_grid(back.grid, volume.grid)
    assert notes_of(back) == []


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@on_files
@given(volume=signed_integers())
def test_an_image_of_integers_survives_being_saved(tmp_path: Path, suffix: str, volume: Volume) -> None:
    back = saved_and_loaded(tmp_path, volume, suffix, strict=True)
    assert torch.equal(back.data, volume.data.float())
    check_grid(back.grid, volume.grid)
    assert notes_of(back) == []


@pytest.mark.filterwarnings("ignore::medattn.volumes.VolumeWarning")
@on_files
@given(volume=images())
def test_saving_again_what_was_loaded_gives_the_same_file(tmp_path: Path, volume: Volume) -> None:
    path, again = tmp_path / "x.nii", tmp_path / "again.nii"
    save_volume(path, volume)
    save_volume(again, load_volume(path))
    assert again.read_bytes()[352:] == path.read_bytes()[352:]
    check_grid(load_volume(again).grid, volume.grid)
