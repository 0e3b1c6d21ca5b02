"""Stored numbers become float32 or int64, exactly where they can, in the order in memory that they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from medattn.geometry import VoxelGrid
from medattn.volumes import NoteKind, VolumeError
from medattn.volumes.stored import Scaling, Stored
from medattn.volumes.values import image_values, label_values


def stored(values: Any, **options: Any) -> Stored:
    return Stored(values, VoxelGrid(values.shape[1:], torch.eye(4)), **options)


def counting(dtype: str = "i2", channels: int = 1) -> Any:
    return np.arange(24 * channels).reshape(channels, 2, 3, 4).astype(dtype)


LAYOUTS = {
    "C": lambda a: a,
    "F": lambda a: np.asfortranarray(a),
    "channels last": lambda a: np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 0, -1)), -1, 0),
    "reversed": lambda a: a[:, ::-1].copy()[:, ::-1],
    "every other": lambda a: a.repeat(2, axis=2)[:, :, ::2],
    "read only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "byte order": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "one value": lambda a: np.broadcast_to(a[:, :1, :1, :1], a.shape),
}


@pytest.mark.parametrize("scaling", [Scaling(), Scaling(2.0, -1.0)])
@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "f4", "f8"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_order_in_memory_does_not_matter(layout: str, dtype: str, scaling: Scaling) -> None:
    array = LAYOUTS[layout](counting(dtype, channels=2))
    values, notes = image_values(stored(array, scaling=scaling))
    expected = array.astype(float) * scaling.slope + scaling.inter
    assert torch.equal(torch.from_numpy(values), torch.from_numpy(expected.astype(np.float32)))
    assert notes == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_labels_of_any_order_in_memory(layout: str) -> None:
    for dtype in ("u1", "i8", "u8", "f4"):
        array = LAYOUTS[layout](counting(dtype))
        values, _ = label_values(stored(array))
        assert torch.equal(torch.from_numpy(values), torch.from_numpy(array.astype(np.int64)))


@pytest.mark.parametrize("dtype", ["i2", "f4"])
@pytest.mark.parametrize("scaling", [Scaling(), Scaling(2.0)])
def test_the_order_in_memory_is_kept(dtype: str, scaling: Scaling) -> None:
    array = np.asfortranarray(counting(dtype))
    values, _ = image_values(stored(array, scaling=scaling))
    assert values[0].flags.f_contiguous
    assert label_values(stored(array))[0][0].flags.f_contiguous


def test_scaling_may_differ_along_axes_and_is_done_in_double_precision() -> None:
    slope = np.array([0.5, 1.0, 2.0, 4.0]).reshape(1, 1, 1, 4)
    inter = np.array([-1024.0, 0.0]).reshape(1, 2, 1, 1)
    values, _ = image_values(stored(np.full((1, 2, 3, 4), 10, np.uint16), scaling=Scaling(slope, inter)))
    assert values[0, 0, 0].tolist() == [-1019, -1014, -1004, -984]
    assert values[0, 1, 2].tolist() == [5, 10, 20, 40]
    large = np.full((1, 2, 2, 2), 2**24 + 1, np.int32)
    assert image_values(stored(large, scaling=Scaling(1.0, -(2.0**24))))[0].max() == 1


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">u2", "i4"])
@pytest.mark.parametrize(
    "scaling", [Scaling(1.0, -1024.0), Scaling(-3.0, 7.0), Scaling(255.0), Scaling(0.1), Scaling(1.0, 0.5)]
)
def test_scaling_is_as_exact_as_in_double_precision(dtype: str, scaling: Scaling) -> None:
    bounds = np.iinfo(dtype)
    array = np.linspace(bounds.min, bounds.max, 5 * 7 * 11).astype(dtype).reshape(1, 5, 7, 11)
    expected = (array.astype(np.float64) * scaling.slope + scaling.inter).astype(np.float32)
    np.testing.assert_array_equal(image_values(stored(array, scaling=scaling))[0], expected)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("value", "scaling", "bad"),
    [
        (np.nan, Scaling(), 1),
        (np.inf, Scaling(), 1),
        (-np.inf, Scaling(), 1),
        (1e5, Scaling(1e35), 1),
        (3e38, Scaling(), 0),  # finite, though the sum is not
        (1e5, Scaling(1e30), 0),
    ],
)
def test_voxels_that_are_no_numbers_are_counted(value: float, scaling: Scaling, bad: int, dtype: str) -> None:
    array = np.zeros((1, 2, 3, 4), dtype)
    array[0, 1, 2, 3] = array[0, 0, 0, 0] = value
    _, notes = image_values(stored(array, scaling=scaling))
    assert [(note.kind, note.values["voxels"]) for note in notes] == [(NoteKind.NONFINITE_VOXELS, 2)] * bad


def test_integers_that_scaling_makes_infinite_are_counted() -> None:
    _, (note,) = image_values(stored(counting("i2"), scaling=Scaling(1e38)))
    assert (note.kind, note.values["voxels"]) == (NoteKind.NONFINITE_VOXELS, 20)  # all but 0, 1, 2 and 3


@pytest.mark.parametrize("dtype", ["i4", "i8", "u4", "u8"])
def test_exactness_is_judged_as_float32_does(dtype: str) -> None:
    limits = np.iinfo(dtype)
    edges = [2**k + d for k in range(24, 64) for d in (-1, 0, 1, 3, 2 ** (k - 23), 2 ** (k - 24))]
    chosen = [v for e in edges for v in (e, -e) if limits.min <= v <= limits.max] + [limits.min, limits.max]
    array = np.array(chosen, dtype).reshape(1, -1, 1, 1)
    inexact = sum(int(np.float32(v)) != v for v in chosen)
    _, (note,) = image_values(stored(array))
    assert (note.kind, note.values["voxels"]) == (NoteKind.PRECISION_LOST, inexact)
    assert note.values["largest"] == max(map(abs, chosen))


def test_a_wider_type_is_judged_by_the_type_of_the_file() -> None:
    array = np.full((1, 2, 2, 2), 2.0, np.float32)
    _, (note,) = label_values(stored(array, file_dtype=np.dtype("u1"), scaling=Scaling(1.0, 0.01)))
    assert note.message.startswith("labels are stored as uint8 with a scale factor, and were rounded")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 2, 2, 2), np.uint8), "one channel, got 3"),
        (np.full((1, 2, 2, 2), -1, np.int16), "must be >= 0, got -1"),
        (np.full((1, 2, 2, 2), 2**63, np.uint64), f"64-bit integers exactly, got {2**63}"),
        (np.full((1, 2, 2, 2), 0.4), r"integers \(to 0\.1\), got 0\.4"),
        (np.full((1, 2, 2, 2), np.nan), "must be integers, got nan"),
        (np.full((1, 2, 2, 2), 2.0**60), "64-bit integers exactly"),
    ],
)
def test_what_is_no_label_map_is_refused(array: Any, message: str) -> None:
    with pytest.raises(VolumeError, match=message):
        label_values(stored(array))


@pytest.mark.parametrize("scaling", [Scaling(1e300), Scaling(1e308, 1e308), Scaling(float("inf"), float("-inf"))])
def test_a_scale_that_overflows_is_counted_or_refused_without_a_word_from_numpy(scaling: Scaling) -> None:
    for dtype in ("u1", "u8", "f4"):
        values, notes = image_values(stored(np.full((1, 2, 2, 2), 200, dtype), scaling=scaling))
        assert not np.isfinite(values).any()
        assert [note.kind for note in notes] == [NoteKind.NONFINITE_VOXELS]
        with pytest.raises(VolumeError, match="labels must"):
            label_values(stored(np.full((1, 2, 2, 2), 200, dtype), scaling=scaling))
