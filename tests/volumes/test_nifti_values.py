"""Intensities and labels: scaled once, integers exact, shapes with one channel axis."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from medattn.volumes import NoteKind, VolumeError, VolumeWarning, load_volume

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
    write_each: Any, counting: Any, dtype: str, slope: float, inter: float, first: list[float], last: float
) -> None:
    fields = {"scl_slope": slope, "scl_inter": inter}
    data = load_volume(write_each(counting.astype(dtype), **FORM, fields=fields)).data
    assert data.dtype == torch.float32
    assert data.flatten()[:3].tolist() == first
    assert float(data.flatten()[-1]) == last


def test_scaling_is_done_in_double_precision(write_nifti: Any) -> None:
    stored = np.full((2, 2, 2), 2**24 + 1, dtype=np.int32)
    data = load_volume(write_nifti(stored, **FORM, fields={"scl_slope": 1.0, "scl_inter": -float(2**24)})).data
    assert data.unique().tolist() == [1.0]


def test_a_slope_without_a_finite_intercept_is_an_error(write_nifti: Any, counting: Any) -> None:
    path = write_nifti(counting, **FORM, fields={"scl_slope": 2.0, "scl_inter": NAN})
    with pytest.raises(VolumeError, match=r"x\.nii: scl_inter must be finite"):
        load_volume(path)


@pytest.mark.parametrize("dtype", [*INTEGERS, "f4", "f8"])
def test_every_type_in_every_kind_of_file_gives_the_same_values(write_each: Any, counting: Any, dtype: str) -> None:
    path = write_each(counting.astype(dtype), sform=np.diag([1.0, 2, 3, 1]), codes=(1, 0))
    image, labels = load_volume(path), load_volume(path, labels=True)
    assert image.data.dtype == torch.float32
    assert labels.data.dtype == torch.int64
    assert image.data.tolist() == labels.data.tolist() == [counting.tolist()]
    assert image.grid.spacing_mm.tolist() == [1, 2, 3]
    assert image.notes == ()


@pytest.mark.parametrize("labels", [False, True])
def test_what_is_loaded_is_the_callers_own(write_each: Any, counting: Any, labels: bool) -> None:
    path = write_each(counting.astype("f4"), **FORM)
    load_volume(path, labels=labels).data.zero_()  # writes to no file, and to no other volume
    assert load_volume(path, labels=labels).data.tolist() == [counting.tolist()]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant != 112, reason="numpy has no IEEE binary128 here")
def test_quadruple_precision_is_read_where_numpy_has_it(write_nifti: Any, counting: Any) -> None:
    assert load_volume(write_nifti(counting.astype(np.longdouble), **FORM)).data.tolist() == [counting.tolist()]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant == 112, reason="numpy has IEEE binary128 here")
def test_quadruple_precision_is_refused_where_numpy_lacks_it(write_nifti: Any, counting: Any) -> None:
    with pytest.raises(VolumeError, match=r"x\.nii: datatype .* got code 1536"):
        load_volume(write_nifti(counting, **FORM, fields={"datatype": 1536, "bitpix": 128}))


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8"])
@pytest.mark.parametrize(("value", "inexact"), [(2**24, 0), (2**24 + 1, 1), (2**24 + 2, 0), (2**31 - 1, 1), (2**30, 0)])
def test_integers_that_float32_cannot_hold_are_counted_and_warned_about(
    write_each: Any, recwarn: pytest.WarningsRecorder, dtype: str, value: int, inexact: int
) -> None:
    array = np.zeros((2, 3, 4), dtype)
    array[1, 2, 0] = value
    path = write_each(array, **FORM)
    volume = load_volume(path)
    assert [note.kind for note in volume.notes] == [NoteKind.PRECISION_LOST] * inexact
    assert [note.values["voxels"] for note in volume.notes] == [1] * inexact
    assert [str(w.message).partition(": ")[2][:12] for w in recwarn] == ["1 of 24 voxe"] * inexact
    assert load_volume(path, labels=True).data.max() == value


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
    assert "uint8 with a scale factor" in note.message and "0.012" in note.message
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
    with pytest.raises(VolumeError, match=rf"x\.nii: labels must .*got {value:g}".replace("+", r"\+")):
        load_volume(write_nifti(array, **FORM), labels=True)


@pytest.mark.parametrize(("dtype", "value"), [("i1", -1), ("i4", -3), ("u8", 2**63)])
def test_integer_labels_out_of_range_are_an_error_that_shows_the_value(
    write_nifti: Any, dtype: str, value: int
) -> None:
    array = np.zeros((2, 2, 2), dtype)
    array[0, 1, 0] = value
    with pytest.raises(VolumeError, match=rf"labels must .*got {value}"):
        load_volume(write_nifti(array, **FORM), labels=True)


def test_a_fourth_axis_becomes_the_channels(write_each: Any) -> None:
    array = np.arange(120, dtype=np.int16).reshape(2, 3, 4, 5)
    volume = load_volume(write_each(array, sform=np.diag([1.0, 2, 3, 1]), codes=(1, 0)))
    assert volume.data.shape == (5, 2, 3, 4)
    assert volume.data[4, 1, 2, 3] == array[1, 2, 3, 4] == 119
    assert volume.data[1, 0, 2, 1] == array[0, 2, 1, 1]
    assert volume.grid.shape == (2, 3, 4)
    assert volume.grid.spacing_mm.tolist() == [1, 2, 3]
    (note,) = volume.notes
    assert (note.kind, note.values) == (NoteKind.CHANNELS, {"channels": 5, "axis": "time"})
    assert not note.is_warning and not note.is_assumption


@pytest.mark.parametrize(("intent", "words"), [(1007, "vectors"), (1006, "displacement vectors"), (0, "intent code 0")])
@pytest.mark.parametrize("channels", [2, 3, 6])
def test_a_fifth_axis_becomes_the_channels(write_each: Any, channels: int, intent: int, words: str) -> None:
    array = np.arange(24 * channels, dtype=np.float32).reshape(2, 3, 4, 1, channels)
    volume = load_volume(write_each(array, **FORM, fields={"intent_code": intent}))
    assert volume.data.tolist() == np.moveaxis(array[..., 0, :], -1, 0).tolist()
    (note,) = volume.notes
    assert (note.kind, note.values["channels"], note.values["axis"]) == (NoteKind.CHANNELS, channels, "component")
    assert words in note.message and "as stored" in note.message


@pytest.mark.parametrize("colours", ["RGB", "RGBA"])
def test_colours_become_the_channels_and_are_not_scaled(write_each: Any, colours: str) -> None:
    parts = np.arange(24 * len(colours), dtype=np.uint8).reshape(2, 3, 4, len(colours))
    array = np.ascontiguousarray(parts).view([(name, "u1") for name in colours])[..., 0]
    path = write_each(array, **FORM, fields={"scl_slope": 2.0, "scl_inter": 7.0})
    volume = load_volume(path, strict=True)
    assert volume.data.dtype == torch.float32
    assert volume.data.tolist() == np.moveaxis(parts, -1, 0).tolist()
    (note,) = volume.notes
    assert (note.kind, note.values) == (NoteKind.CHANNELS, {"channels": len(colours), "axis": "colour"})
    with pytest.raises(VolumeError, match=rf"labels must have one channel, got {len(colours)}"):
        load_volume(path, labels=True)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4, 1, 3)])
def test_colours_over_time_are_an_error(write_nifti: Any, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, [(name, "u1") for name in "RGB"])
    with pytest.raises(VolumeError, match=r"x\.nii: colours must have 3 axes"):
        load_volume(write_nifti(array, **FORM))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 1, 1), (2, 3, 4, 1, 1, 1, 1)])
def test_trailing_axes_of_length_1_are_one_channel(write_each: Any, shape: tuple[int, ...]) -> None:
    path = write_each(np.arange(24, dtype=np.int16).reshape(shape), **FORM)
    for labels in (False, True):
        assert load_volume(path, labels=labels).data[0, 1, 2, 3] == 23
        assert load_volume(path, labels=labels).data.shape == (1, 2, 3, 4)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5, 2), (2, 2, 2, 1, 1, 2), (2, 2, 2, 2, 1, 2), (2, 2, 2, 1, 1, 1, 3)])
def test_axes_beyond_time_or_components_are_an_error_that_names_the_shape(
    write_nifti: Any, shape: tuple[int, ...]
) -> None:
    path = write_nifti(np.zeros(shape, np.uint8), **FORM)
    with pytest.raises(
        VolumeError, match=rf"x\.nii: .*time or components.* got shape \({', '.join(map(str, shape))}\)"
    ):
        load_volume(path)


@pytest.mark.parametrize("shape", [(7,), (5, 6)])
def test_fewer_than_three_axes_are_an_error(write_each: Any, shape: tuple[int, ...]) -> None:
    path = write_each(np.zeros(shape, np.uint8), **FORM)
    with pytest.raises(VolumeError, match=rf"must have 3 axes, got shape \({', '.join(map(str, shape))},?\)"):
        load_volume(path)


@pytest.mark.parametrize("shape", [(5, 6, 1), (5, 1, 6), (1, 5, 6), (1, 1, 1)])
def test_a_single_slice_along_any_axis_is_a_volume(write_each: Any, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape), dtype=np.int16).reshape(shape)
    assert load_volume(write_each(array, **FORM)).data.tolist() == [array.tolist()]


@pytest.mark.parametrize(
    "dim", [[0, 1, 1, 1, 1, 1, 1, 1], [8, 2, 2, 2, 1, 1, 1, 1], [3, 2, 0, 4, 1, 1, 1, 1], [3, 2, -3, 4, 1, 1, 1, 1]]
)
def test_impossible_dimensions_are_an_error(write_nifti: Any, counting: Any, dim: list[int]) -> None:
    with pytest.raises(VolumeError, match=r"x\.nii: dim"):
        load_volume(write_nifti(counting, **FORM, fields={"dim": dim}))


def test_labels_have_one_channel(write_nifti: Any) -> None:
    path = write_nifti(np.zeros((2, 3, 4, 5), np.uint8), **FORM)
    with pytest.raises(VolumeError, match=r"x\.nii: labels must have one channel, got 5"):
        load_volume(path, labels=True)


@pytest.mark.parametrize("code", [0, 1, 32, 1792, 777, -4])
def test_a_type_that_is_no_real_number_is_an_error(write_nifti: Any, counting: Any, code: int) -> None:
    with pytest.raises(VolumeError, match=rf"x\.nii: datatype .*code {code}"):
        load_volume(write_nifti(counting, **FORM, fields={"datatype": code}))


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers_are_refused_with_a_way_out(write_each: Any, counting: Any, dtype: str) -> None:
    with pytest.raises(VolumeError, match="complex numbers .*: store their parts, or magnitude"):
        load_volume(write_each(counting.astype(dtype), **FORM))


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
