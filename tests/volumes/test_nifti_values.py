"""Intensities and labels: scaled once, integers exact, shapes with one channel axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from medattn.volumes import NoteKind, VolumeWarning, load_volume

FORM = {"sform": np.eye(4), "codes": (1, 0)}
INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("slope", "inter", "first", "last"),
    [
        (2.0, -1024.0, [-1024, -1022, -1020], -978),
        (-1.0, 0.5, [0.5, -0.5, -1.5], -22.5),
        (1.0, 0.0, [0, 1, 2], 23),
        (1.0, 5.0, [5, 6, 7], 28),
        (0.0, 5.0, [0, 1, 2], 23),
        (NAN, 5.0, [0, 1, 2], 23),
        (INF, 5.0, [0, 1, 2], 23),
        (-INF, NAN, [0, 1, 2], 23),
    ],
)
@pytest.mark.parametrize("dtype", ["i2", "f4"])
def test_scaling_is_applied_once_and_ignored_where_the_slope_is_unset(
    write_nifti: Any, counting: Any, dtype: str, slope: float, inter: float, first: list[float], last: float
) -> None:
    fields = {"scl_slope": slope, "scl_inter": inter}
    data = load_volume(write_nifti(counting.astype(dtype), **FORM, fields=fields)).data
    assert data.dtype == torch.float32
    assert data.flatten()[:3].tolist() == first
    assert float(data.flatten()[-1]) == last


def test_scaling_is_done_in_double_precision(write_nifti: Any) -> None:
    stored = np.full((2, 2, 2), 2**24 + 1, dtype=np.int32)
    data = load_volume(write_nifti(stored, **FORM, fields={"scl_slope": 1.0, "scl_inter": -float(2**24)})).data
    assert data.unique().tolist() == [1.0]


def test_a_slope_without_a_finite_intercept_is_an_error(write_nifti: Any, counting: Any) -> None:
    path = write_nifti(counting, **FORM, fields={"scl_slope": 2.0, "scl_inter": NAN})
    with pytest.raises(ValueError, match=r"x\.nii: scl_inter must be finite"):
        load_volume(path)


@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("endianness", ["<", ">"])
@pytest.mark.parametrize("dtype", [*INTEGERS, "f4", "f8"])
def test_every_type_and_byte_order_gives_the_same_values(
    write_nifti: Any, counting: Any, dtype: str, endianness: str, version: int, name: str
) -> None:
    array = counting.astype(dtype)
    path = write_nifti(array, name, sform=np.diag([1.0, 2, 3, 1]), codes=(1, 0), endianness=endianness, version=version)
    image, labels = load_volume(path), load_volume(path, labels=True)
    assert image.data.dtype == torch.float32
    assert labels.data.dtype == torch.int64
    assert image.data.tolist() == labels.data.tolist() == [counting.tolist()]
    assert image.grid.spacing_mm.tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_largest_integer_of_each_type_survives_as_a_label(write_nifti: Any, dtype: str) -> None:
    largest = min(np.iinfo(dtype).max, np.iinfo(np.int64).max)
    path = write_nifti(np.full((2, 2, 2), largest, dtype), **FORM)
    assert load_volume(path, labels=True).data.unique().tolist() == [largest]


def test_labels_are_read_as_integers_not_through_float32(write_nifti: Any) -> None:
    path = write_nifti(np.full((2, 2, 2), 16777217, np.int32), **FORM)
    labels = load_volume(path, labels=True)
    assert labels.data.unique().tolist() == [16777217]
    assert labels.notes == ()


def test_float_labels_under_an_integer_header_are_rounded_and_noted(tmp_path: Path) -> None:
    import nibabel

    values = np.array([0, 1, 2, 3, 6, 0, 0, 0], np.float32).reshape(2, 2, 2)
    image = nibabel.Nifti1Image(values, np.eye(4))
    image.set_data_dtype(np.uint8)  # nibabel scales to fill 0 to 255: 1 becomes 0.98824
    nibabel.save(image, tmp_path / "x.nii")
    assert float(load_volume(tmp_path / "x.nii").data.flatten()[1]) == pytest.approx(0.98824, abs=1e-5)
    labels = load_volume(tmp_path / "x.nii", labels=True)
    assert labels.data.flatten().tolist() == [0, 1, 2, 3, 6, 0, 0, 0]
    note = next(note for note in labels.notes if note.kind is NoteKind.LABELS_ROUNDED)
    assert "uint8 with scale factor" in note.message and "0.012" in note.message
    assert not note.is_warning


@pytest.mark.parametrize(("value", "label"), [(2.09, 2), (1.91, 2), (3.0, 3)])
def test_float_labels_near_an_integer_are_rounded(write_nifti: Any, value: float, label: int) -> None:
    labels = load_volume(write_nifti(np.full((2, 2, 2), value, np.float32), **FORM), labels=True)
    assert labels.data.unique().tolist() == [label]
    assert [note.kind for note in labels.notes] == [NoteKind.LABELS_ROUNDED]


@pytest.mark.parametrize("value", [0.5, 1.11, 2.85, -0.2, NAN, INF, -1.0, 1e18])
def test_float_labels_that_are_no_labels_are_an_error_that_shows_the_value(write_nifti: Any, value: float) -> None:
    array = np.zeros((2, 2, 2))
    array[1, 0, 1] = value
    with pytest.raises(ValueError, match=rf"x\.nii: labels must .*got {value:g}".replace("+", r"\+")):
        load_volume(write_nifti(array, **FORM), labels=True)


@pytest.mark.parametrize(("dtype", "value"), [("i1", -1), ("i4", -3), ("u8", 2**63)])
def test_integer_labels_out_of_range_are_an_error_that_shows_the_value(
    write_nifti: Any, dtype: str, value: int
) -> None:
    array = np.zeros((2, 2, 2), dtype)
    array[0, 1, 0] = value
    with pytest.raises(ValueError, match=rf"labels must .*got {value}"):
        load_volume(write_nifti(array, **FORM), labels=True)


def test_a_fourth_axis_becomes_the_channels(write_nifti: Any) -> None:
    array = np.arange(120, dtype=np.int16).reshape(2, 3, 4, 5)
    volume = load_volume(write_nifti(array, sform=np.diag([1.0, 2, 3, 1]), codes=(1, 0)))
    assert volume.data.shape == (5, 2, 3, 4)
    assert volume.data[4, 1, 2, 3] == array[1, 2, 3, 4] == 119
    assert volume.data[1, 0, 2, 1] == array[0, 2, 1, 1]
    assert volume.grid.shape == (2, 3, 4)
    assert volume.grid.spacing_mm.tolist() == [1, 2, 3]


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 1, 1), (2, 3, 4, 1, 1, 1, 1)])
def test_trailing_axes_of_length_1_are_one_channel(write_nifti: Any, shape: tuple[int, ...]) -> None:
    path = write_nifti(np.arange(24, dtype=np.int16).reshape(shape), **FORM)
    for labels in (False, True):
        assert load_volume(path, labels=labels).data[0, 1, 2, 3] == 23
        assert load_volume(path, labels=labels).data.shape == (1, 2, 3, 4)


@pytest.mark.parametrize("shape", [(7,), (5, 6), (2, 3, 4, 1, 5), (2, 3, 4, 5, 2), (2, 2, 2, 1, 1, 2)])
def test_other_shapes_are_an_error_that_names_the_shape(write_nifti: Any, shape: tuple[int, ...]) -> None:
    path = write_nifti(np.zeros(shape, np.uint8), **FORM)
    with pytest.raises(ValueError, match=rf"x\.nii: .*got shape \({', '.join(map(str, shape))},?\)"):
        load_volume(path)


@pytest.mark.parametrize(
    "dim", [[0, 1, 1, 1, 1, 1, 1, 1], [8, 2, 2, 2, 1, 1, 1, 1], [3, 2, 0, 4, 1, 1, 1, 1], [3, 2, -3, 4, 1, 1, 1, 1]]
)
def test_impossible_dimensions_are_an_error(write_nifti: Any, counting: Any, dim: list[int]) -> None:
    with pytest.raises(ValueError, match=r"x\.nii: dim"):
        load_volume(write_nifti(counting, **FORM, fields={"dim": dim}))


def test_labels_have_one_channel(write_nifti: Any) -> None:
    path = write_nifti(np.zeros((2, 3, 4, 5), np.uint8), **FORM)
    with pytest.raises(ValueError, match=r"x\.nii: labels must have one channel, got 5"):
        load_volume(path, labels=True)


@pytest.mark.parametrize("code", [0, 1, 32, 128, 1792, 2304, 777])
def test_a_type_that_is_no_real_number_is_an_error(write_nifti: Any, counting: Any, code: int) -> None:
    with pytest.raises(ValueError, match=rf"x\.nii: datatype .*code {code}"):
        load_volume(write_nifti(counting, **FORM, fields={"datatype": code}))


def test_nan_voxels_are_kept_counted_and_warned_about(write_nifti: Any) -> None:
    array = np.zeros((2, 3, 4), np.float32)
    array[0, 0, :3], array[1, 2, 3] = NAN, -INF
    with pytest.warns(VolumeWarning, match=r"x\.nii: 4 of 24 voxels are NaN or infinite"):
        volume = load_volume(write_nifti(array, **FORM))
    assert np.array_equal(volume.data[0].numpy(), array, equal_nan=True)
    assert [(note.kind, note.is_warning) for note in volume.notes] == [(NoteKind.NONFINITE_VOXELS, True)]


def test_values_too_large_for_float32_are_warned_about(write_nifti: Any) -> None:
    with pytest.warns(VolumeWarning, match="8 of 8 voxels"):
        load_volume(write_nifti(np.full((2, 2, 2), 1e300), **FORM))
