"""Classic DICOM series: order, affine, gaps, tilt; literal values, and SimpleITK's reader where it is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medattn.volumes import NoteKind, Volume, VolumeError, VolumeWarning, load_volume

pydicom = pytest.importorskip("pydicom")
from tests.volumes.dicom_writing import AXIAL, CORONAL, SAGITTAL, counting, write_grid, write_series  # noqa: E402


def kinds(volume: Volume) -> set[NoteKind]:
    return {note.kind for note in volume.notes}


def by_sitk(folder: Path) -> np.ndarray:
    """RAS+ affine by SimpleITK's series reader, with the files in the order that it finds."""
    sitk = pytest.importorskip("SimpleITK")
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder)))
    image = reader.Execute()
    affine = np.eye(4)
    affine[:3, :3] = np.reshape(image.GetDirection(), (3, 3)) * image.GetSpacing()
    affine[:3, 3] = image.GetOrigin()
    return np.diag([-1.0, -1, 1, 1]) @ affine


def assert_slices(volume: Volume, order: list[int]) -> None:
    """Slice k of ``volume`` is ``counting(order[k])``."""
    expected = np.stack([counting(number).T for number in order], axis=-1)
    np.testing.assert_array_equal(volume.data[0].numpy(), expected)


@pytest.mark.parametrize("modality", ["CT", "MR"])
@pytest.mark.parametrize("tag", [-3, 5, None])
def test_positions_alone_make_the_affine(tmp_path: Path, modality: str, tag: float | None) -> None:
    write_series(tmp_path, [0, 3, 6], Modality=modality, SpacingBetweenSlices=tag, SliceThickness=7, SliceLocation=99)
    if tag == 5:
        with pytest.warns(VolumeWarning, match="SpacingBetweenSlices is 5 mm .* slices are 3 mm apart"):
            volume = load_volume(tmp_path)
        assert kinds(volume) == {NoteKind.FIELDS_DISAGREE}
    else:
        volume = load_volume(tmp_path, strict=True)
        assert volume.notes == ()
    np.testing.assert_array_equal(volume.grid.affine.numpy(), np.diag([-1.0, -1, 3, 1]))
    np.testing.assert_allclose(volume.grid.affine.numpy(), by_sitk(tmp_path), atol=1e-12)
    assert volume.data.dtype == torch.float32
    assert_slices(volume, [0, 1, 2])


def test_slices_are_ordered_by_position_not_by_number_or_name(tmp_path: Path) -> None:
    write_series(tmp_path, [3, 6, 0], each={"InstanceNumber": [3, 1, 2]})
    volume = load_volume(tmp_path)
    assert_slices(volume, [2, 0, 1])
    assert volume.grid.affine[2, 2] == 3
    assert volume.grid.affine[2, 3] == 0
    assert volume.metadata["instance_uids"] == ("1.2.3.4.3", "1.2.3.4.1", "1.2.3.4.2")


def test_a_list_in_any_order_is_sorted(tmp_path: Path) -> None:
    paths = write_series(tmp_path, [70, -445, -187.5])
    volume = load_volume(paths)
    assert_slices(volume, [1, 2, 0])
    assert volume.grid.affine[2].tolist() == [0, 0, 257.5, -445]


# columns of the RAS+ affine for (row direction, column direction, normal), spacing 0.7 along rows and 0.5 along columns
@pytest.mark.parametrize(
    ("orientation", "axis", "expected"),
    [
        (AXIAL, 2, [[-0.7, 0, 0], [0, -0.5, 0], [0, 0, 3]]),
        (SAGITTAL, 0, [[0, 0, 3], [-0.7, 0, 0], [0, -0.5, 0]]),
        (CORONAL, 1, [[-0.7, 0, 0], [0, 0, -3], [0, -0.5, 0]]),
        ((-1, 0, 0, 0, 1, 0), 2, [[0.7, 0, 0], [0, -0.5, 0], [0, 0, -3]]),
        ((1, 0, 0, 0, -1, 0), 2, [[-0.7, 0, 0], [0, 0.5, 0], [0, 0, -3]]),
        ((0, -1, 0, 0, 0, -1), 0, [[0, 0, -3], [0.7, 0, 0], [0, -0.5, 0]]),
        ((0, 1, 0, 1, 0, 0), 2, [[0, -0.5, 0], [-0.7, 0, 0], [0, 0, -3]]),
    ],
)
def test_every_orientation(tmp_path: Path, orientation: Any, axis: int, expected: list[list[float]]) -> None:
    positions = [[3.0 * k if a == axis else 10.0 * (a + 1) for a in range(3)] for k in range(3)]
    write_series(tmp_path, positions, orientation=orientation, spacing=(0.5, 0.7))
    volume = load_volume(tmp_path)
    affine = volume.grid.affine.numpy()
    np.testing.assert_allclose(affine[:3, :3], expected, atol=1e-12)
    order = [0, 1, 2] if np.cross(orientation[:3], orientation[3:])[axis] > 0 else [2, 1, 0]
    assert_slices(volume, order)
    origin = np.array(positions[order[0]]) * [-1, -1, 1]
    np.testing.assert_allclose(affine[:3, 3], origin, atol=1e-12)
    np.testing.assert_allclose(affine, by_sitk(tmp_path), atol=1e-9)


