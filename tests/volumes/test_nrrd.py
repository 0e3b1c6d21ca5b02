"""What a NRRD header says, word for word: geometry in RAS+ mm, or an error that names the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medattn.volumes import NoteKind, Volume, VolumeError, VolumeWarning, load_volume
from tests.volumes.header_writing import COUNTING, LPS_TO_RAS, raw, write_nrrd

UNORIENTED = {"space": None, "space directions": None, "space origin": None}
FOUR = {"dimension": "4", "sizes": "2 2 3 2", "space directions": "none (1,0,0) (0,2,0) (0,0,3)"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.nrrd"


def load(path: Path, changes: Any = None, **options: Any) -> Volume:
    return load_volume(write_nrrd(path, changes, **options))


def refused(path: Path, changes: Any, match: str, **options: Any) -> None:
    with pytest.raises(VolumeError, match=match):
        load(path, changes, **options)


def kinds(volume: Volume) -> list[NoteKind]:
    return [note.kind for note in volume.notes]


def warned(path: Path, changes: Any, match: str) -> Volume:
    with pytest.warns(VolumeWarning, match=match):
        return load(path, changes)


def test_lps_becomes_ras(path: Path) -> None:
    volume = load_volume(write_nrrd(path), strict=True)
    assert volume.data.tolist() == [COUNTING.tolist()]
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert volume.grid.axcodes == ("L", "P", "S")
    assert volume.notes == ()


@pytest.mark.parametrize(
    ("space", "signs"),
    [
        *[(name, (-1, -1, 1)) for name in ("LPS", "lps", "left-posterior-superior", "Left-Posterior-Superior")],
        *[(name, (-1, 1, 1)) for name in ("LAS", "left-anterior-superior")],
        *[(name, (1, 1, 1)) for name in ("RAS", "right-anterior-superior")],
    ],
)
def test_each_anatomical_frame(path: Path, space: str, signs: tuple[int, int, int]) -> None:
    x, y, z = signs
    volume = load(path, {"space": space})
    assert volume.grid.affine.tolist() == [
        [x, 0, 0, 10 * x],
        [0, 2 * y, 0, 20 * y],
        [0, 0, 3 * z, 30 * z],
        [0, 0, 0, 1],
    ]
    assert volume.orientation_known


def test_directions_are_columns_whatever_their_order(path: Path) -> None:
    affine = load(path, {"space directions": "(0,0,-1) (0,2,0) (3,0,0)", "space origin": "(0,0,0)"}).grid.affine
    assert affine[:3, :3].T.tolist() == [[0, 0, -1], [0, -2, 0], [-3, 0, 0]]
    grid = load(path, {"space directions": "(0,0,-1) (0,2,0) (3,0,0)"}).grid
    assert grid.spacing_mm.tolist() == [1, 2, 3]
    assert grid.to_world((1, 0, 0)).tolist() == [-10, -20, 29]


def test_an_lps_identity_turned_to_ras_negates_two_axes(path: Path) -> None:
    volume = load(path, {"space directions": "(1,0,0) (0,1,0) (0,0,1)", "space origin": "(0,0,0)"})
    assert np.diag(volume.grid.affine).tolist() == [-1, -1, 1, 1]
    turned = volume.reoriented("RAS")
    assert turned.grid.affine.tolist() == [[1, 0, 0, -1], [0, 1, 0, -2], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert turned.data.tolist() == [COUNTING[::-1, ::-1].tolist()]


def test_a_shear_is_kept(path: Path) -> None:
    volume = load(path, {"space directions": "(1,0,0) (0,2,0) (0,1.5,3)"})
    assert volume.grid.affine[:3, 2].tolist() == [0, -1.5, 3]
    assert kinds(volume) == [NoteKind.SHEARED]


@pytest.mark.parametrize(
    ("space", "x"),
    [("scanner-xyz", 1), ("3D-right-handed", 1), ("3D-left-handed", -1)],
)
def test_a_frame_without_a_patient_is_an_unknown_orientation(path: Path, space: str, x: int) -> None:
    volume = warned(path, {"space": space}, "does not say where the patient's right is")
    assert kinds(volume) == [NoteKind.ORIENTATION_UNKNOWN]
    assert volume.grid.affine.tolist() == [[x, 0, 0, 10 * x], [0, 2, 0, 20], [0, 0, 3, 30], [0, 0, 0, 1]]
    with pytest.raises(VolumeError, match="orientation_unknown"):
        load_volume(path, strict=True)


def test_a_space_of_three_dimensions_without_a_name_is_an_unknown_orientation(path: Path) -> None:
    header = "space dimension: 3\nspace directions: (1,0,0) (0,2,0) (0,0,3)\nspace origin: (10,20,30)"
    with pytest.warns(VolumeWarning, match="of dimension 3"):
        volume = load(path, UNORIENTED, extra=header)
    assert volume.grid.affine[:3, 3].tolist() == [10, 20, 30]
    assert not volume.orientation_known
    refused(path, UNORIENTED, "space dimension must be 3, got '2'", extra=header.replace(": 3", ": 2"))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"space": "LPI"}, r"space must be one of ras, las, lps, .*got 'LPI'"),
        ({"space": None}, "space directions must come with one of the fields"),
        ({"space dimension": "3"}, "space directions must come with one of the fields"),
        ({"space directions": "(1,0,0) (0,2,0)"}, r"must have 3 vectors or 'none', got 2"),
        ({"space directions": "(1,0,0) (0,2,0) (0,0,3) none"}, r"must have 3 vectors or 'none', got 4"),
        ({"space directions": "(1,0,0) (0,2) (0,0,3)"}, "array axis 1 must have 3 values, got 2"),
        ({"space directions": "(1,0,0) (0,2,0,0) (0,0,3)"}, "array axis 1 must have 3 values, got 4"),
        ({"space directions": "(1,0,0) (0,nan,0) (0,0,3)"}, r"array axis 1 must be finite, got '\(0,nan,0\)'"),
        ({"space directions": "(1,0,0) (nan,nan,nan) (0,0,3)"}, "array axis 1 must be finite"),
        ({"space directions": "(inf,0,0) (0,2,0) (0,0,3)"}, "array axis 0 must be finite"),
        ({"space directions": "(1,0,0) (0,2,0) (0,0,3_0)"}, "array axis 2 must be numbers, got '3_0'"),
        ({"space directions": "(1,0,0) (0,2,0) (0,0,three)"}, "array axis 2 must be numbers, got 'three'"),
        ({"space directions": "(1,0,0) (0,2,0) 0,0,3"}, r"array axis 2 must be numbers in parentheses, got '0,0,3'"),
        ({"space directions": "(1,0,0) (0,2,0) (0,0,3"}, "must have 3 vectors"),
        ({"space directions": "(1,0,0) (0,0,0) (0,0,3)"}, "singular: its column for axis j is zero"),
        ({"space directions": "(1,0,0) (2,0,0) (0,0,3)"}, "singular: its columns are not independent"),
        ({"space directions": "(1,0,0) none (0,0,3)"}, "must have 3 axes in space, got 2"),
        ({"space directions": "(1e308,0,0) (0,2,0) (0,0,3)", "space units": '"m" "m" "m"'}, "affine must be finite"),
        ({"space directions": "(1e200,0,0) (0,2,0) (0,0,3)"}, "affine is singular"),
        ({"space origin": "(1,2)"}, "space origin must have 3 values, got 2"),
        ({"space origin": "(1,2,nan)"}, "space origin must be finite"),
        ({"space origin": "1 2 3"}, "space origin must be numbers in parentheses"),
    ],
)
def test_geometry_that_is_none_is_an_error(path: Path, changes: Any, match: str) -> None:
    refused(path, changes, match)


def test_blanks_in_vectors_change_nothing(path: Path) -> None:
    changes = {"space directions": " ( 1 , 0, 0)(0,2.,0)   (+0,0,3e0) ", "space origin": "( 10 ,20, 30.0 )"}
    assert load(path, changes).grid.affine.tolist() == LPS_TO_RAS


def test_a_missing_origin_is_assumed(path: Path) -> None:
    volume = load(path, {"space origin": None})
    assert volume.grid.origin_mm.tolist() == [0, 0, 0]
    assert kinds(volume) == [NoteKind.ORIGIN_ASSUMED]
    with pytest.raises(VolumeError, match="there is no space origin: the first voxel is taken to lie at 0"):
        load_volume(path, strict=True)


# -- units --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "scale"),
    [("mm", 1), ("millimeter", 1), ("m", 1000), ("cm", 10), ("um", 0.001), ("µm", 0.001), ("micron", 0.001)],
)
def test_units_scale_spacing_and_origin(path: Path, unit: str, scale: float) -> None:
    volume = load(path, {"space units": f'"{unit}" "{unit}" "{unit}"'})
    assert np.allclose(volume.grid.spacing_mm, np.array([1, 2, 3]) * scale, rtol=1e-12)
    assert np.allclose(volume.grid.origin_mm, np.array([-10, -20, 30]) * scale, rtol=1e-12)
    assert volume.notes == ()


def test_each_axis_of_space_has_its_own_unit(path: Path) -> None:
    affine = load(path, {"space units": '"mm" "m" "um"', "space directions": "(0,1,0) (2,0,0) (0,0,3)"}).grid.affine
    assert affine.tolist() == [[0, -2, 0, -10], [-1000, 0, 0, -20000], [0, 0, 0.003, 0.03], [0, 0, 0, 1]]


@pytest.mark.parametrize("units", ['"" "" ""', '"???" "???" "???"', '"mm" "mm" "none"'])
def test_units_that_say_nothing_are_assumed(path: Path, units: str) -> None:
    volume = load(path, {"space units": units})
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert kinds(volume) == [NoteKind.UNITS_ASSUMED]


@pytest.mark.parametrize(
    ("units", "match"),
    [('"mm" "mm"', "space units must have 3 values, got 2"), ('"mm" "mm" "s"', "units of length .*got 's'")],
)
def test_other_units_are_an_error(path: Path, units: str, match: str) -> None:
    refused(path, {"space units": units}, match)


# -- spacing only -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [{}, {"space": "LPS", "space origin": "(1,2,3)"}, {"axis mins": "5 6 7"}, {"centerings": "node node node"}]
)
def test_spacing_without_directions_is_an_unknown_orientation(path: Path, more: dict[str, str]) -> None:
    volume = warned(path, UNORIENTED | {"spacings": "1 2 3"} | more, "there are no space directions")
    assert volume.grid.affine.tolist() == np.diag([1.0, 2, 3, 1]).tolist()
    assert kinds(volume) == [NoteKind.ORIENTATION_UNKNOWN]


def test_spacing_has_units_as_well(path: Path) -> None:
    volume = warned(path, UNORIENTED | {"spacings": "1 2 3", "units": '"m" "um" "mm"'}, "no space directions")
    assert volume.grid.spacing_mm.tolist() == [1000, 0.002, 3]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({}, "must have space directions or spacings"),
        ({"axis mins": "0 0 0", "axis maxs": "2 6 12"}, "must have space directions or spacings"),
        ({"spacings": "1 2"}, "spacings must have 3 values, got 2"),
        ({"spacings": "1 2 -3"}, "spacings of axis k must be positive and finite, got -3.0"),
        ({"spacings": "1 0 3"}, "spacings of axis j must be positive and finite, got 0.0"),
        ({"spacings": "nan 2 3"}, "spacings of axis i must be positive and finite, got nan"),
        ({"spacings": "1 2 inf"}, "spacings of axis k must be positive and finite, got inf"),
        ({"spacings": "1 2 3", "dimension": "4", "sizes": "2 3 2 2"}, "spacings must have 4 values"),
        ({"spacings": "1 2 3 4", "dimension": "4", "sizes": "2 3 2 2"}, "must have 3 axes in space, got 4"),
    ],
)
def test_spacing_that_is_none_is_an_error(path: Path, changes: Any, match: str) -> None:
    refused(path, UNORIENTED | changes, match)


def test_spacings_beside_directions_must_agree(path: Path) -> None:
    assert load(path, {"spacings": "1 2 3"}).notes == ()
    volume = warned(path, {"spacings": "1 2 4"}, r"spacings \[1.0, 2.0, 4.0\] are not the lengths \[1.0, 2.0, 3.0\]")
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert kinds(volume) == [NoteKind.FIELDS_DISAGREE]


# -- channels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "size", "meaning"),
    [
        ("vector", 2, "component"),
        ("list", 2, "list"),
        ("time", 2, "time"),
        ("RGB-color", 3, "colour"),
        ("4-color", 4, "colour"),
        ("3D-symmetric-matrix", 6, "component"),
        ("domain", 2, "list"),
    ],
)
@pytest.mark.parametrize("at", range(4))
def test_an_axis_without_direction_becomes_the_channels(
    path: Path, at: int, kind: str, size: int, meaning: str
) -> None:
    array = np.arange(24 * size, dtype="<i2").reshape(size, 2, 3, 4)
    rows: list[list[str]] = [["2", "3", "4"], ["(1,0,0)", "(0,2,0)", "(0,0,3)"], ["domain"] * 3]
    for row, value in zip(rows, (str(size), "none", kind), strict=True):
        row.insert(at, value)
    fields = dict(zip(("sizes", "space directions", "kinds"), map(" ".join, rows), strict=True))
    volume = load(path, {"dimension": "4"} | fields, voxels=raw(np.moveaxis(array, 0, at)))
    assert volume.data.tolist() == array.tolist()
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert kinds(volume) == [NoteKind.CHANNELS]
    expected_kind = "list" if kind == "domain" else kind.lower()
    assert dict(volume.notes[0].values) == {"channels": size, "axis": meaning, "kind": expected_kind}


def test_axes_of_length_one_are_dropped(path: Path) -> None:
    fields = {"dimension": "5", "sizes": "1 2 3 1 4", "space directions": "none (1,0,0) (0,2,0) none (0,0,3)"}
    volume = load(path, fields)
    assert volume.data.tolist() == [COUNTING.tolist()]
    assert volume.notes == ()


def test_time_may_be_a_dimension_of_space(path: Path) -> None:
    for space in ("left-posterior-superior-time", "LPST"):
        directions = "(1,0,0,0) (0,2,0,0) (0,0,3,0) (0,0,0,5)"
        fields = {"dimension": "4", "sizes": "2 3 2 2", "space": space, "space directions": directions}
        units = {"space origin": "(10,20,30,40)", "space units": '"mm" "mm" "mm" "s"'}
        volume = load(path, fields | units)
        assert volume.data.shape == (2, 2, 3, 2)
        assert volume.grid.affine.tolist() == LPS_TO_RAS
        moving = {"space directions": directions.replace("(0,0,3,0)", "(0,0,3,1)")}
        refused(path, fields | units | moving, "array axis 2 must be in space or in time, not both")


def test_channels_without_orientation_are_told_by_their_kind_or_spacing(path: Path) -> None:
    fields = UNORIENTED | {"dimension": "4", "sizes": "2 2 3 2"}
    for more in ({"spacings": "1 1 2 3", "kinds": "vector domain domain domain"}, {"spacings": "nan 1 2 3"}):
        volume = warned(path, fields | more, "no space directions")
        assert volume.grid.spacing_mm.tolist() == [1, 2, 3]
        assert volume.data.shape == (2, 2, 3, 2)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (FOUR | {"kinds": "complex domain domain domain"}, "kinds must be of real numbers, got complex"),
        ({"kinds": "domain domain"}, "kinds must have 3 values, got 2"),
        (
            {"dimension": "5", "sizes": "2 2 3 2 1", "space directions": "none (1,0,0) (0,2,0) (0,0,3)"},
            "space directions must have 5 vectors",
        ),
        (
            {"dimension": "5", "sizes": "2 2 3 1 2", "space directions": "none (1,0,0) (0,2,0) (0,0,3) none"},
            r"one other at most, got lengths \[2, 2\]",
        ),
        ({"dimension": "2", "sizes": "6 4", "space directions": "(1,0,0) (0,2,0)"}, "must have 3 axes in space, got 2"),
        ({"dimension": "4", "sizes": "2 3 2 2"} | UNORIENTED | {"spacings": "1 1 1 1"}, "3 axes in space, got 4"),
    ],
)
def test_axes_that_are_no_volume_are_an_error(path: Path, changes: Any, match: str) -> None:
    refused(path, changes, match)


# -- the text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", ["NRRD0001", "NRRD0002", "NRRD0003", "NRRD0004", "NRRD0005", "NRRD00.01"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_version_and_line_end(path: Path, magic: str, newline: str) -> None:
    volume = load(path, magic=magic, newline=newline)
    assert volume.data.tolist() == [COUNTING.tolist()]
    assert volume.grid.affine.tolist() == LPS_TO_RAS


@pytest.mark.parametrize("magic", ["NRRD0006", "NRRD", "", "nrrd0004", "ObjectType = Image"])
def test_another_magic_is_an_error(path: Path, magic: str) -> None:
    refused(path, {}, "not a NRRD file: it must start with NRRD0001 to NRRD0005", magic=magic)


def test_comments_keys_and_fields_about_other_things_are_passed_over(path: Path) -> None:
    ignored = 'min: 0\nmax: 9\nold min: 0\ncontent: a: b\nlabels: "i" "j" "k"\nthicknesses: nan nan 5\nnumber: 24'
    frame = "measurement frame: (0,1,0) (1,0,0) (0,0,-1)\ncenterings: node node node"
    extra = f"# type: float\n{ignored}\n{frame}\nPatientName:=Doe^Jane\nsizes:=9 9 9\nhttp://x:=1"
    volume = load_volume(write_nrrd(path, extra=extra), strict=True)
    assert volume.data.tolist() == [COUNTING.tolist()]
    assert volume.grid.affine.tolist() == LPS_TO_RAS
    assert "Doe" not in f"{volume.notes}{volume.metadata}"


def test_fields_may_be_in_any_order_and_case(path: Path) -> None:
    header = "NRRD0004\nSPACE ORIGIN: (10,20,30)\nSpace Directions: (1,0,0) (0,2,0) (0,0,3)\nsizes: 2 3 4\nspace: LPS\n"
    path.write_bytes(f"{header}encoding: RAW\nendian: Little\ntype: SHORT\ndimension: 3\n\n".encode() + raw())
    assert load_volume(path).grid.affine.tolist() == LPS_TO_RAS


@pytest.mark.parametrize("field", ["type", "dimension", "sizes", "encoding"])
def test_a_missing_field_is_named(path: Path, field: str) -> None:
    refused(path, {field: None}, f"it must have the field '{field}'")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"dimension": "0"}, "dimension must be integers from 1 to 16, got '0'"),
        ({"dimension": "17"}, "dimension must be integers from 1 to 16, got '17'"),
        ({"dimension": "3.0"}, "dimension must be integers from 1 to 16, got '3.0'"),
        ({"sizes": "2 3"}, "sizes must have 3 values, got 2"),
        ({"sizes": "2 3 0"}, "sizes must be integers >= 1, got '0'"),
        ({"sizes": "2 3 -4"}, "sizes must be integers >= 1, got '-4'"),
        ({"sizes": "2 3 1_0"}, "sizes must be integers >= 1, got '1_0'"),
        ({"sizes": "2 3 " + "9" * 5000}, "sizes must be integers >= 1, got '99"),
        ({"type": "char"}, "type must be a NRRD type .* got 'char'"),
        ({"type": "block"}, "type must be a NRRD type .* got 'block'"),
        ({"endian": None}, "endian must be there where type is short"),
        ({"endian": "middle"}, "endian must be little or big, got 'middle'"),
        ({"encoding": "bzip2"}, "encoding must be raw or gzip, got 'bzip2', which is not supported"),
        ({"encoding": "ascii"}, "encoding must be raw or gzip, got 'ascii', which is not supported"),
        ({"encoding": "hex"}, "encoding must be raw or gzip, got 'hex', which is not supported"),
    ],
)
def test_a_field_that_is_wrong_is_named(path: Path, changes: Any, match: str) -> None:
    refused(path, changes, match)


def test_a_field_that_is_there_twice_is_an_error(path: Path) -> None:
    refused(path, {}, "the field 'Sizes' must be there once, but is there twice", extra="Sizes: 4 3 2")


@pytest.mark.parametrize("name", ["space orgin", "spaceorigin", "Patient", "endain", "space  x"])
def test_a_field_that_the_format_does_not_know_is_an_error(path: Path, name: str) -> None:
    refused(path, {}, f"'{name}' is no field of NRRD", extra=f"{name}: 1")


@pytest.mark.parametrize("name", ["axismins", "axis maxs", "oldmin", "OLD MAX", "centers", "sampleunits", "blocksize"])
def test_fields_with_two_names(path: Path, name: str) -> None:
    assert load(path, extra=f"{name}: x").notes == ()


def test_a_line_that_is_nothing_is_an_error(path: Path) -> None:
    refused(path, {}, "must be 'field: value' or 'key:=value', got 'hello'", extra="hello")


# -- types --------------------------------------------------------------------------------------------

TYPES = {
    "int8": ["signed char", "int8", "int8_t"],
    "uint8": ["uchar", "unsigned char", "uint8", "uint8_t"],
    "int16": ["short", "short int", "signed short", "signed short int", "int16", "int16_t"],
    "uint16": ["ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"],
    "int32": ["int", "signed int", "int32", "int32_t"],
    "uint32": ["uint", "unsigned int", "uint32", "uint32_t"],
    "int64": ["longlong", "long long", "long long int", "signed long long", "signed long long int", "int64", "int64_t"],
    "uint64": ["ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t"],
    "float32": ["float"],
    "float64": ["double"],
}


@pytest.mark.parametrize(("dtype", "name"), [(dtype, name) for dtype, names in TYPES.items() for name in names])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_every_name_of_every_type(path: Path, dtype: str, name: str, endian: str) -> None:
    array = (
        (np.arange(24) * 5 + 1)
        .reshape(2, 3, 4)
        .astype(np.dtype(dtype).newbyteorder("<" if endian == "little" else ">"))
    )
    volume = load(path, {"type": name, "endian": endian}, voxels=raw(array))
    assert volume.data.tolist() == [array.tolist()]
    labels = load_volume(path, labels=True)
    assert labels.data.tolist() == [array.tolist()]
    assert kinds(labels) == [NoteKind.LABELS_ROUNDED] * dtype.startswith("float")


def test_one_byte_has_no_order(path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert load(path, {"type": "uchar", "endian": None}, voxels=raw(array)).data.tolist() == [array.tolist()]
