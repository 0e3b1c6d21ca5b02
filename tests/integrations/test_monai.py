"""``Volume`` to MONAI's ``MetaTensor`` and back."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import monai
import pytest
import torch
from monai.data import DataLoader, MetaTensor, decollate_batch
from monai.transforms import EnsureChannelFirst, Flip, LoadImage, Orientation
from monai.utils import SpaceKeys

from medattn.geometry import VoxelGrid
from medattn.integrations.monai import collate_metatensors, from_metatensor, to_metatensor
from medattn.volumes import Note, NoteKind, Volume, load_volume, save_volume
from medattn.volumes.batch import VolumeBatch
from tests.encoders import small_encoder
from tests.geometry.grids import SEEDS, noise, random_grid
from tests.volumes.comparing import same

LPS = torch.diag(torch.tensor([-1.0, -1, 1, 1], dtype=torch.float64))


def volume_of(seed: int = 0, *, channels: int = 1, dtype: Any = torch.float32) -> Volume:
    grid = random_grid(seed)
    return Volume(
        (100 * noise(channels, *grid.shape, seed=seed)).abs().to(dtype),
        grid,
        (
            Note(NoteKind.UNITS_ASSUMED, "mm, it seems"),
            Note(NoteKind.FORMS_DISAGREE, "two\nforms", {"sform": [[0.1, 2.0]], "qform": None}),
        ),
        f"/data/scan{seed}.nii.gz",
        {"modality": "CT", "source_uids": ("1.2.3", f"1.2.{seed}")},
        random_grid(seed + 1),
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("channels", "dtype"), [(1, torch.float32), (3, torch.float64), (1, torch.int64)])
def test_there_and_back_is_the_same_volume_with_the_same_memory(seed: int, channels: int, dtype: Any) -> None:
    volume = volume_of(seed, channels=channels, dtype=dtype)
    tensor = to_metatensor(volume)
    again = from_metatensor(tensor)
    same(again, volume)
    assert type(again.data) is torch.Tensor
    assert tensor.data_ptr() == again.data.data_ptr() == volume.data.data_ptr()
    assert from_metatensor(tensor, name="other").name == "other"


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t)), lambda t: t.clone(), lambda t: t * 1],
    ids=["deepcopy", "pickle", "clone", "arithmetic"],
)
def test_copies_of_the_tensor_come_back_as_the_same_volume(copied: Any) -> None:
    same(from_metatensor(copied(to_metatensor(volume_of(2)))), volume_of(2))


def test_the_meta_is_what_monai_itself_would_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.nii.gz"
    save_volume(path, Volume(volume_of().data, volume_of().grid))
    ours = to_metatensor(load_volume(path))
    theirs = LoadImage(ensure_channel_first=True)(path)
    assert torch.equal(ours.as_tensor(), theirs.as_tensor())
    torch.testing.assert_close(ours.affine, theirs.affine, rtol=0, atol=1e-12)
    assert ours.affine.dtype == torch.float64
    torch.testing.assert_close(ours.meta["original_affine"], theirs.meta["original_affine"], rtol=0, atol=1e-12)
    assert ours.meta["spatial_shape"].tolist() == theirs.meta["spatial_shape"].tolist()
    assert ours.meta["space"] is theirs.meta["space"] is SpaceKeys.RAS
    assert ours.meta["filename_or_obj"] == theirs.meta["filename_or_obj"] == str(path)
    torch.testing.assert_close(ours.pixdim, theirs.pixdim, rtol=0, atol=1e-12)
    assert EnsureChannelFirst()(ours).shape == ours.shape


def test_a_tensor_that_monai_read_is_the_volume_that_we_read(tmp_path: Path) -> None:
    path = tmp_path / "x.nii"
    save_volume(path, Volume(volume_of(4).data, volume_of(4).grid))
    theirs, ours = from_metatensor(LoadImage(ensure_channel_first=True)(path)), load_volume(path)
    assert torch.equal(theirs.data, ours.data)
    assert theirs.grid.is_close(ours.grid, atol_mm=1e-9) and theirs.source_grid.is_close(ours.grid, atol_mm=1e-9)
    assert theirs.name == str(path)


def test_the_source_grid_is_the_tensors_own_unless_meta_tells_one() -> None:
    tensor = to_metatensor(volume_of(3))
    del tensor.meta["spatial_shape"]
    assert torch.equal(from_metatensor(tensor).source_grid.affine, random_grid(3).affine)
    flat = to_metatensor(volume_of(3))
    flat.meta["spatial_shape"], flat.meta["original_affine"] = (4, 5), torch.eye(3)
    assert from_metatensor(flat).source_grid.shape == random_grid(3).shape


# -- spaces ---------------------------------------------------------------------------------------------


def lps_tensor() -> MetaTensor:
    """Shape (1, 2, 3, 4), identity in LPS, a marker at index (1, 0, 2): 1 mm left and 2 mm up."""
    data = torch.zeros(1, 2, 3, 4)
    data[0, 1, 0, 2] = 1
    return MetaTensor(
        data, affine=torch.eye(4), meta={"space": "LPS", "original_affine": torch.eye(4), "spatial_shape": (2, 3, 4)}
    )


def marked(volume: Volume) -> list[float]:
    """World position of the one voxel that is 1."""
    (index,) = (volume.data[0] == 1).nonzero()
    return (volume.grid.to_world(index) + 0.0).tolist()


def test_an_lps_identity_becomes_ras_with_the_first_two_axes_negated() -> None:
    volume = from_metatensor(lps_tensor())
    assert volume.grid.affine.diagonal().tolist() == [-1, -1, 1, 1]
    assert volume.source_grid.affine.diagonal().tolist() == [-1, -1, 1, 1]
    assert "".join(volume.grid.axcodes) == "LPS"
    assert marked(volume) == [-1, 0, 2]
    assert to_metatensor(volume).meta["space"] == "RAS"


@pytest.mark.parametrize("space", ["LPS", SpaceKeys.LPS])
def test_both_ways_to_write_lps_are_known_and_the_origin_is_converted(space: Any) -> None:
    grid = random_grid(1)
    tensor = MetaTensor(torch.zeros(1, *grid.shape), affine=LPS @ grid.affine, meta={"space": space})
    assert torch.equal(from_metatensor(tensor).grid.affine, grid.affine)


def test_reorienting_an_lps_tensor_with_monai_keeps_the_marker_in_place() -> None:
    turned = from_metatensor(Orientation("RAS")(lps_tensor()))
    assert "".join(turned.grid.axcodes) == "RAS"
    assert marked(turned) == [-1, 0, 2]
    assert turned.data[0, 0, 2, 2] == 1


def test_an_unknown_space_is_refused() -> None:
    tensor = MetaTensor(torch.zeros(1, 2, 3, 4), affine=torch.eye(4), meta={"space": "scanner"})
    with pytest.raises(ValueError, match="space must be one of RAS, LPS, got 'scanner'"):
        from_metatensor(tensor)


# -- what is no volume ----------------------------------------------------------------------------------


def test_a_tensor_without_channel_axis_is_refused() -> None:
    with pytest.raises(ValueError, match=r"channel axis is needed, \(C, I, J, K\), got shape \(2, 3, 4\)"):
        from_metatensor(MetaTensor(torch.zeros(2, 3, 4), affine=torch.eye(4)))


@pytest.mark.parametrize("shape", [(4,), (3, 4), (1, 1, 1, 2, 3, 4)])
def test_other_numbers_of_axes_are_refused(shape: Any) -> None:
    with pytest.raises(ValueError, match=r"must have shape \(C, I, J, K\), got"):
        from_metatensor(MetaTensor(torch.zeros(shape), affine=torch.eye(4)))


def test_a_batch_is_refused() -> None:
    one = to_metatensor(volume_of())
    (batch,) = DataLoader([one, one], batch_size=2)
    for tensor in (batch, batch[:, 0], one[None]):
        with pytest.raises(ValueError, match="one volume is needed, got a batch of shape .*decollate_batch"):
            from_metatensor(tensor)


@pytest.mark.parametrize("value", [torch.zeros(1, 2, 3, 4), None])
def test_what_has_no_affine_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=rf"a MetaTensor is needed, for its affine, got {type(value).__name__}"):
        from_metatensor(value)


def test_a_meta_without_an_affine_is_refused_and_not_taken_for_identity() -> None:
    tensor = to_metatensor(volume_of())
    del tensor.meta["affine"]
    with pytest.raises(ValueError, match=r"must have an affine of shape \(4, 4\), got None"):
        from_metatensor(tensor)


def test_an_affine_of_two_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must have an affine of shape \(4, 4\), got tensor"):
        from_metatensor(MetaTensor(torch.zeros(1, 2, 3, 4), affine=torch.eye(3)))


def test_pending_lazy_transforms_are_refused_since_data_and_affine_do_not_fit_yet() -> None:
    with pytest.raises(ValueError, match="lazy transforms are pending"):
        from_metatensor(Flip(0, lazy=True)(to_metatensor(volume_of())))


# -- collation ------------------------------------------------------------------------------------------


def test_monais_own_loader_lets_a_tensor_through() -> None:
    volumes = [
        Volume(volume_of(n).data[:, :3, :3, :3], random_grid(n).crop(0, 3), volume_of(n).notes[: n + 1])
        for n in range(2)
    ]
    (batch,) = DataLoader([{"image": to_metatensor(v)} for v in volumes], batch_size=2)
    for volume, sample in zip(volumes, decollate_batch(batch), strict=True):
        same(from_metatensor(sample["image"]), volume)


@pytest.mark.parametrize("workers", [0, 2])
def test_collated_tensors_keep_each_ones_grid_whatever_their_shapes(workers: int) -> None:
    samples = [{"image": to_metatensor(volume_of(n)), "id": n, "class": MetaTensor(n)} for n in range(3)]
    loader = DataLoader(samples, batch_size=3, num_workers=workers, collate_fn=collate_metatensors)
    (batch,) = loader
    assert isinstance(batch["image"], VolumeBatch)
    for number in range(3):
        same(batch["image"][number], volume_of(number))
    assert batch["id"].tolist() == batch["class"].tolist() == [0, 1, 2]
    assert type(batch["class"]) is torch.Tensor
    encoded = small_encoder("rotary_axial")(batch["image"].data, batch["image"].grids)
    assert [grid.shape for grid in encoded.grids] == [random_grid(n).patch_grid((2, 3, 1)).shape for n in range(3)]


def test_spacings_of_one_and_two_stay_with_their_samples() -> None:
    grids = [VoxelGrid.from_spacing((3, 4, 5), spacing) for spacing in (1.0, 2.0)]
    samples = [(to_metatensor(Volume(torch.zeros(1, 3, 4, 5), grid)), n) for n, grid in enumerate(grids)]
    images, numbers = collate_metatensors(samples)
    assert images.data.shape == (2, 1, 3, 4, 5) and type(images.data) is torch.Tensor
    assert [grid.spacing_mm.tolist() for grid in images.grids] == [[1, 1, 1], [2, 2, 2]]
    assert numbers.tolist() == [0, 1]


def test_lists_of_crops_and_missing_keys_are_collated() -> None:
    one, two = to_metatensor(volume_of(0)), to_metatensor(volume_of(1))
    batch = collate_metatensors([[{"image": one}, {"image": two}], [{"image": one, "label": two}]])
    assert batch["image"].names == ["/data/scan0.nii.gz", "/data/scan1.nii.gz", "/data/scan0.nii.gz"]
    assert batch["label"][:2] == [None, None]
    same(batch["label"][2], volume_of(1))


def test_an_image_without_channel_axis_is_refused_in_a_batch_too() -> None:
    with pytest.raises(ValueError, match="channel axis is needed"):
        collate_metatensors([{"image": MetaTensor(torch.zeros(2, 3, 4))}])


# -- without MONAI --------------------------------------------------------------------------------------


def test_without_monai_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert monai is sys.modules["monai"]
    monkeypatch.setitem(sys.modules, "monai", None)
    monkeypatch.delitem(sys.modules, "medattn.integrations.monai")
    with pytest.raises(ImportError, match=r"pip install 'medattn\[monai\]'"):
        importlib.import_module("medattn.integrations.monai")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["monai"] == ["monai"]


def test_only_the_bridge_itself_imports_monai() -> None:
    code = (
        "import sys, medattn.integrations, medattn.volumes.batch\n"
        "before = 'monai' in sys.modules\n"
        "import medattn.integrations.monai\n"
        "print(before, 'monai' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False True\n"