def test_gantry_tilt_shears_the_grid(tmp_path: Path) -> None:
    write_series(tmp_path, [(0, 0, 0), (0, 1, 3), (0, 2, 6)], spacing=(0.5, 0.7), GantryDetectorTilt=0)
    volume = load_volume(tmp_path, strict=True)
    affine = volume.grid.affine.numpy()
    np.testing.assert_allclose(affine[:3, :3], [[-0.7, 0.0, 0.0], [0.0, -0.5, -1.0], [0.0, 0.0, 3.0]], atol=1e-12)
    assert abs(np.linalg.det(affine[:3, :3])) == pytest.approx(1.05)  # .7 x .5 x the perpendicular 3, not x 3.1623
    assert not volume.grid.is_orthogonal
    assert kinds(volume) == {NoteKind.SHEARED}


@pytest.mark.parametrize(("axis", "orientation"), [(0, SAGITTAL), (1, CORONAL), (2, AXIAL)])
@pytest.mark.parametrize("tilted_by", [1, 2])
def test_gantry_tilt_of_any_orientation(tmp_path: Path, axis: int, orientation: Any, tilted_by: int) -> None:
    step = np.zeros(3)
    step[axis], step[(axis + tilted_by) % 3] = 3, 1
    write_series(tmp_path, [k * step for k in range(3)], orientation=orientation)
    affine = load_volume(tmp_path).grid.affine.numpy()
    along = step if np.cross(orientation[:3], orientation[3:])[axis] > 0 else -step
    np.testing.assert_allclose(affine[:3, 2], along * [-1, -1, 1], atol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_missing_slice_is_an_error_that_names_the_gap(tmp_path: Path, axis: int) -> None:
    orientation = [SAGITTAL, CORONAL, AXIAL][axis]
    write_series(tmp_path, [[z if a == axis else 0 for a in range(3)] for z in (0, 3, 9, 12)], orientation=orientation)
    names = r"[12]\.dcm \(instance [23]\)"
    with pytest.raises(VolumeError, match=rf"missing: most are 3 mm .* 6 mm between {names} at -?[39] and {names} at"):
        load_volume(tmp_path)


def test_regrid_fills_a_missing_slice(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 9, 12], each={"RescaleSlope": [1, 2, 4, 1], "RescaleIntercept": [0, 0, 100, 0]})
    with pytest.warns(VolumeWarning, match="1 of 5 slices were interpolated between their neighbours: 2"):
        volume = load_volume(tmp_path, regrid=True)
    assert volume.data.shape == (1, 3, 2, 5)
    np.testing.assert_array_equal(volume.grid.affine.numpy(), np.diag([-1.0, -1, 3, 1]))
    below, above = 2 * counting(1).T, 4 * counting(2).T + 100
    slices = [counting(0).T, below, (below + above) / 2, above, counting(3).T]
    np.testing.assert_array_equal(volume.data[0].numpy(), np.stack(slices, axis=-1).astype(np.float32))
    (note,) = volume.notes
    assert note.kind is NoteKind.SLICES_INTERPOLATED
    assert note.values == {"slices": [2]}
    assert "instance_uids" not in volume.metadata


def test_regrid_of_several_missing_slices_weighs_by_distance(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 2, 8])
    with pytest.warns(VolumeWarning, match="2 of 5 slices"):
        volume = load_volume(tmp_path, regrid=True)
    assert volume.grid.spacing_mm.tolist() == [1, 1, 2]
    first_voxels = volume.data[0, 0, 0]
    torch.testing.assert_close(first_voxels, torch.tensor([0.0, 10, 10 + 10 / 3, 10 + 20 / 3, 20]))


