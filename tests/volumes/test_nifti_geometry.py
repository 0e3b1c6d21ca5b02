"""Geometry that a NIfTI header gives, also when it contradicts itself. Values are literal."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from medattn.volumes import NoteKind, VolumeError, VolumeWarning, load_volume

METRE, MM, MICRON, SECOND = 1, 2, 3, 8


def affine(diagonal: Any, origin: Any = (0.0, 0.0, 0.0)) -> Any:
    matrix = np.diag([*diagonal, 1.0])
    matrix[:3, 3] = origin
    return matrix


def oblique(axis: Any, degrees: float, spacing: Any = (1.0, 1.0, 1.0)) -> Any:
    """Turned about ``axis``."""
    from scipy.spatial.transform import Rotation

    unit = np.asarray(axis, float) / np.linalg.norm(axis)
    matrix = affine((1, 1, 1), (-90, 126, -72))
    matrix[:3, :3] = Rotation.from_rotvec(unit * np.radians(degrees)).as_matrix() * spacing
    return matrix


def kinds(volume: Any) -> list[NoteKind]:
    return [note.kind for note in volume.notes]


@pytest.fixture
def quiet() -> Any:
    """Turns every warning into an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("codes", [(1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(
    ("units", "diagonal", "origin"),
    [
        (METRE, (0.001, 0.002, 0.003), (0.01, 0.02, 0.03)),
        (METRE | SECOND, (0.001, 0.002, 0.003), (0.01, 0.02, 0.03)),
        (MICRON, (1000, 2000, 3000), (1e4, 2e4, 3e4)),
        (MM, (1, 2, 3), (10, 20, 30)),
    ],
)
def test_units_scale_spacing_and_origin(
    write_each: Any, counting: Any, quiet: None, codes: Any, units: int, diagonal: Any, origin: Any
) -> None:
    form = affine(diagonal, origin)
    volume = load_volume(write_each(counting, sform=form, qform=form, codes=codes, units=units))
    assert volume.grid.spacing_mm.tolist() == pytest.approx([1, 2, 3], rel=1e-6)
    assert volume.grid.origin_mm.tolist() == pytest.approx([10, 20, 30], rel=1e-6)
    assert volume.notes == ()


def test_units_scale_the_fallback_spacing(write_each: Any, counting: Any) -> None:
    with pytest.warns(VolumeWarning):
        volume = load_volume(write_each(counting, units=METRE, pixdim={1: 0.001, 2: 0.002, 3: 0.003}))
    assert volume.grid.spacing_mm.tolist() == pytest.approx([1, 2, 3], rel=1e-6)


@pytest.mark.parametrize("units", [0, SECOND])
def test_no_unit_means_mm_and_is_noted_without_a_warning(
    write_each: Any, counting: Any, quiet: None, units: int
) -> None:
    volume = load_volume(write_each(counting, sform=affine((1, 2, 3)), codes=(1, 0), units=units))
    assert volume.grid.spacing_mm.tolist() == [1, 2, 3]
    assert kinds(volume) == [NoteKind.UNITS_ASSUMED]
    assert not volume.notes[0].is_warning


@pytest.mark.parametrize("units", [4, 5, 6, 7])
def test_an_unknown_unit_is_an_error(write_each: Any, counting: Any, units: int) -> None:
    path = write_each(counting, sform=affine((1, 2, 3)), codes=(1, 0), units=units)
    with pytest.raises(VolumeError, match=rf"xyzt_units .* got {units}"):
        load_volume(path)


@pytest.mark.parametrize("codes", [(2, 1), (4, 1), (1, 4)])
def test_when_the_forms_disagree_the_sform_wins_and_both_are_shown(
    write_each: Any, counting: Any, codes: tuple[int, int]
) -> None:
    forms = {"sform": affine((1, 1, 1), (5, 5, 5)), "qform": affine((-1, 1, 1), (9, 9, 9))}
    path = write_each(counting, **forms, codes=codes)
    with pytest.warns(VolumeWarning, match=r"sform .* qform") as caught:
        volume = load_volume(path)
    assert volume.grid.affine.tolist() == forms["sform"].tolist()
    assert len(caught) == 1
    assert str(forms["sform"].tolist()) in str(caught[0].message)
    assert str(forms["qform"].tolist()) in str(caught[0].message)
    assert caught[0].filename == __file__
    assert kinds(volume) == [NoteKind.FORMS_DISAGREE]
    assert volume.notes[0].is_warning


@pytest.mark.parametrize(("codes", "origin", "direction"), [((1, 0), 5.0, 1.0), ((0, 1), 9.0, -1.0)])
def test_a_form_with_code_0_is_neither_used_nor_compared(
    write_each: Any, counting: Any, quiet: None, codes: Any, origin: float, direction: float
) -> None:
    forms = {"sform": affine((1, 1, 1), (5, 5, 5)), "qform": affine((-1, 1, 1), (9, 9, 9))}
    volume = load_volume(write_each(counting, **forms, codes=codes))
    assert volume.grid.affine.tolist() == affine((direction, 1, 1), (origin,) * 3).tolist()
    assert volume.notes == ()


def test_forms_that_differ_by_rounding_agree(write_nifti: Any, counting: Any, quiet: None) -> None:
    near = affine((1, 1, 1), (5.0005, 5, 5))
    volume = load_volume(write_nifti(counting, sform=affine((1, 1, 1), (5, 5, 5)), qform=near, codes=(1, 1)))
    assert volume.notes == ()


@pytest.mark.parametrize("angle", [180.0, 179.999, 179.99, 179.9])
@pytest.mark.parametrize("turned", [(1.0, 0.0, 0.0), (0.1, 0.7, -0.7), (0.02, 0.3, 0.9)])
def test_what_a_quaternion_loses_near_half_a_turn_is_no_disagreement(
    write_nifti: Any, quiet: None, turned: Any, angle: float
) -> None:
    form = oblique(turned, angle, (0.9, 0.9, 1.2))
    volume = load_volume(write_nifti(np.zeros((256, 256, 2), np.uint8), sform=form, qform=form, codes=(1, 1)))
    assert np.allclose(volume.grid.affine, form, atol=1e-5)
    assert volume.notes == ()


@pytest.mark.parametrize("angle", [0.05, 180.15, 90.05])
def test_forms_that_differ_by_a_small_turn_disagree(write_nifti: Any, angle: float) -> None:
    forms = {"sform": oblique((0, 0, 1), round(angle / 90) * 90.0), "qform": oblique((0, 0, 1), angle)}
    with pytest.warns(VolumeWarning, match="differ"):
        load_volume(write_nifti(np.zeros((256, 256, 2), np.uint8), **forms, codes=(1, 1)))


def test_forms_that_differ_at_the_far_corner_only_disagree(write_nifti: Any) -> None:
    path = write_nifti(
        np.zeros((101, 2, 2), np.uint8), sform=affine((1, 1, 1)), qform=affine((1.0001, 1, 1)), codes=(1, 1)
    )
    with pytest.warns(VolumeWarning, match="differ"):
        load_volume(path)


def test_without_a_form_only_the_spacing_is_known(write_each: Any, counting: Any) -> None:
    path = write_each(counting, pixdim={1: 1.0, 2: 2.0, 3: 3.0})
    with pytest.warns(VolumeWarning, match=r".*codes are both 0"):
        volume = load_volume(path)
    assert volume.grid.affine.tolist() == affine((1, 2, 3)).tolist()
    assert kinds(volume) == [NoteKind.ORIENTATION_UNKNOWN]
    assert not volume.orientation_known
    with pytest.raises(ValueError, match=r"x\..*orientation is unknown"):
        volume.reoriented("LPS")


@pytest.mark.parametrize(
    ("cell", "spacing", "moved"),
    [
        ((1, 2), (1, 1, 1.0440307), ((0, 0, 1), (0, 0.3, 1))),
        ((0, 2), (1, 1, 1.0440307), ((0, 0, 1), (0.3, 0, 1))),
        ((2, 0), (1.0440307, 1, 1), ((1, 0, 0), (1, 0, 0.3))),
    ],
)
def test_a_sheared_affine_is_kept_and_noted(
    write_each: Any, counting: Any, quiet: None, cell: Any, spacing: Any, moved: Any
) -> None:
    sheared = np.eye(4)
    sheared[cell] = 0.3
    volume = load_volume(write_each(counting, sform=sheared, codes=(1, 0)))
    assert volume.grid.spacing_mm.tolist() == pytest.approx(spacing, abs=1e-6)
    assert volume.grid.to_world(moved[0]).tolist() == pytest.approx(moved[1], abs=1e-6)
    assert not volume.grid.is_orthogonal
    assert kinds(volume) == [NoteKind.SHEARED]
    assert not volume.notes[0].is_warning


def test_a_sheared_sform_is_not_replaced_by_the_qform(write_each: Any, counting: Any) -> None:
    sheared = np.eye(4)
    sheared[1, 2] = 0.3
    with pytest.warns(VolumeWarning, match="differ"):
        volume = load_volume(write_each(counting, sform=sheared, qform=np.eye(4), codes=(1, 1)))
    assert volume.grid.to_world((0, 0, 1)).tolist() == pytest.approx((0, 0.3, 1), abs=1e-6)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("codes", [(0, 1), (0, 0)])
def test_a_pixdim_that_is_needed_must_be_positive(
    write_each: Any, counting: Any, codes: Any, number: int, value: float
) -> None:
    path = write_each(counting, qform=affine((1, 2, 3)), codes=codes, pixdim={number: value})
    with pytest.raises(VolumeError, match=rf"pixdim\[{number}\], the spacing of axis {'ijk'[number - 1]}"):
        load_volume(path)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_pixdim_that_is_not_needed_does_not_matter(write_each: Any, counting: Any, quiet: None, value: float) -> None:
    volume = load_volume(write_each(counting, sform=affine((1, 2, 3)), codes=(2, 0), pixdim={3: value}))
    assert volume.grid.spacing_mm.tolist() == [1, 2, 3]


def test_a_second_form_that_cannot_be_read_is_warned_about(write_nifti: Any, counting: Any) -> None:
    path = write_nifti(counting, sform=affine((1, 2, 3)), qform=affine((1, 2, 3)), codes=(1, 1), pixdim={3: 0.0})
    with pytest.warns(VolumeWarning, match=r"qform .* cannot be read: pixdim\[3\]"):
        volume = load_volume(path)
    assert volume.grid.spacing_mm.tolist() == [1, 2, 3]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_singular_or_non_finite_sform_is_an_error_that_names_the_row(
    write_each: Any, counting: Any, axis: int
) -> None:
    row = f"srow_{'xyz'[axis]}"
    for bad in ([0, 0, 0, 0], [0, 0, 0, 7], [float("nan"), 0, 0, 0], [1, 1, 1, float("inf")]):
        path = write_each(counting, sform=np.eye(4), codes=(1, 0), fields={row: bad})
        with pytest.raises(VolumeError, match=rf"sform .*{row}"):
            load_volume(path)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_sform_with_an_empty_column_is_an_error_that_names_the_axis(
    write_nifti: Any, counting: Any, axis: int
) -> None:
    matrix = np.array([[1.0, 2, 3, 0], [2, 1, 5, 0], [3, 1, 1, 0], [0, 0, 0, 1]])
    matrix[:3, axis] = 0
    with pytest.raises(VolumeError, match=rf"x\.nii: affine is singular: its column for axis {'ijk'[axis]}"):
        load_volume(write_nifti(counting, sform=matrix, codes=(1, 0)))


def test_a_sform_with_dependent_columns_is_an_error(write_nifti: Any, counting: Any) -> None:
    matrix = np.array([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    with pytest.raises(VolumeError, match=r"x\.nii: affine is singular"):
        load_volume(write_nifti(counting, sform=matrix, codes=(1, 0)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"qoffset_y": float("nan")}, "qoffset_y must be finite"),
        ({"quatern_d": float("inf")}, "quatern_d must be finite"),
        ({"quatern_b": 0.8, "quatern_c": 0.8}, "quaternion .* length of at most 1"),
    ],
)
def test_a_bad_qform_field_is_an_error_that_names_it(
    write_nifti: Any, counting: Any, fields: dict[str, float], message: str
) -> None:
    path = write_nifti(counting, qform=np.eye(4), codes=(0, 1), fields=fields)
    with pytest.raises(VolumeError, match=rf"x\.nii: .*{message}"):
        load_volume(path)


def test_permuted_axes_take_spacing_from_columns(write_each: Any, quiet: None) -> None:
    matrix = np.array([[0.0, 0, 3, 0], [1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 1]])
    volume = load_volume(write_each(np.zeros((4, 5, 6), np.uint8), sform=matrix, codes=(1, 0)))
    assert volume.grid.spacing_mm.tolist() == [1, 2, 3]
    assert volume.grid.axcodes == ("A", "S", "R")
    canonical = volume.reoriented("RAS")
    assert canonical.data.shape == (1, 6, 4, 5)
    assert canonical.grid.spacing_mm.tolist() == [3, 1, 2]


@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, 1, 1), (1, -1, 1), (1, 1, -1), (-1, -1, -1)])
@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_every_permutation_and_flip_has_its_column_spacing_and_codes(
    write_nifti: Any, counting: Any, quiet: None, axes: Any, signs: Any
) -> None:
    matrix = np.eye(4)
    matrix[:3, :3] = 0
    for axis, (world, sign, spacing) in enumerate(zip(axes, signs, (1, 2, 3), strict=True)):
        matrix[world, axis] = sign * spacing
    forms = {"sform": matrix, "qform": matrix, "codes": (1, 1)}
    volume = load_volume(write_nifti(counting, **forms))
    assert volume.grid.affine.tolist() == pytest.approx(matrix, abs=1e-6)
    assert volume.grid.spacing_mm.tolist() == [1, 2, 3]
    letters = (("L", "R"), ("P", "A"), ("I", "S"))
    assert volume.grid.axcodes == tuple(letters[w][(s + 1) // 2] for w, s in zip(axes, signs, strict=True))
    assert volume.notes == ()


def test_qfac_minus_1_reverses_the_third_axis_and_0_counts_as_1(write_each: Any, counting: Any) -> None:
    thirds = []
    for qfac in (1.0, -1.0, 0.0):
        path = write_each(counting, qform=affine((1, 2, 3)), codes=(0, 1), pixdim={0: qfac})
        thirds.append(load_volume(path).grid.affine[:3, 2].tolist())
    assert thirds == [[0, 0, 3], [0, 0, -3], [0, 0, 3]]


@pytest.mark.parametrize("qfac", [-0.5, -2.0, float("nan"), -float("inf")])
def test_a_qfac_that_readers_take_either_way_is_an_error_where_it_is_used(
    write_nifti: Any, counting: Any, quiet: None, qfac: float
) -> None:
    """The library of the format's authors goes by the sign, nibabel takes all but -1 for 1."""
    forms = {"qform": affine((1, 2, 3)), "sform": affine((1, 2, 3)), "pixdim": {0: qfac}}
    with pytest.raises(VolumeError, match=r"x\.nii: pixdim\[0\], qfac, must be 1 or -1"):
        load_volume(write_nifti(counting, codes=(0, 1), **forms))
    assert load_volume(write_nifti(counting, codes=(1, 0), **forms)).grid.affine[:3, 2].tolist() == [0, 0, 3]


@pytest.mark.parametrize("qfac", [0.25, 4.0])
def test_a_positive_qfac_counts_as_1(write_nifti: Any, counting: Any, qfac: float) -> None:
    path = write_nifti(counting, qform=affine((1, 2, 3)), codes=(0, 1), pixdim={0: qfac})
    assert load_volume(path).grid.affine[:3, 2].tolist() == [0, 0, 3]


@pytest.mark.parametrize("seed", range(5))
def test_an_oblique_qform_is_the_rotation_that_was_written(write_each: Any, counting: Any, seed: int) -> None:
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(3, 3)))
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation * [0.5, 1.0, 4.0], generator.uniform(-200, 200, 3)
    volume = load_volume(write_each(counting, qform=matrix, codes=(0, 1)))
    assert torch.allclose(volume.grid.affine, torch.from_numpy(matrix), atol=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_half_a_turn_survives_rounding_of_the_quaternion(write_nifti: Any, counting: Any, axis: int) -> None:
    diagonal = [-1.0, -1.0, -1.0]
    diagonal[axis] = 1.0
    volume = load_volume(
        write_nifti(counting, codes=(0, 1), fields={f"quatern_{'bcd'[axis]}": 1.0005}, pixdim={0: 1, 1: 1, 2: 1, 3: 1})
    )
    assert torch.allclose(volume.grid.affine, torch.diag(torch.tensor([*diagonal, 1.0], dtype=torch.float64)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"codes": (1, 0), "units": 0}, r"mm is assumed \(units_assumed\)"),
        ({"codes": (0, 0)}, r"codes are both 0.* \(orientation_unknown\)"),
        ({"codes": (1, 1), "qform": affine((1, 1, 1), (9, 9, 9))}, r"differ.* \(forms_disagree\)"),
        ({"codes": (1, 0), "fields": {"bitpix": 8}}, r"bitpix says 8 .* 16.* \(fields_disagree\)"),
    ],
)
def test_strict_reading_refuses_each_assumption(write_each: Any, counting: Any, options: Any, words: str) -> None:
    path = write_each(counting, sform=affine((1, 1, 1)), **options)
    with pytest.raises(VolumeError, match=rf"{path.name}: strict reading allows no assumption, but: .*{words}"):
        load_volume(path, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert load_volume(path).data.sum() == 276


@pytest.mark.parametrize("codes", [(1, 0), (0, 1), (1, 1), (2, 1)])
def test_strict_reading_accepts_a_file_that_says_everything_once(
    write_each: Any, counting: Any, quiet: None, codes: Any
) -> None:
    form = affine((1, 2, 3), (10, 20, 30))
    for labels in (False, True):
        volume = load_volume(write_each(counting, sform=form, qform=form, codes=codes), labels=labels, strict=True)
        assert volume.notes == ()
        assert volume.grid.affine.tolist() == form.tolist()
