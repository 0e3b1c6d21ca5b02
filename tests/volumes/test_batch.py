"""Batches in which each volume keeps its grid."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from medattn import VolumeEncoder
from medattn.geometry import VoxelGrid
from medattn.volumes import Note, NoteKind, Volume
from medattn.volumes.batch import VolumeBatch, collate_volumes
from tests.encoders import PATCH, Probe, close, small_encoder
from tests.geometry.grids import random_grid
from tests.volumes.comparing import same

SPACINGS = (1.0, 2.0)


def volume_of(number: int = 0, *, shape: Any = (4, 6, 3), spacing_mm: Any = 1.0, dtype: Any = torch.float32) -> Volume:
    """A volume, in every field unlike that of another ``number``."""
    data = torch.arange(float(np.prod(shape))).reshape(1, *shape).add(number).to(dtype)
    return Volume(
        data,
        VoxelGrid.from_spacing(shape, spacing_mm, center_mm=(number, 0, 0)),
        (Note(NoteKind.UNITS_ASSUMED, f"note {number}", {"number": number}),),
        f"scan {number}",
        {"modality": "CT", "uids": ("1.2", f"1.{number}")},
        random_grid(number),
    )


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))], ids=["copy", "deepcopy", "pickle"]
)
def test_a_volume_survives_being_copied_and_pickled(copied: Any) -> None:
    volume = volume_of(3)
    again = copied(volume)
    same(again, volume)
    with pytest.raises(AttributeError):
        again.grid.shape = (1, 1, 1)
    again.grid.affine[0, 0] = 7.0  # a copy, as ever
    assert torch.equal(again.grid.affine, volume.grid.affine)


@pytest.mark.parametrize("shapes", [[(4, 6, 3), (4, 6, 3)], [(4, 6, 3), (5, 2, 7)]], ids=["one shape", "two shapes"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_batch_gives_back_the_volumes_it_was_made_of(shapes: Any, dtype: Any) -> None:
    volumes = [volume_of(n, shape=shape, dtype=dtype) for n, shape in enumerate(shapes)]
    batch = collate_volumes(volumes)
    assert isinstance(batch, VolumeBatch) and len(batch) == 2
    for volume, again in zip(volumes, batch, strict=True):
        same(again, volume)
    same(batch[-1], volumes[1])
    with pytest.raises(IndexError):
        batch[2]


def test_equal_shapes_make_one_tensor_and_others_a_list() -> None:
    stacked = collate_volumes([volume_of(0), volume_of(1)])
    assert stacked.data.shape == (2, 1, 4, 6, 3)
    listed = collate_volumes([volume_of(0), volume_of(1, shape=(5, 2, 7))])
    assert [tuple(d.shape) for d in listed.data] == [(1, 4, 6, 3), (1, 5, 2, 7)]
    channels = collate_volumes([volume_of(), Volume(torch.zeros(2, 4, 6, 3), volume_of().grid)])
    assert [tuple(d.shape) for d in channels.data] == [(1, 4, 6, 3), (2, 4, 6, 3)]


def test_each_sample_keeps_its_affine_and_twice_the_spacing_has_steps_doubled() -> None:
    batch = collate_volumes([volume_of(spacing_mm=s) for s in SPACINGS])
    assert [grid.spacing_mm.tolist() for grid in batch.grids] == [[1, 1, 1], [2, 2, 2]]
    encoder = VolumeEncoder(Probe(dim=24, num_heads=2, frame="mm"), patch_size=PATCH, depth=1)
    encoder(batch.data, batch.grids)
    first, second = encoder.encoding.coords
    assert (first[1] - first[0]).tolist() == [0, 0, 1]
    assert (second[1] - second[0]).tolist() == [0, 0, 2]
    close(second, 2 * first, atol=1e-12)


@pytest.mark.parametrize("shapes", [[(4, 6, 3), (4, 6, 3)], [(4, 6, 3), (5, 7, 2)]], ids=["one shape", "two shapes"])
def test_an_encoder_takes_a_batch_as_it_is_and_sees_each_volume_as_if_alone(shapes: Any) -> None:
    encoder = small_encoder("rotary_axial")
    volumes = [volume_of(n, shape=s, spacing_mm=n + 1.0) for n, s in enumerate(shapes)]
    batch = collate_volumes(volumes)
    tokens = encoder(batch.data, batch.grids)
    for sample, volume in enumerate(volumes):
        close(tokens[sample], encoder([volume.data], [volume.grid])[0])


# -- samples of several things -------------------------------------------------------------------------


def test_dicts_become_a_dict_of_columns() -> None:
    grid = random_grid(1)
    samples = [
        {
            "image": volume_of(n),
            "weights": torch.full((2,), float(n)),
            "landmarks": torch.zeros(n + 1, 3),
            "array": np.array([n, n], np.int16),
            "age": 40 + n,
            "dose": 0.5 * n,
            "count": np.uint8(n),
            "treated": n == 0,
            "id": f"p{n}",
            "grid": grid,
            "site": {"number": n, "name": "x"},
            "pair": (volume_of(n), n),
            "box": [1, 2],
        }
        for n in range(2)
    ]
    batch = collate_volumes(samples)
    assert isinstance(batch["image"], VolumeBatch)
    assert batch["weights"].tolist() == [[0, 0], [1, 1]]
    assert [tuple(t.shape) for t in batch["landmarks"]] == [(1, 3), (2, 3)]
    assert batch["array"].tolist() == [[0, 0], [1, 1]] and batch["array"].dtype == torch.int16
    assert batch["age"].tolist() == [40, 41] and batch["age"].dtype == torch.int64
    assert batch["dose"].tolist() == [0, 0.5] and batch["dose"].dtype == torch.float64
    assert batch["count"].tolist() == [0, 1] and batch["count"].dtype == torch.uint8
    assert batch["treated"].tolist() == [True, False] and batch["treated"].dtype == torch.bool
    assert batch["id"] == ["p0", "p1"]
    assert batch["grid"] == [grid, grid]
    assert batch["site"]["number"].tolist() == [0, 1] and batch["site"]["name"] == ["x", "x"]
    assert isinstance(batch["pair"][0], VolumeBatch) and batch["pair"][1].tolist() == [0, 1]
    assert batch["box"] == [[1, 2], [1, 2]]


def test_missing_optional_keys_are_none_in_a_list_of_what_is_there() -> None:
    label = volume_of(1, dtype=torch.int64)
    batch = collate_volumes([{"image": volume_of(0)}, {"image": volume_of(1), "label": label, "age": 3}])
    assert len(batch["image"]) == 2
    assert batch["label"] == [None, label]
    assert batch["age"] == [None, 3]


def test_tuples_become_a_tuple_of_columns() -> None:
    images, ages = collate_volumes([(volume_of(n), 40 + n) for n in range(3)])
    assert len(images) == 3 and ages.tolist() == [40, 41, 42]


def test_a_list_counts_as_several_samples() -> None:
    batch = collate_volumes([[{"image": volume_of(0)}, {"image": volume_of(1)}], [{"image": volume_of(2)}]])
    assert batch["image"].names == ["scan 0", "scan 1", "scan 2"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_gives_each_sample_its_own_grid(workers: int) -> None:
    dataset: Any = [{"image": volume_of(n, spacing_mm=n + 1.0), "id": n} for n in range(4)]
    batches = list(DataLoader(dataset, batch_size=2, num_workers=workers, collate_fn=collate_volumes))
    assert [b["id"].tolist() for b in batches] == [[0, 1], [2, 3]]
    for number in range(4):
        same(batches[number // 2]["image"][number % 2], dataset[number]["image"])


# -- where the data is ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [[(4, 6, 3), (4, 6, 3)], [(4, 6, 3), (5, 2, 7)]], ids=["one shape", "two shapes"])
def test_a_batch_moves_to_a_device_without_its_grids(shapes: Any) -> None:
    batch = collate_volumes([volume_of(n, shape=shape) for n, shape in enumerate(shapes)])
    moved = batch.to("meta")
    assert {d.device.type for d in moved.data} == {"meta"}
    assert {d.device.type for d in batch.data} == {"cpu"}
    assert moved.grids is batch.grids and moved[1].grid.affine.device.type == "cpu"
    same(batch.to("cpu")[1], batch[1])


@pytest.mark.parametrize("shapes", [[(4, 6, 3), (4, 6, 3)], [(4, 6, 3), (5, 2, 7)]], ids=["one shape", "two shapes"])
def test_pinning_pins_all_the_data(shapes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = collate_volumes([volume_of(n, shape=shape) for n, shape in enumerate(shapes)])
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1000)  # a CPU-only torch cannot pin
    pinned = batch.pin_memory()
    for sample in range(2):
        assert torch.equal(pinned[sample].data, batch[sample].data + 1000)


@pytest.mark.gpu
def test_a_data_loader_pins_a_batch() -> None:
    dataset: Any = [{"image": volume_of(n)} for n in range(2)]
    (batch,) = DataLoader(dataset, batch_size=2, pin_memory=True, collate_fn=collate_volumes)
    assert batch["image"].data.is_pinned()
    assert batch["image"].to("cuda", non_blocking=True).data.device.type == "cuda"


# -- what cannot be a batch ----------------------------------------------------------------------------


class TensorWithAffine(torch.Tensor):
    affine = torch.eye(4)


def test_a_tensor_with_an_affine_is_refused_since_stacking_would_lose_it() -> None:
    tensors = [{"image": torch.zeros(1, 2, 2, 2).as_subclass(TensorWithAffine)} for _ in range(2)]
    with pytest.raises(ValueError, match=r"TensorWithAffine, shape \(1, 2, 2, 2\).*collate_metatensors"):
        collate_volumes(tensors)


def test_images_and_labels_in_one_column_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one dtype, got 2 of torch\.float32 and torch\.int64"):
        collate_volumes([volume_of(), volume_of(dtype=torch.int64)])


@pytest.mark.parametrize("samples", [[], [[]]])
def test_no_samples_are_refused(samples: Any) -> None:
    with pytest.raises(ValueError, match="at least one sample, got none"):
        collate_volumes(samples)
    with pytest.raises(ValueError, match="one dtype, got 0"):
        VolumeBatch.of([])


def test_samples_of_two_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"all dicts, all tuples or all volumes, got \['Mapping', 'Volume'\]"):
        collate_volumes([volume_of(), {"image": volume_of()}])