def test_regrid_of_uneven_slices_is_right_for_a_linear_ramp(tmp_path: Path) -> None:
    heights = [0.0, 2, 5, 7, 10]
    write_series(tmp_path, heights, pixels=[np.full((2, 3), round(100 * z), np.int16) for z in heights])
    with pytest.warns(VolumeWarning, match="were interpolated"):
        volume = load_volume(tmp_path, regrid=True)
    places = volume.grid.affine[2, 3] + volume.grid.affine[2, 2] * torch.arange(volume.data.shape[3])
    torch.testing.assert_close(volume.data[0, 1, 1], (100 * places).float(), atol=1e-3, rtol=0)
    assert volume.grid.affine[2, 3] == 0
    assert places[-1] == 10


def test_regrid_of_labels_takes_the_nearest_slice(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 12])
    with pytest.warns(VolumeWarning, match="2 of 5 slices"):
        volume = load_volume(tmp_path, regrid=True, labels=True)
    assert volume.data.dtype == torch.int64
    assert_slices(volume, [0, 1, 1, 2, 2])


def test_regrid_changes_nothing_where_nothing_is_missing(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6])
    volume = load_volume(tmp_path, regrid=True)
    assert volume.notes == ()
    assert_slices(volume, [0, 1, 2])


def test_regrid_may_not_make_up_nearly_all(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 1, 2, 100])
    with pytest.raises(VolumeError, match="at most 10 times as many slices as there are, but it would take 101"):
        load_volume(tmp_path, regrid=True)


def test_uneven_steps_are_an_error_that_names_the_slices(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6, 7.7, 11])
    with pytest.raises(VolumeError, match=r"evenly spaced .* 1\.7 mm between 2\.dcm .* 3\.3 mm between 3\.dcm"):
        load_volume(tmp_path)


@pytest.mark.parametrize(("off", "noted"), [(0.009, False), (0.011, True), (0.059, True)])
def test_small_unevenness_is_noted(tmp_path: Path, off: float, noted: bool) -> None:
    write_series(tmp_path, [0, 3 + off, 6])
    if noted:
        with pytest.warns(VolumeWarning, match=r"not quite evenly spaced: 1\.dcm"):
            volume = load_volume(tmp_path)
        (note,) = volume.notes
        assert note.kind is NoteKind.UNEVEN_SLICES
        assert note.values["largest_mm"] == pytest.approx(off)
    else:
        volume = load_volume(tmp_path, strict=True)
    assert volume.grid.affine[2, 2] == 3


def test_more_unevenness_than_two_percent_of_a_step_is_an_error(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3.061, 6])
    with pytest.raises(VolumeError, match="evenly spaced"):
        load_volume(tmp_path)


def test_a_slice_beside_the_line_is_an_error(tmp_path: Path) -> None:
    write_series(tmp_path, [(0, 0, 0), (0.5, 0, 3), (0, 0, 6)])
    with pytest.raises(VolumeError, match=r"straight line, but 1\.dcm \(instance 2\) at \(0\.5, 0, 3\) is 0\.5 mm off"):
        load_volume(tmp_path)
    with pytest.raises(VolumeError, match="straight line"):
        load_volume(tmp_path, regrid=True)


@pytest.mark.parametrize(
    ("each", "said"),
    [
        ({"EchoTime": [1, 1, 5, 5]}, "several volumes: EchoTime is 1.0 and 5.0"),
        ({"TemporalPositionIdentifier": [1, 1, 2, 2]}, "several volumes: TemporalPositionIdentifier is 1 and 2"),
        ({"AcquisitionNumber": [1, 1, 2, 2]}, "several volumes: AcquisitionNumber is 1 and 2"),
        ({"TriggerTime": [0, 0, 40, 40]}, "several volumes: TriggerTime is 0.0 and 40.0"),
        ({"DiffusionBValue": [0.0, 0.0, 1000.0, 1000.0]}, "several volumes: DiffusionBValue is 0 and 1000"),
        ({"ImageType": [["ORIGINAL", "PRIMARY", "M"]] * 2 + [["ORIGINAL", "PRIMARY", "P"]] * 2}, "ImageType is"),
        ({}, "are they copies"),
    ],
)
def test_repeated_positions_are_an_error_that_says_what_differs(
    tmp_path: Path, each: dict[str, list[Any]], said: str
) -> None:
    write_series(tmp_path, [0, 3, 0, 3], Modality="MR", each=each)
    with pytest.raises(VolumeError, match=rf"0\.dcm .* and 2\.dcm .* both lie at 0 mm .*\(2 such pairs\); .*{said}"):
        load_volume(tmp_path)
    with pytest.raises(VolumeError, match="both lie at"):
        load_volume(tmp_path, regrid=True)


