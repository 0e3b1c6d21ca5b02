"""Multi-frame DICOM images: enhanced CT and MR, whose frames have functional groups of their own or share them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medattn.volumes import NoteKind, VolumeError, load_volume

pydicom = pytest.importorskip("pydicom")
from tests.volumes.dicom_writing import (  # noqa: E402
    AXIAL,
    CORONAL,
    NATIVE,
    SAGITTAL,
    counting,
    item,
    plane,
    write_enhanced,
    write_slice,
)

DIMENSIONS = {"StackID": 0x00209056, "InStackPositionNumber": 0x00209057, "TemporalPositionIndex": 0x00209128}


def expected(order: list[int]) -> np.ndarray:
    return np.stack([counting(number).T for number in order], axis=-1).astype(np.float32)


def content(*indices: int) -> dict[str, Any]:
    return {"FrameContentSequence": item(DimensionIndexValues=list(indices))}


def dimensions(*keywords: str) -> list[Any]:
    return [item(DimensionIndexPointer=DIMENSIONS[keyword]) for keyword in keywords]


@pytest.mark.parametrize("modality", ["CT", "MR"])
@pytest.mark.parametrize("syntax", NATIVE)
def test_frames_are_sorted_by_position(tmp_path: Path, modality: str, syntax: str) -> None:
    path = write_enhanced(tmp_path / "e.dcm", [3, 6, 0], spacing=(0.5, 0.7), Modality=modality, syntax=syntax)
    volume = load_volume(path, strict=True)
    np.testing.assert_array_equal(volume.data[0].numpy(), expected([2, 0, 1]))
    np.testing.assert_array_equal(volume.grid.affine.numpy(), np.diag([-0.7, -0.5, 3, 1]))
    assert volume.metadata["instance_uids"] == ("1.2.3.4.1",)
    assert volume.metadata["modality"] == modality


@pytest.mark.parametrize(("axis", "orientation"), [(0, SAGITTAL), (1, CORONAL), (2, AXIAL)])
def test_orientations_and_tilt(tmp_path: Path, axis: int, orientation: Any) -> None:
    step = np.eye(3)[axis] * 3 + np.eye(3)[(axis + 1) % 3]
    path = write_enhanced(tmp_path / "e.dcm", [k * step for k in range(3)], orientation=orientation)
    volume = load_volume(path)
    along = step if np.cross(orientation[:3], orientation[3:])[axis] > 0 else -step
    np.testing.assert_allclose(volume.grid.affine[:3, 2].numpy(), along * [-1, -1, 1], atol=1e-12)
    assert {note.kind for note in volume.notes} == {NoteKind.SHEARED}


def test_a_file_without_a_suffix_is_known_by_its_mark(tmp_path: Path) -> None:
    path = write_enhanced(tmp_path / "IM0001", [0, 3])
    np.testing.assert_array_equal(load_volume(path).data[0].numpy(), expected([0, 1]))


def test_groups_may_be_of_each_frame_or_shared(tmp_path: Path) -> None:
    own = {
        "PlaneOrientationSequence": item(ImageOrientationPatient=list(AXIAL)),
        "PixelMeasuresSequence": item(PixelSpacing=[2, 4]),
    }
    none = dict.fromkeys(own)
    path = write_enhanced(tmp_path / "e.dcm", [0, 3], per_frame=[own, own], shared=none)
    np.testing.assert_array_equal(load_volume(path).grid.affine.numpy(), np.diag([-4.0, -2, 3, 1]))


def test_the_frame_of_one_wins_over_what_is_shared(tmp_path: Path) -> None:
    shared = {"PixelValueTransformationSequence": item(RescaleSlope=2, RescaleIntercept=1)}
    own = {"PixelValueTransformationSequence": item(RescaleSlope=3, RescaleIntercept=0)}
    path = write_enhanced(tmp_path / "e.dcm", [3, 0], per_frame=[{}, own], shared=shared)
    volume = load_volume(path)
    np.testing.assert_array_equal(volume.data[0, :, :, 0].numpy(), 3 * counting(1).T)
    np.testing.assert_array_equal(volume.data[0, :, :, 1].numpy(), 2 * counting(0).T + 1)


def test_one_frame_has_its_stated_thickness(tmp_path: Path) -> None:
    measures = item(PixelSpacing=[1, 1], SliceThickness=4)
    path = write_enhanced(tmp_path / "e.dcm", [7], shared={"PixelMeasuresSequence": measures})
    volume = load_volume(path)
    assert volume.grid.affine[2].tolist() == [0, 0, 4, 7]
    assert [note.kind for note in volume.notes] == [NoteKind.THICKNESS_ASSUMED]


def test_missing_frames_are_named(tmp_path: Path) -> None:
    path = write_enhanced(tmp_path / "e.dcm", [0, 3, 9, 12])
    with pytest.raises(VolumeError, match=r"6 mm between frame 2 of e\.dcm at 3 and frame 3 of e\.dcm at 9 mm"):
        load_volume(path)
    with pytest.warns(UserWarning, match="1 of 5 slices were interpolated"):
        assert load_volume(path, regrid=True).data.shape == (1, 3, 2, 5)


def test_points_in_time_are_an_error_that_names_the_dimension(tmp_path: Path) -> None:
    indices = dimensions("StackID", "InStackPositionNumber", "TemporalPositionIndex")
    groups = [content(1, 1, 1), content(1, 2, 1), content(1, 1, 2), content(1, 2, 2)]
    path = write_enhanced(tmp_path / "e.dcm", [0, 3, 0, 3], per_frame=groups, DimensionIndexSequence=indices)
    said = r"frame 1 of e\.dcm and frame 3 of e\.dcm both lie at 0 mm .* TemporalPositionIndex is no\. 1 and no\. 2$"
    with pytest.raises(VolumeError, match=said):
        load_volume(path)


def test_stacks_of_different_orientation_are_an_error(tmp_path: Path) -> None:
    own = [{"PlaneOrientationSequence": item(ImageOrientationPatient=list(o))} for o in (AXIAL, AXIAL, SAGITTAL)]
    path = write_enhanced(
        tmp_path / "e.dcm", [0, 3, 6], per_frame=own, shared={"PlaneOrientationSequence": None}, Modality="MR"
    )
    with pytest.raises(VolumeError, match=r"one ImageOrientationPatient, .* frame 1 of e\.dcm .* frame 3 of e\.dcm"):
        load_volume(path)


def test_several_files_may_make_one_volume(tmp_path: Path) -> None:
    write_enhanced(tmp_path / "a.dcm", [6, 9], pixels=np.stack([counting(2), counting(3)]))
    write_enhanced(tmp_path / "b.dcm", [0, 3], instance=2)
    volume = load_volume(tmp_path)
    np.testing.assert_array_equal(volume.data[0].numpy(), expected([0, 1, 2, 3]))
    assert volume.metadata["instance_uids"] == ("1.2.3.4.2", "1.2.3.4.1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"NumberOfFrames": 2}, "PixelData must hold 24 bytes"),
        ({"PerFrameFunctionalGroupsSequence": []}, "its 3 frames have no positions"),
        ({"PerFrameFunctionalGroupsSequence": [item()] * 2}, "must have NumberOfFrames, 3, items, got 2"),
        ({"PerFrameFunctionalGroupsSequence": [item()] * 3}, "ImagePositionPatient is missing, so this Enhanced CT"),
        ({"SharedFunctionalGroupsSequence": []}, "ImageOrientationPatient is missing"),
        ({"shared": {"PixelMeasuresSequence": None}}, "PixelSpacing is missing"),
        ({"shared": {"PixelMeasuresSequence": item(PixelSpacing=[1])}}, "PixelSpacing must be 2 finite numbers"),
        ({"per_frame": [{"PlanePositionSequence": None}] * 3}, "ImagePositionPatient is missing"),
    ],
)
def test_frames_without_a_place_are_an_error(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    path = write_enhanced(tmp_path / "e.dcm", [0, 3, 6], **options)
    with pytest.raises(VolumeError, match=rf"e\.dcm: e\.dcm: .*{said}"):
        load_volume(path)


def test_a_mosaic_is_an_error(tmp_path: Path) -> None:
    path = write_slice(tmp_path / "m.dcm", counting(0), (0, 0, 0), ImageType=["ORIGINAL", "PRIMARY", "M", "MOSAIC"])
    with pytest.raises(VolumeError, match="slices of a mosaic image lie side by side"):
        load_volume(path)


def test_a_parametric_map_has_real_world_values(tmp_path: Path) -> None:
    shared = {"RealWorldValueMappingSequence": item(RealWorldValueSlope=0.5, RealWorldValueIntercept=-1.0)}
    path = write_enhanced(
        tmp_path / "p.dcm", [0, 3], shared=shared, SOPClassUID="1.2.840.10008.5.1.4.1.1.30", Modality="MR"
    )
    np.testing.assert_array_equal(load_volume(path).data[0].numpy(), expected([0, 1]) / 2 - 1)


def test_a_plane_as_a_classic_slice_has_it(tmp_path: Path) -> None:
    """An enhanced file with one frame and no groups is read by the elements of a classic one."""
    geometry = plane((0, 0, 5), AXIAL, (1, 1))
    path = write_enhanced(
        tmp_path / "e.dcm",
        [0],
        PerFrameFunctionalGroupsSequence=None,
        SharedFunctionalGroupsSequence=None,
        SliceThickness=2,
        **geometry,
    )
    assert load_volume(path).grid.affine[2].tolist() == [0, 0, 2, 5]
