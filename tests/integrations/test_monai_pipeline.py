"""Whole pipelines of MONAI's parts and ours: what is marked in a scan is found at its place in the world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from monai.data import CacheDataset, DataLoader, Dataset, MetaTensor, PersistentDataset, decollate_batch
from monai.transforms import (
    BorderPad,
    CenterSpatialCrop,
    Compose,
    CropForeground,
    CropForegroundd,
    DivisiblePadd,
    Flip,
    Invertd,
    Orientation,
    Orientationd,
    RandCropByPosNegLabeld,
    RandFlip,
    RandRotate90,
    RandSpatialCrop,
    RandSpatialCropd,
    Resize,
    Rotate90,
    SaveImage,
    Spacing,
    SpatialCrop,
    SpatialPad,
    Transpose,
    Zoom,
)
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.integrations.monai import (
    LoadVolumed,
    ResampleToSpacingd,
    collate_metatensors,
    from_metatensor,
    to_metatensor,
)
from medattn.volumes import Volume, load_volume, save_volume
from medattn.volumes.original import to_original
from tests.encoders import small_encoder
from tests.geometry.grids import close, grid_of, random_grid, world_of

# -- MONAI's transforms, one by one ---------------------------------------------------------------------

KEEP_GEOMETRY = {
    "orientation": Orientation("SAL", labels=None),
    "flip": Flip((0, 2)),
    "rotate 90": Rotate90(1, (0, 2)),
    "crop": SpatialCrop(roi_start=(2, 1, 3), roi_end=(8, 7, 7)),
    "centre crop": CenterSpatialCrop((5, 4, 3)),
    "foreground crop": CropForeground(select_fn=lambda x: x > x.mean(), channel_indices=0),
    "pad": SpatialPad((16, 13, 11)),
    "border pad": BorderPad((1, 2, 3, 4, 5, 6)),
    "random crop": RandSpatialCrop((5, 4, 3), random_size=False).set_random_state(1),
    "random flip": RandFlip(prob=1.0, spatial_axis=1),
    "random rotation by 90": RandRotate90(prob=1.0).set_random_state(1),
    "spacing": Spacing((2.0, 1.5, 1.0)),
    "resize": Resize((6, 20, 4), mode="trilinear"),
    "zoom": Zoom(0.5, mode="trilinear", keep_size=False),
}
LOSE_GEOMETRY = {
    "index": lambda x: x[:, 2:],
    "torch.flip": lambda x: torch.flip(x, (1,)),
    "permute": lambda x: x.permute(0, 2, 1, 3),
    "transpose": Transpose((0, 2, 1, 3)),
    "roll": lambda x: torch.roll(x, 1, 1),
    "interpolate": lambda x: torch.nn.functional.interpolate(x[None], scale_factor=0.5, mode="trilinear")[0],
    "pool": lambda x: torch.nn.functional.avg_pool3d(x, 2),
}


def farthest_mm(done: MetaTensor) -> float:
    """How far voxels that hold their own position are from it, at most; borders and padding left out."""
    volume = from_metatensor(done)
    positions = world_of(volume.grid).permute(3, 0, 1, 2)
    index = WORLD_GRID.to_index(positions.permute(1, 2, 3, 0))
    inside = ((index >= 0) & (index <= torch.tensor(WORLD_GRID.shape) - 1)).all(-1)
    return float((volume.data - positions)[:, inside].abs().max())


WORLD_GRID = VoxelGrid((12, 10, 8), random_grid(3).affine)


def world_tensor() -> MetaTensor:
    return to_metatensor(Volume(world_of(WORLD_GRID).permute(3, 0, 1, 2).contiguous(), WORLD_GRID))


@pytest.mark.parametrize("name", KEEP_GEOMETRY)
def test_transforms_that_keep_geometry_do(name: str) -> None:
    done = KEEP_GEOMETRY[name](world_tensor())
    assert done.shape[1:] != WORLD_GRID.shape or not torch.equal(done.affine, WORLD_GRID.affine)
    assert farthest_mm(done) < 1e-3


@pytest.mark.parametrize("name", LOSE_GEOMETRY)
def test_operations_said_to_lose_geometry_do_and_keep_the_old_affine(name: str) -> None:
    done = LOSE_GEOMETRY[name](world_tensor())
    assert torch.equal(done.affine, WORLD_GRID.affine)
    assert farthest_mm(done) > 0.3


@pytest.mark.parametrize(
    ("transform", "shape", "spacing", "origin"),
    [
        (SpatialCrop(roi_start=(2, 0, 0), roi_end=(4, 4, 4)), (2, 4, 4), [1, 1, 1], [2, 0, 0]),
        (Flip(0), (4, 4, 4), [-1, 1, 1], [3, 0, 0]),
        (BorderPad((3, 0, 0, 0, 0, 0)), (7, 4, 4), [1, 1, 1], [-3, 0, 0]),
        (Resize((2, 2, 2), mode="area"), (2, 2, 2), [2, 2, 2], [0.5, 0.5, 0.5]),
    ],
    ids=["crop", "flip", "pad", "halve"],
)
def test_the_grid_after_simple_transforms_of_identity(transform: Any, shape: Any, spacing: Any, origin: Any) -> None:
    volume = from_metatensor(transform(to_metatensor(Volume(torch.zeros(1, 4, 4, 4), grid_of((4, 4, 4))))))
    assert volume.grid.shape == shape
    close(volume.grid.affine.diagonal()[:3], spacing)
    close(volume.grid.origin_mm, origin)


# -- from files to predictions on files -----------------------------------------------------------------

LEFT_MM, RIGHT_MM = (-9.0, 6.0, -4.0), (13.0, -2.0, 5.0)


def scan_grid(seed: int) -> VoxelGrid:
    """Neither RAS nor along the axes of the world, around its origin."""
    affine = torch.tensor([[0, 0, -1.5, 0], [-1.2, 0.15, 0, 0], [0.1, 1.8, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
    affine[:3, 3] = -(affine[:3, :3] @ torch.tensor([19.5, 11.5, 15.5], dtype=torch.float64)) + seed
    return VoxelGrid((40, 24, 32), affine)


def blob(grid: VoxelGrid, center_mm: Any) -> Tensor:
    """(1, I, J, K): a Gaussian of 3 mm around a point of the world."""
    distance = (world_of(grid) - torch.tensor(center_mm, dtype=torch.float64)).square().sum(-1)
    return torch.exp(-distance / 18)[None]


def centroid(values: Tensor, grid: VoxelGrid) -> Tensor:
    """(3,) mm."""
    return (values[0].double()[..., None] * world_of(grid)).sum((0, 1, 2)) / values.sum()


def marked_scan(folder: Path, seed: int, suffix: str) -> dict[str, Any]:
    """An image that is brightest on the right, and labels: 1 on the left, 2 on the right."""
    grid = scan_grid(seed)
    left, right = blob(grid, LEFT_MM), blob(grid, RIGHT_MM)
    labels = (left > 0.5).long() + 2 * (right > 0.5)
    image, label = folder / f"image{seed}{suffix}", folder / f"label{seed}{suffix}"
    save_volume(image, Volume((left + 2 * right).float(), grid))
    save_volume(label, Volume(labels, grid))
    return {"image": image, "label": label}


def preprocessing(*more: Any) -> Compose:
    keys = ["image", "label"]
    return Compose(
        [
            LoadVolumed(keys, label_keys="label"),
            Orientationd(keys, "RAS", labels=None),
            ResampleToSpacingd(keys, 1.0, label_keys="label"),
            CropForegroundd(keys, source_key="image", select_fn=lambda x: x > 0.02, margin=1),
            *more,
        ]
    )


def check_marks(image: Volume, labels: Volume, *, atol: float) -> None:
    """Left is left, right is right, to ``atol`` mm."""
    for label, place in ((1, LEFT_MM), (2, RIGHT_MM)):
        close(centroid(labels.data == label, labels.grid), torch.tensor(place), atol=0.5)
        near = blob(image.grid, place) > 0.01
        close(centroid(image.data * near, image.grid), torch.tensor(place), atol=atol)


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
def test_a_prediction_ends_up_in_its_place_on_the_grid_of_the_file(tmp_path: Path, suffix: str) -> None:
    pre = preprocessing(DivisiblePadd(["image", "label"], 8))
    scans = [marked_scan(tmp_path, seed, suffix) for seed in range(2)]
    (batch,) = DataLoader(Dataset(scans, pre), batch_size=2)
    batch["probability"] = batch["image"] / 2  # what a model would give
    batch["classes"] = batch["label"] + 0
    back = Compose(
        [
            Invertd("probability", pre, orig_keys="image", nearest_interp=False),
            Invertd("classes", pre, orig_keys="image"),
        ]
    )
    for seed, sample in enumerate(decollate_batch(batch)):
        before = {key: from_metatensor(sample[key]) for key in ("image", "label")}
        assert all(n % 8 == 0 for n in before["image"].grid.shape)
        assert "".join(before["image"].grid.axcodes) == "RAS"
        check_marks(before["image"], before["label"], atol=0.05)
        after = back(sample)
        assert from_metatensor(after["classes"]).grid.is_close(scan_grid(seed), atol_mm=1e-4)
        for key in ("probability", "classes"):
            save_volume(tmp_path / f"{key}{suffix}", from_metatensor(after[key]))
        image = load_volume(tmp_path / f"probability{suffix}")
        labels = load_volume(tmp_path / f"classes{suffix}", labels=True)
        for volume in (image, labels):
            assert volume.grid.shape == scan_grid(seed).shape
            assert volume.grid.is_close(load_volume(scans[seed]["image"]).grid, atol_mm=1e-4)
        check_marks(image, labels, atol=0.05)
        truth = load_volume(scans[seed]["label"], labels=True).data
        close(image.data, load_volume(scans[seed]["image"]).data / 2, atol=0.15)  # of 1, at the peak
        overlap = (labels.data == truth)[truth > 0].double().mean()
        assert overlap > 0.9


def test_the_grids_alone_also_find_the_way_back(tmp_path: Path) -> None:
    sample = preprocessing()(marked_scan(tmp_path, 0, ".nii"))
    image, labels = (from_metatensor(sample[key]) for key in ("image", "label"))
    assert image.grid.shape != scan_grid(0).shape
    there, here = to_original(image, image), to_original(labels, labels)
    assert there.grid.is_close(scan_grid(0), atol_mm=1e-4) and here.grid.is_close(scan_grid(0), atol_mm=1e-4)
    check_marks(there, here, atol=0.05)


@pytest.mark.parametrize("workers", [0, 2])
def test_cached_scans_of_different_shapes_reach_an_encoder_each_on_its_own_grid(tmp_path: Path, workers: int) -> None:
    crop = RandSpatialCropd(["image", "label"], roi_size=(9, 8, 7), max_roi_size=(12, 11, 10), random_size=True)
    scans = [marked_scan(tmp_path, seed, ".nii") for seed in range(2)]
    cached = CacheDataset(scans, preprocessing(crop), num_workers=0, progress=False)
    assert len(cached._cache) == 2
    loader = DataLoader(cached, batch_size=2, num_workers=workers, collate_fn=collate_metatensors)
    encoder = small_encoder("rotary_axial")
    for _ in range(2):
        (batch,) = loader
        for sample in range(2):
            image = batch["image"][sample]
            expected = blob(image.grid, LEFT_MM) + 2 * blob(image.grid, RIGHT_MM)
            close(image.data, expected.float(), atol=0.3)  # of 2, at the peak
            assert image.source_grid.is_close(scan_grid(sample), atol_mm=1e-4)
        assert len(encoder(batch["image"].data, batch["image"].grids).grids) == 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ours", [False, True], ids=["list_data_collate", "collate_metatensors"])
def test_several_random_crops_of_each_scan_keep_their_places(ours: bool, workers: int) -> None:
    keys = ["world", "label"]
    label = to_metatensor(Volume((world_of(WORLD_GRID)[..., 0] > WORLD_GRID.fov_center_mm[0]).long()[None], WORLD_GRID))
    crop = RandCropByPosNegLabeld(keys, "label", (4, 5, 6), num_samples=3)
    pipeline = Compose([ResampleToSpacingd(keys, 0.9, label_keys="label"), crop])
    scans = Dataset([{"world": world_tensor(), "label": label} for _ in range(2)], pipeline)
    collation = {"collate_fn": collate_metatensors} if ours else {}
    (batch,) = DataLoader(scans, batch_size=2, num_workers=workers, **collation)
    crops = batch["world"] if ours else [from_metatensor(sample["world"]) for sample in decollate_batch(batch)]
    assert [crop.data.shape for crop in crops] == [(3, 4, 5, 6)] * 6
    assert len({tuple(crop.grid.origin_mm.tolist()) for crop in crops}) > 1
    assert all(farthest_mm(to_metatensor(crop)) < 1e-9 for crop in crops)


def test_a_scan_cached_on_disk_is_the_same_scan(tmp_path: Path) -> None:
    scans = [marked_scan(tmp_path, 0, ".nii")]
    cached = PersistentDataset(
        scans, preprocessing(), cache_dir=tmp_path / "cache", track_meta=True, weights_only=False
    )
    first, second = (from_metatensor(cached[0]["image"]) for _ in range(2))
    assert torch.equal(first.data, second.data)
    assert torch.equal(first.grid.affine, second.grid.affine)
    assert (first.notes, first.name) == (second.notes, second.name)


@pytest.mark.parametrize(("dtype", "monai_dtype"), [(torch.float32, np.float32), (torch.int64, np.int32)])
@pytest.mark.parametrize("resample", [False, True])
def test_what_monai_saves_is_read_back_as_it_was(tmp_path: Path, dtype: Any, monai_dtype: Any, resample: bool) -> None:
    grid = random_grid(2, shear=0.0)
    volume = Volume((100 * world_of(grid)[..., 0]).abs().to(dtype)[None], grid, name="scan.nii")
    save = SaveImage(tmp_path, "", ".nii.gz", monai_dtype, resample=resample, separate_folder=False, print_log=False)
    save(to_metatensor(volume))
    again = load_volume(tmp_path / "scan.nii.gz", labels=dtype == torch.int64)
    assert torch.equal(again.data, volume.data)
    assert again.grid.is_close(grid, atol_mm=1e-4)


def test_monai_saves_a_resampled_tensor_on_the_grid_of_its_file(tmp_path: Path) -> None:
    scan = marked_scan(tmp_path, 0, ".nii")
    tensor = preprocessing()(scan)["image"]
    SaveImage(tmp_path, "back", ".nii", resample=True, mode="bilinear", separate_folder=False, print_log=False)(tensor)
    back = load_volume(tmp_path / "image0_back.nii")
    assert back.grid.shape == scan_grid(0).shape
    assert back.grid.is_close(scan_grid(0), atol_mm=1e-4)
    close(back.data, load_volume(scan["image"]).data, atol=0.3)  # of 2, at the peak