def test_mixed_orientations_are_an_error(tmp_path: Path) -> None:
    write_series(tmp_path, [(0, 0, 0), (0, 0, 3), (0, 0, 6)], each={"orientation": [AXIAL, AXIAL, SAGITTAL]})
    with pytest.raises(VolumeError, match=r"one ImageOrientationPatient, .* in 0\.dcm .* in 2\.dcm"):
        load_volume(tmp_path)


def test_slightly_mixed_orientations_are_an_error(tmp_path: Path) -> None:
    turned = (np.cos(0.01), np.sin(0.01), 0, -np.sin(0.01), np.cos(0.01), 0)
    write_series(tmp_path, [0, 3, 6], each={"orientation": [AXIAL, turned, AXIAL]})
    with pytest.raises(VolumeError, match=r"one ImageOrientationPatient, .* in 1\.dcm"):
        load_volume(tmp_path)


def test_mixed_spacings_are_an_error(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6], each={"spacing": [(1, 1), (1, 1), (1, 2)]})
    with pytest.raises(VolumeError, match=r"one PixelSpacing, got \(1, 1\) in 0\.dcm .* \(1, 2\) in 2\.dcm"):
        load_volume(tmp_path)


def test_mixed_sizes_are_an_error(tmp_path: Path) -> None:
    sizes = [np.zeros((2, 3), np.int16), np.zeros((3, 2), np.int16)]
    write_series(tmp_path, [0, 3], pixels=sizes)
    with pytest.raises(VolumeError, match=r"same rows, got 2 in 0\.dcm and 3 in 1\.dcm"):
        load_volume(tmp_path)


def test_mixed_frames_of_reference_are_an_error(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3], each={"FrameOfReferenceUID": ["1.2.3", "1.2.4"]})
    with pytest.raises(VolumeError, match=r"one FrameOfReferenceUID, got '1\.2\.3' in 0\.dcm and '1\.2\.4' in 1\.dcm"):
        load_volume(tmp_path)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"ImagePositionPatient": None}, "ImagePositionPatient is missing, so this CT Image Storage has no place"),
        ({"ImageOrientationPatient": None}, "ImageOrientationPatient is missing"),
        ({"PixelSpacing": None}, "PixelSpacing is missing"),
        ({"ImageOrientationPatient": [1, 0, 0, 0.1, 1, 0]}, "two unit vectors at right angles"),
        ({"ImageOrientationPatient": [2, 0, 0, 0, 2, 0]}, "two unit vectors at right angles"),
        ({"ImageOrientationPatient": [1, 0, 0, 0, 1]}, "ImageOrientationPatient must be 6 finite numbers"),
        ({"ImageOrientationPatient": [0, 0, 0, 0, 0, 0]}, "two unit vectors"),
        ({"PixelSpacing": [0, 1]}, r"PixelSpacing of .* must be positive, got \(0, 1\)"),
        ({"PixelSpacing": [1, -1]}, "PixelSpacing of .* must be positive"),
        ({"ImagePositionPatient": [0, 0, 1e9]}, "ImagePositionPatient must be below"),
    ],
)
def test_geometry_that_is_none_is_an_error(tmp_path: Path, attributes: dict[str, Any], said: str) -> None:
    write_series(tmp_path, [0, 3, 6], **attributes)
    with pytest.raises(VolumeError, match=said):
        load_volume(tmp_path)


def test_one_slice_without_a_position_is_an_error_not_left_out(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6], each={"ImagePositionPatient": [["0", "0", "0"], ["0", "0", "3"], None]})
    with pytest.raises(VolumeError, match=r"2\.dcm: ImagePositionPatient is missing"):
        load_volume(tmp_path)


