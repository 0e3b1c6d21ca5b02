"""What a MetaImage header says, word for word: geometry in RAS+ mm, or an error that names the field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medattn.volumes import NoteKind, Volume, VolumeError, VolumeWarning, load_volume
from tests.volumes.header_writing import COUNTING, LPS_TO_RAS, itk_affine, itk_values, raw, write_metaimage

UNORIENTED = {"TransformMatrix": None, "Offset": None}
MATRICES = ("TransformMatrix", "Rotation", "Orientation")
ORIGINS = ("Offset", "Origin", "Position")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.mha"


def load(path: Path, changes: Any = None, **options: Any) -> Volume:
    return load_volume(write_metaimage(path, changes, **options))


def refused(path: Path, changes: Any, match: str, **options: Any) -> None:
    with pytest.raises(VolumeError, match=match):
        load(path, changes, **options)


def kinds(volume: Volume) -> list[NoteKind]:
    return [note.kind for note in volume.notes]


def warned(path: Path, changes: Any, match: str, **options: Any) -> Volume:
    with pytest.warns(VolumeWarning, match=match):
        return load(path, changes, **options)


def as_itk(path: Path, volume: Volume) -> bool:
    """SimpleITK reads the same file to the same voxels and the same geometry."""
    sitk = pytest.importorskip("SimpleITK")
    image = sitk.ReadImage(str(path))
    assert np.array_equal(volume.data.numpy(), itk_values(image))
    return bool(np.abs(volume.grid.affine.numpy() - itk_affine(image)).max() < 1e-12)


def test_lps_becomes_ras(path: Path) -> None:
    volume = load_volume(write_metaimage(path), strict=True)
    assert volume.data.tolist() == [COUNTING.tolist()]
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert volume.grid.axcodes == ("L", "P", "S")
    assert volume.notes == ()
    assert as_itk(path, volume)


@pytest.mark.parametrize("name", MATRICES)
def test_rows_of_the_matrix_are_the_directions_of_the_axes(path: Path, name: str) -> None:
    volume = load(path, {"TransformMatrix": None} | {name: "0 1 0 -1 0 0 0 0 1"})
    assert (volume.grid.direction[:, 0] + 0.0).tolist() == [0, -1, 0]  # (0, 1, 0) in LPS
    assert (volume.grid.direction[:, 1] + 0.0).tolist() == [1, 0, 0]
    assert volume.grid.spacing_mm.tolist() == [1, 2, 3]
    assert volume.notes == ()
    assert as_itk(path, volume)


@pytest.mark.parametrize("name", ORIGINS)
def test_every_name_of_the_origin(path: Path, name: str) -> None:
    volume = load(path, {"Offset": None} | {name: "10 20 30"})
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert as_itk(path, volume)


@pytest.mark.parametrize(
    ("names", "one", "two"), [(MATRICES, "1 0 0 0 1 0 0 0 1", "0 1 0 -1 0 0 0 0 1"), (ORIGINS, "1 2 3", "1 2 4")]
)
def test_two_names_must_have_one_value(path: Path, names: tuple[str, ...], one: str, two: str) -> None:
    none = dict.fromkeys(names)
    assert load(path, none | {names[1]: one, names[2]: one.replace(" ", "  ")}).notes == ()
    for first, second in ((names[0], names[1]), (names[2], names[0])):
        refused(path, none | {first: one, second: two}, "are names of one field and must have one value")


@pytest.mark.parametrize(
    ("changes", "spacing"),
    [
        ({"ElementSize": "4 5 6"}, [1, 2, 3]),
        ({"ElementSpacing": None, "ElementSize": "4 5 6"}, [4, 5, 6]),
        ({"ElementSpacing": "0.5 1e-1 2.5E+0"}, [0.5, 0.1, 2.5]),
    ],
)
def test_spacing_is_before_size(path: Path, changes: Any, spacing: list[float]) -> None:
    volume = load(path, changes)
    assert volume.grid.spacing_mm.tolist() == spacing
    assert as_itk(path, volume)


def test_a_shear_is_kept(path: Path) -> None:
    volume = load(path, {"TransformMatrix": "1 0 0 0 1 0 0 0.6 0.8"})
    assert np.allclose(volume.grid.affine[:3, 2], [0, -1.8, 2.4])
    assert kinds(volume) == [NoteKind.SHEARED]
    assert as_itk(path, volume)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("name", ["ElementSpacing", "ElementSize"])
def test_a_negative_spacing_reverses_the_axis_and_is_warned_about(path: Path, name: str, axis: int) -> None:
    spacing = [1, 2, 3]
    spacing[axis] *= -1
    fields = {"ElementSpacing": None} | {name: " ".join(map(str, spacing))}
    volume = warned(
        path, fields, f"{name} is negative along {'ijk'[axis]}, got .*taken as positive, with the axis reversed"
    )
    assert volume.grid.spacing_mm.tolist() == [1, 2, 3]
    expected = np.array(LPS_TO_RAS)
    expected[:3, axis] *= -1
    assert volume.grid.affine.tolist() == expected.tolist()
    assert [(note.kind, note.values) for note in volume.notes] == [(NoteKind.FIELDS_DISAGREE, {"spacing": spacing})]
    assert as_itk(path, volume)
    with pytest.raises(VolumeError, match="fields_disagree"):
        load_volume(path, strict=True)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"ElementSpacing": "1 2 0"}, "ElementSpacing of axis k must be finite and not 0, got 0.0"),
        ({"ElementSpacing": "0 2 3"}, "ElementSpacing of axis i must be finite and not 0, got 0.0"),
        ({"ElementSpacing": "1 nan 3"}, "ElementSpacing of axis j must be finite and not 0, got nan"),
        ({"ElementSpacing": "1 inf 3"}, "ElementSpacing of axis j must be finite and not 0, got inf"),
        ({"ElementSpacing": None, "ElementSize": "1 2 0"}, "ElementSize of axis k must be finite and not 0"),
        ({"ElementSpacing": "1 2"}, "ElementSpacing must have 3 values, got 2"),
        ({"ElementSpacing": "1 2 3 4"}, "ElementSpacing must have 3 values, got 4"),
        ({"ElementSpacing": "1 2 x"}, "ElementSpacing must be numbers, got 'x'"),
        ({"ElementSpacing": None}, "must have ElementSpacing or ElementSize"),
        ({"TransformMatrix": "1 0 0 0 1 0"}, "TransformMatrix must have 9 values, got 6"),
        (
            {"TransformMatrix": "1 0 0 0 nan 0 0 0 1"},
            r"TransformMatrix must be finite, got \[0.0, nan, 0.0\] for axis j",
        ),
        ({"TransformMatrix": "1 0 0 0 1 0 0 0 0"}, "singular: its column for axis k is zero"),
        ({"TransformMatrix": "1 0 0 1 0 0 0 0 1"}, "singular: its columns are not independent"),
        ({"TransformMatrix": "1 0 0 0 1 0 0 0 0", "AnatomicalOrientation": "RAI"}, "its column for axis k is zero"),
        ({"ElementSpacing": "1e308 2 3", "DistanceUnits": "m"}, "affine must be finite"),
        ({"Offset": "1 2"}, "Offset must have 3 values, got 2"),
        ({"Offset": "1 2 inf"}, r"Offset must be finite, got \[1.0, 2.0, inf\]"),
        ({"CenterOfRotation": "1 2 nan"}, "CenterOfRotation must be finite"),
        ({"DistanceUnits": "furlong"}, "DistanceUnits must be one of mm, cm, m, um, got 'furlong'"),
        ({"ElementToIntensityFunctionSlope": "0"}, "ElementToIntensityFunctionSlope must not be 0"),
        ({"ElementToIntensityFunctionSlope": "nan"}, "ElementToIntensityFunctionSlope must be finite"),
        ({"ElementToIntensityFunctionOffset": "inf"}, "ElementToIntensityFunctionOffset must be finite"),
    ],
)
def test_a_number_that_is_none_is_an_error(path: Path, changes: Any, match: str) -> None:
    refused(path, changes, match)


def test_rows_that_are_no_unit_vectors_are_warned_about(path: Path) -> None:
    volume = warned(
        path, {"TransformMatrix": "2 0 0 0 1 0 0 0 1"}, r"rows of TransformMatrix have lengths \[2.0, 1.0, 1.0\]"
    )
    assert volume.grid.spacing_mm.tolist() == [2, 2, 3]
    assert kinds(volume) == [NoteKind.FIELDS_DISAGREE]
    assert as_itk(path, volume)


def test_spacing_alone_is_an_unknown_orientation(path: Path) -> None:
    volume = warned(path, UNORIENTED, "no TransformMatrix, Rotation or Orientation: axes are taken as R, A, S, and the")
    assert volume.grid.affine.tolist() == np.diag([1.0, 2, 3, 1]).tolist()
    assert kinds(volume) == [NoteKind.ORIENTATION_UNKNOWN]


def test_an_origin_without_a_matrix_is_in_the_frame_of_itk(path: Path) -> None:
    volume = warned(path, {"TransformMatrix": None}, "axes are taken as L, P, S")
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert kinds(volume) == [NoteKind.ORIENTATION_UNKNOWN]
    assert as_itk(path, volume)


def test_a_missing_origin_is_assumed(path: Path) -> None:
    volume = load(path, {"Offset": None})
    assert volume.grid.affine.tolist() == [[-1, 0, 0, 0], [0, -2, 0, 0], [0, 0, 3, 0], [0, 0, 0, 1]]
    assert kinds(volume) == [NoteKind.ORIGIN_ASSUMED]
    with pytest.raises(VolumeError, match="no Offset, Origin or Position: the first voxel is taken to lie at 0"):
        load_volume(path, strict=True)


@pytest.mark.parametrize(("unit", "scale"), [("mm", 1), ("cm", 10), ("m", 1000), ("um", 0.001)])
def test_units_scale_spacing_and_origin(path: Path, unit: str, scale: float) -> None:
    volume = load(path, {"DistanceUnits": unit})
    assert np.allclose(volume.grid.affine[:3], np.array(LPS_TO_RAS)[:3] * scale, rtol=1e-12)
    assert volume.notes == ()


def test_a_unit_that_says_nothing_is_assumed(path: Path) -> None:
    assert kinds(load(path, {"DistanceUnits": "?"})) == [NoteKind.UNITS_ASSUMED]


# -- AnatomicalOrientation ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letters", "agrees"),
    [(None, True), ("RAI", True), ("LPS", True), ("rai", True), ("???", True), ("", True)]
    + [("RAS", False), ("LPI", False), ("ARI", False), ("RIA", False), ("LAS", False)],
)
def test_letters_never_change_the_geometry_and_are_warned_about_if_they_contradict_it(
    path: Path, letters: str | None, agrees: bool
) -> None:
    fields = {"AnatomicalOrientation": letters}
    volume = load(path, fields) if agrees else warned(path, fields, "contradicts TransformMatrix, which is used")
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert kinds(volume) == [NoteKind.FIELDS_DISAGREE] * (not agrees)
    assert as_itk(path, volume)


@pytest.mark.parametrize("letters", ["LPS", "RAI"])
def test_letters_name_the_nearest_axes(path: Path, letters: str) -> None:
    fields = {"TransformMatrix": "0.8 0.6 0 -0.6 0.8 0 0 0 1", "AnatomicalOrientation": letters}
    assert load_volume(write_metaimage(path, fields), strict=True).notes == ()


@pytest.mark.parametrize("seed", range(50))
def test_what_itk_writes_never_contradicts_itself(tmp_path: Path, seed: int) -> None:
    sitk = pytest.importorskip("SimpleITK")
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    image = sitk.Image(2, 3, 4, sitk.sitkUInt8)
    image.SetDirection(rotation.ravel().tolist())
    sitk.WriteImage(image, str(tmp_path / "x.mha"))
    assert b"AnatomicalOrientation" in (tmp_path / "x.mha").read_bytes()
    assert load_volume(tmp_path / "x.mha", strict=True).notes == ()


@pytest.mark.parametrize(
    ("matrix", "centre", "moves"),
    [
        ("1 0 0 0 1 0 0 0 1", "5 6 7", False),
        ("0 1 0 -1 0 0 0 0 1", "0 0 7", False),
        ("0 1 0 -1 0 0 0 0 1", "0 0 0", False),
        ("0 1 0 -1 0 0 0 0 1", "5 0 0", True),
    ],
)
def test_a_centre_of_rotation_is_not_used(path: Path, matrix: str, centre: str, moves: bool) -> None:
    fields = {"TransformMatrix": matrix, "CenterOfRotation": centre}
    volume = warned(path, fields, "CenterOfRotation .* is not used") if moves else load(path, fields)
    assert kinds(volume) == [NoteKind.FIELDS_DISAGREE] * moves
    assert as_itk(path, volume)


# -- axes, types, scaling -----------------------------------------------------------------------------


@pytest.mark.parametrize("components", [2, 3, 4])
def test_components_become_the_channels(path: Path, components: int) -> None:
    array = np.arange(24 * components, dtype="<i2").reshape(components, 2, 3, 4)
    volume = load(path, {"ElementNumberOfChannels": str(components)}, voxels=raw(array))
    assert volume.data.tolist() == array.tolist()
    assert dict(volume.notes[0].values) == {"channels": components, "axis": "component"}
    assert kinds(volume) == [NoteKind.CHANNELS]
    assert as_itk(path, volume)


@pytest.mark.parametrize("times", [1, 5])
def test_a_fourth_axis_becomes_the_channels(path: Path, times: int) -> None:
    array = np.arange(24 * times, dtype="<i2").reshape(2, 3, 4, times)
    fields = {"NDims": "4", "DimSize": f"2 3 4 {times}", "ElementSpacing": "1 2 3 4", "Offset": "10 20 30 40"}
    matrix = {"TransformMatrix": "1 0 0 0  0 1 0 0  0 0 1 0  0 0 0 1", "CenterOfRotation": "0 0 0 0"}
    volume = load(path, fields | matrix, voxels=raw(array))
    assert volume.data.tolist() == np.moveaxis(array, 3, 0).tolist()
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert [note.values for note in volume.notes] == [{"channels": 5, "axis": "time"}] * (times > 1)
    both = fields | matrix | {"ElementNumberOfChannels": "2"}
    if times > 1:
        refused(path, both, "components .* or a fourth axis, not both, got 2 components and 5 along", voxels=raw(array))
    turned = matrix | {"TransformMatrix": "1 0 0 0  0 1 0 0  0 0 0 1  0 0 1 0"}
    refused(path, fields | turned, "TransformMatrix must keep the fourth axis apart", voxels=raw(array))


TYPES = {
    "MET_CHAR": "i1", "MET_UCHAR": "u1", "MET_SHORT": "i2", "MET_USHORT": "u2", "MET_INT": "i4", "MET_UINT": "u4",
    "MET_LONG": "i4", "MET_ULONG": "u4", "MET_LONG_LONG": "i8", "MET_ULONG_LONG": "u8", "MET_FLOAT": "f4",
    "MET_DOUBLE": "f8", "MET_FLOAT_ARRAY": "f4",
}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), TYPES.items())
@pytest.mark.parametrize("order", ["BinaryDataByteOrderMSB", "ElementByteOrderMSB"])
@pytest.mark.parametrize("is_big", ["True", "False"])
def test_every_type_in_every_byte_order(path: Path, name: str, dtype: str, order: str, is_big: str) -> None:
    array = (np.arange(24) * 5 + 1).reshape(2, 3, 4).astype((">" if is_big == "True" else "<") + dtype)
    volume = load(path, {"ElementType": name, "BinaryDataByteOrderMSB": None} | {order: is_big}, voxels=raw(array))
    assert volume.data.tolist() == [array.tolist()]
    assert as_itk(path, volume)
    assert load_volume(path, labels=True).data.tolist() == [array.tolist()]


def test_little_endian_if_nothing_is_said(path: Path) -> None:
    volume = load(path, {"BinaryDataByteOrderMSB": None, "BinaryData": None, "ObjectType": None})
    assert volume.data.tolist() == [COUNTING.tolist()]


def test_intensities_are_scaled_once(path: Path) -> None:
    fields = {"ElementToIntensityFunctionSlope": "2", "ElementToIntensityFunctionOffset": "-1024"}
    volume = load(path, fields)
    assert volume.data.tolist() == [(COUNTING * 2.0 - 1024).tolist()]
    labels = load_volume(write_metaimage(path, fields | {"ElementToIntensityFunctionOffset": "1"}), labels=True)
    assert labels.data.tolist() == [(COUNTING * 2 + 1).tolist()]


# -- the text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_line_end(path: Path, newline: str) -> None:
    volume = load(path, newline=newline)
    assert volume.data.tolist() == [COUNTING.tolist()]
    assert volume.grid.affine.tolist() == LPS_TO_RAS


def test_lines_about_other_things_are_passed_over(path: Path) -> None:
    fields: dict[str, str | None] = {
        "Comment": "a = b",
        "Modality": "MET_MOD_MR",
        "ElementMin": "0",
        "HeaderSizePerSlice": "0",
        "ElementNBits": "8",
        "UltrasoundImageOrientation": "MF",
    }
    dicom = {"0008|0060": "MR", "0010|0010": "Doe^Jane", "0008|0005": "two\nlines", "#x:y": "z", "two words": "1"}
    volume = load_volume(write_metaimage(path, fields | dicom), strict=True)
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert "Doe" not in f"{volume.notes}{volume.metadata}"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("elementspacing", "ElementSpacing"),
        ("BinaryDa?taByteOrderMSB", "BinaryDataByteOrderMSB"),
        ("TranformMatrix", "TransformMatrix"),
        ("offset", "Offset"),
    ],
)
def test_a_field_whose_name_is_almost_right_is_not_passed_over(path: Path, name: str, meant: str) -> None:
    refused(path, {name: "1"}, f"the field {meant} must be written so, got '{re.escape(name)}'")


def test_what_an_image_came_with_is_passed_over_when_itk_has_written_it(path: Path) -> None:
    sitk = pytest.importorskip("SimpleITK")
    image = sitk.Image(2, 3, 4, sitk.sitkUInt8)
    for key, value in {
        "0008|0060": "MR",
        "0010|0010": "Doe^Jane",
        "k=v": "a\nb",
        "x:y": "1",
        "ü": "é",
        "spacing": "3",
    }.items():
        image.SetMetaData(key, value)
    sitk.WriteImage(image, str(path))
    assert b"Doe" in path.read_bytes()
    volume = load_volume(path, strict=True)
    assert volume.grid.affine.tolist() == np.diag([-1.0, -1, 1, 1]).tolist()
    assert "Doe" not in f"{volume.notes}{volume.metadata}"


@pytest.mark.parametrize("line", ["Offset 1 2 3", "Offset 1 = 2", "BinaryDataByteOrderMSB"])
def test_a_field_without_a_value_is_an_error(path: Path, line: str) -> None:
    fields = {line.split()[0]: None} | {"Comment": f"x\n{line}"}
    refused(path, fields, f"must be '{line.split()[0]} = value', got '{line}'")


def test_a_header_of_one_long_line_is_read_soon(path: Path) -> None:
    assert load(path, {"Comment": "x" + " " * 500_000 + "y", "ObjectType": "Image" + " " * 500_000}).notes == ()


def test_a_colon_will_do(path: Path) -> None:
    write_metaimage(path)
    path.write_bytes(path.read_bytes().replace(b" = ", b":", 8))
    assert load_volume(path, strict=True).grid.affine.tolist() == LPS_TO_RAS


@pytest.mark.parametrize("field", ["NDims", "DimSize", "ElementType"])
def test_a_missing_field_is_named(path: Path, field: str) -> None:
    refused(path, {field: None}, f"it must have the field '{field}'")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"ObjectType": "Tube"}, "ObjectType must be Image, got 'Tube'"),
        ({"NDims": "2", "DimSize": "6 4"}, r"a volume must have 3 axes, .* \(NDims\), got 2"),
        ({"NDims": "5"}, r"a volume must have 3 axes, .* \(NDims\), got 5"),
        ({"NDims": "three"}, "NDims must be integers >= 1, got 'three'"),
        ({"DimSize": "2 3"}, "DimSize must have 3 values, got 2"),
        ({"DimSize": "2 3 0"}, "DimSize must be integers >= 1, got '0'"),
        ({"DimSize": "2 3 4.0"}, "DimSize must be integers >= 1, got '4.0'"),
        ({"ElementNumberOfChannels": "0"}, "ElementNumberOfChannels must be integers >= 1, got '0'"),
        ({"ElementType": "MET_STRING"}, "ElementType must be one of MET_CHAR, .* got 'MET_STRING'"),
        ({"ElementType": "short"}, "ElementType must be one of MET_CHAR, .* got 'short'"),
        ({"BinaryData": "False"}, "BinaryData must be True, got False: voxels written as text are not supported"),
        ({"BinaryData": "maybe"}, "BinaryData must be True or False, got 'maybe'"),
        ({"ElementByteOrderMSB": "True"}, "BinaryDataByteOrderMSB and ElementByteOrderMSB are names of one field"),
    ],
)
def test_a_field_that_is_wrong_is_named(path: Path, changes: Any, match: str) -> None:
    refused(path, changes, match)


def test_text_that_is_no_header_is_an_error(path: Path) -> None:
    for content in (b"", b"\0" * 100, b"hello\n", b"NRRD0004\n", b"NDims = 3\n" * 2):
        path.write_bytes(content)
        with pytest.raises(VolumeError, match=r"not a MetaImage file|NDims must be there once, but is there twice"):
            load_volume(path)