def test_rounded_directions_are_made_orthonormal(tmp_path: Path) -> None:
    angle = np.radians(30)
    exact = np.array([np.cos(angle), np.sin(angle), 0, -np.sin(angle), np.cos(angle), 0])
    write_series(tmp_path, [0, 3], orientation=np.round(exact, 4) + [4e-5, 0, 0, 0, 0, 0])
    axes = load_volume(tmp_path).grid.direction[:, :2].numpy()
    np.testing.assert_allclose(axes.T @ axes, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(axes.T.ravel() * ([-1, -1, 1] * 2), exact, atol=1e-4)


@pytest.mark.parametrize(
    ("tags", "thickness"),
    [
        ({"SliceThickness": 5}, 5),
        ({"SpacingBetweenSlices": 4}, 4),
        ({"SpacingBetweenSlices": -4}, 4),
        ({"SliceThickness": 5, "SpacingBetweenSlices": 4}, 5),
    ],
)
def test_one_slice_has_its_stated_thickness(tmp_path: Path, tags: dict[str, Any], thickness: float) -> None:
    (path,) = write_series(tmp_path, [(1, 2, 3)], **tags)
    volume = load_volume(path)
    assert volume.data.shape == (1, 3, 2, 1)
    assert volume.grid.affine.tolist() == [[-1, 0, 0, -1], [0, -1, 0, -2], [0, 0, thickness, 3], [0, 0, 0, 1]]
    (note,) = volume.notes
    assert note.kind is NoteKind.THICKNESS_ASSUMED
    assert note.values == {"thickness_mm": thickness}
    with pytest.raises(VolumeError, match="strict"):
        load_volume(path, strict=True)


@pytest.mark.parametrize("tags", [{}, {"SliceThickness": 0}, {"SliceThickness": -2, "SpacingBetweenSlices": 0}])
def test_one_slice_without_thickness_is_an_error(tmp_path: Path, tags: dict[str, Any]) -> None:
    (path,) = write_series(tmp_path, [0], **tags)
    with pytest.raises(VolumeError, match="extent must be given by a positive SliceThickness or SpacingBetweenSlices"):
        load_volume(path)


def test_metadata_is_modality_description_and_uids(tmp_path: Path) -> None:
    description = "Sch\u00e4del"
    write_series(tmp_path, [0, 3], SeriesDescription=description, SpecificCharacterSet="ISO_IR 100", StudyID="7")
    assert load_volume(tmp_path).metadata == {
        "modality": "CT",
        "series_description": description,
        "series_uid": "1.2.3.1",
        "study_uid": "1.2.3.2",
        "frame_of_reference_uid": "1.2.3.3",
        "sop_class_uid": "1.2.840.10008.5.1.4.1.1.2",
        "instance_uids": ("1.2.3.4.1", "1.2.3.4.2"),
    }


def test_the_sop_class_may_be_in_the_file_meta_group_only(tmp_path: Path) -> None:
    for path in write_series(tmp_path, [0, 3]):
        dataset = pydicom.dcmread(path)
        del dataset.SOPClassUID
        dataset.save_as(path)
    assert load_volume(tmp_path).metadata["sop_class_uid"] == "1.2.840.10008.5.1.4.1.1.2"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    angles=st.tuples(*[st.floats(-3, 3)] * 3),
    spacing=st.tuples(*[st.floats(0.1, 10)] * 3),
    shear=st.tuples(*[st.floats(-0.7, 0.7)] * 2),
    origin=st.tuples(*[st.floats(-500, 500)] * 3),
    shuffle=st.permutations(range(4)),
)
def test_any_oblique_or_tilted_series_comes_back(
    tmp_path_factory: pytest.TempPathFactory, angles: Any, spacing: Any, shear: Any, origin: Any, shuffle: Any
) -> None:
    rotation = np.eye(3)
    for axis, angle in enumerate(angles):
        turn = np.eye(3)
        one, two = [a for a in range(3) if a != axis]
        turn[[one, two, one, two], [one, two, two, one]] = [np.cos(angle), np.cos(angle), -np.sin(angle), np.sin(angle)]
        rotation = rotation @ turn
    affine = np.eye(4)
    affine[:3, :3] = rotation * spacing
    affine[:3, 2] += spacing[2] * (rotation[:, :2] @ shear)
    affine[:3, 3] = origin
    array = np.random.default_rng(0).integers(0, 99, (5, 3, 4)).astype(np.int16)
    folder = tmp_path_factory.mktemp("series")
    paths = write_grid(folder, array, affine)
    volume = load_volume([paths[n] for n in shuffle])
    np.testing.assert_allclose(volume.grid.affine.numpy(), affine, atol=1e-6)
    np.testing.assert_array_equal(volume.data[0].numpy(), array)
