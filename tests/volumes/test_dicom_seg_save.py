"""Label maps saved as DICOM segmentations come back the same, also through other readers, and hold no patient data."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.volumes import (
    Note,
    NoteKind,
    Volume,
    VolumeError,
    check_same_grid,
    load_volume,
    save_dicom_seg,
    save_volume,
)
from medattn.volumes.datasets.manifest import find_dataset

pydicom = pytest.importorskip("pydicom")
from tests.volumes.dicom_writing import write_grid  # noqa: E402

TYPES = ("binary", "labelmap")
SHAPE = (3, 4, 5)
AFFINE = [[-0.5, 0, 0, 10], [0, -0.7, 0, -20], [0, 0, 3, 30], [0, 0, 0, 1]]


def grid_of(seed: int, *, shear: float = 0.0, reflect: bool = False) -> VoxelGrid:
    """An oblique grid with spacing from 0.1 to 10 mm, k sheared, right-handed unless ``reflect``."""
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
    if (torch.linalg.det(rotation) < 0) != reflect:
        rotation[:, 0] *= -1
    affine = torch.eye(4, dtype=torch.float64)
    affine[:3, :3] = rotation * 10 ** (torch.rand(3, generator=generator, dtype=torch.float64) * 2 - 1)
    affine[:3, 2] += shear * affine[:3, 1]
    affine[:3, 3] = torch.rand(3, generator=generator, dtype=torch.float64) * 1000 - 500
    return VoxelGrid(SHAPE, affine)


def sparse_labels(*labels: int) -> Tensor:
    """Each label in one voxel of slice 2; the slices at both ends, and two in between, are empty."""
    data = torch.zeros(1, *SHAPE, dtype=torch.int64)
    for number, label in enumerate(labels):
        data[0, number % 3, number // 3, 2] = label
    return data


def small(*labels: int, **options: Any) -> Volume:
    return Volume(sparse_labels(*labels), VoxelGrid(SHAPE, torch.tensor(AFFINE, dtype=torch.float64)), **options)


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# -- what comes back -------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32), shear=st.sampled_from([0.0, 0.3, -2.0]), kind=st.sampled_from(TYPES))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_labels_come_back_on_their_grid(tmp_path: Path, seed: int, shear: float, kind: Any) -> None:
    labels = torch.tensor(np.random.default_rng(seed).choice([0, 0, 0, 1, 2, 7], size=(1, *SHAPE)))
    volume = Volume(labels, grid_of(seed, shear=shear))
    save_dicom_seg(tmp_path / "x.dcm", volume, segmentation_type=kind)
    back = load_volume(tmp_path / "x.dcm", labels=True)
    assert torch.equal(back.data, volume.data)
    assert torch.allclose(back.grid.affine, volume.grid.affine, atol=1e-4)
    assert [note.kind for note in back.notes] == ([NoteKind.SHEARED] if shear else [])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("axcodes", ["LPS", "RAS", "RSA", "IRA", "SLP", "PIR"])
def test_every_orientation_comes_back_as_the_same_world(tmp_path: Path, axcodes: str, kind: Any) -> None:
    volume = small(7, 1, 7).reoriented(axcodes)
    save_dicom_seg(tmp_path / "x.dcm", volume, segmentation_type=kind)
    back = load_volume(tmp_path / "x.dcm", labels=True)
    assert float(torch.linalg.det(back.grid.affine[:3, :3])) > 0
    same = back.reoriented(axcodes)
    check_same_grid(volume, same, atol_mm=1e-4)
    assert torch.equal(same.data, volume.data)


@pytest.mark.parametrize("seed", range(5))
def test_a_left_handed_grid_comes_back_flipped_along_k(tmp_path: Path, seed: int) -> None:
    volume = Volume(sparse_labels(1, 2), grid_of(seed, reflect=True)).crop((0, 0, 1), (3, 4, 5))
    save_volume(tmp_path / "x.dcm", volume)
    back = load_volume(tmp_path / "x.dcm", labels=True)
    check_same_grid(volume.flip(2), back, atol_mm=1e-4)
    assert torch.equal(back.data, volume.flip(2).data)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("labels", [(7,), (1,), (2, 300), (1, 2, 3, 4, 5), ()])
def test_sparse_labels_and_empty_slices_at_both_ends_come_back(tmp_path: Path, labels: Any, kind: Any) -> None:
    volume = small(*labels)
    save_dicom_seg(tmp_path / "x.dcm", volume, segmentation_type=kind)
    back = load_volume(tmp_path / "x.dcm", labels=True)
    assert torch.equal(back.data, volume.data)
    check_same_grid(volume, back, atol_mm=1e-6)


def test_a_label_map_holds_numbers_up_to_65535(tmp_path: Path) -> None:
    save_dicom_seg(tmp_path / "x.dcm", small(65535, 2, 40000), segmentation_type="labelmap")
    back = load_volume(tmp_path / "x.dcm", labels=True)
    assert back.data.unique().tolist() == [0, 2, 40000, 65535]
    assert back.metadata["segment_labels"] == ("2: Label 2", "40000: Label 40000", "65535: Label 65535")


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16])
def test_every_integer_type_can_be_saved(tmp_path: Path, dtype: torch.dtype) -> None:
    volume = small(1, 1)
    save_volume(tmp_path / "x.dcm", Volume(volume.data.to(dtype), volume.grid))
    assert torch.equal(load_volume(tmp_path / "x.dcm", labels=True).data, volume.data)


@pytest.mark.parametrize("kind", TYPES)
def test_numbers_that_are_long_in_decimals_come_back(tmp_path: Path, kind: Any) -> None:
    just_below_10 = float(np.nextafter(10, 0))
    rows = [[-1 / 3, 0, 0, just_below_10], [0, -2 / 3, 0, -1e-7 / 3], [0, 0, 1e-3 / 3, -1e5 / 3], [0, 0, 0, 1]]
    affine = torch.tensor(rows, dtype=torch.float64)
    volume = Volume(sparse_labels(1, 2), VoxelGrid(SHAPE, affine))
    save_dicom_seg(tmp_path / "x.dcm", volume, segmentation_type=kind)
    check_same_grid(volume, load_volume(tmp_path / "x.dcm", labels=True), atol_mm=1e-7)


@pytest.mark.parametrize(("shape", "kind"), [((3, 3, 4), "binary"), ((2, 4, 9), "binary"), ((1, 1, 3), "labelmap")])
def test_frames_that_do_not_fill_bytes_come_back(tmp_path: Path, shape: Any, kind: Any) -> None:
    labels = torch.tensor(np.random.default_rng(0).integers(0, 3, size=(1, *shape)))
    labels[..., 1] = 0
    volume = Volume(labels, VoxelGrid(shape, torch.tensor(AFFINE, dtype=torch.float64)))
    save_dicom_seg(tmp_path / "x.dcm", volume, segmentation_type=kind)
    assert torch.equal(load_volume(tmp_path / "x.dcm", labels=True).data, labels)


@pytest.mark.parametrize("kind", TYPES)
def test_one_slice_keeps_its_thickness(tmp_path: Path, kind: Any) -> None:
    volume = small(1, 3).crop((0, 0, 2), (3, 4, 3))
    save_dicom_seg(tmp_path / "x.dcm", volume, segmentation_type=kind)
    check_same_grid(volume, load_volume(tmp_path / "x.dcm", labels=True), atol_mm=1e-6)


def test_names_of_segments_are_written_and_kept(tmp_path: Path) -> None:
    save_dicom_seg(tmp_path / "x.dcm", small(1, 3), segment_names={1: "Leber, größer", 3: "Niere: links", 9: "none"})
    named = load_volume(tmp_path / "x.dcm", labels=True)
    assert named.metadata["segment_labels"] == ("1: Leber, größer", "2: Label 2", "3: Niere: links")
    save_volume(tmp_path / "y.dcm", named)
    assert load_volume(tmp_path / "y.dcm", labels=True).metadata["segment_labels"] == named.metadata["segment_labels"]


def test_codes_of_segments_are_kept_with_their_names(tmp_path: Path) -> None:
    metadata = {
        "segment_labels": ("1: liver", "3: "),
        "segment_codes": ("1: SCT 10200004 Liver", "3: SCT 64033007 Kidney"),
    }
    save_volume(tmp_path / "x.dcm", small(1, 2, 3, metadata=metadata))
    described = pydicom.dcmread(tmp_path / "x.dcm").SegmentSequence
    codes = [segment.SegmentedPropertyTypeCodeSequence[0].CodeMeaning for segment in described]
    assert codes == ["Liver", "Tissue", "Tissue"]  # what has no name has no meaning either
    assert [segment.SegmentLabel for segment in described] == ["liver", "Label 2", "Label 3"]
    assert load_volume(tmp_path / "x.dcm", labels=True).metadata["segment_codes"][0] == "1: SCT 10200004 Liver"
    save_dicom_seg(tmp_path / "y.dcm", small(1, metadata=metadata), segment_names={1: "tumour"})
    assert load_volume(tmp_path / "y.dcm", labels=True).metadata["segment_codes"] == ("1: SCT 85756007 Tissue",)


# -- what others read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(3))
def test_highdicom_reads_the_same_labels_in_the_same_places(tmp_path: Path, seed: int, kind: Any) -> None:
    seg = pytest.importorskip("highdicom").seg
    volume = Volume(sparse_labels(1, 2, 4, 1), grid_of(seed))
    save_dicom_seg(tmp_path / "x.dcm", volume, segmentation_type=kind)
    read = seg.segread(tmp_path / "x.dcm").get_volume(combine_segments=True)
    index = np.argwhere(volume.data[0].numpy())
    world = volume.grid.to_world(index).numpy()
    found = np.linalg.solve(read.affine, np.c_[world * [-1, -1, 1], np.ones(len(world))].T)[:3].T
    assert np.allclose(found, found.round(), atol=1e-4)
    assert [read.array[tuple(i)] for i in found.round().astype(int)] == volume.data[0][tuple(index.T)].tolist()
    assert int((read.array > 0).sum()) == len(index)
    assert read.spatial_shape == SHAPE[::-1]


@pytest.mark.parametrize("kind", TYPES)
def test_frames_lie_where_the_voxels_are(tmp_path: Path, kind: Any) -> None:
    save_dicom_seg(tmp_path / "x.dcm", small(1, 2), segmentation_type=kind)
    dataset = pydicom.dcmread(tmp_path / "x.dcm")
    shared = dataset.SharedFunctionalGroupsSequence[0]
    assert shared.PlaneOrientationSequence[0].ImageOrientationPatient == [1, 0, 0, 0, 1, 0]
    assert shared.PixelMeasuresSequence[0].PixelSpacing == [0.7, 0.5]  # between rows, then between columns
    assert shared.PixelMeasuresSequence[0].SpacingBetweenSlices == 3
    frames = dataset.PerFrameFunctionalGroupsSequence
    positions = [list(frame.PlanePositionSequence[0].ImagePositionPatient) for frame in frames]
    planes = [[-10, 20, z] for z in (42, 39, 36, 33, 30)]  # highdicom's order
    assert positions == (planes if kind == "labelmap" else [*planes, planes[2]])
    assert (dataset.Rows, dataset.Columns, dataset.NumberOfFrames) == (4, 3, len(positions))
    indices = [frame.FrameContentSequence[0].DimensionIndexValues for frame in frames]
    assert indices == ([1, 2, 3, 4, 5] if kind == "labelmap" else [*([1, k] for k in range(1, 6)), [2, 3]])


@pytest.mark.parametrize("kind", TYPES)
def test_what_the_standard_requires_is_there(tmp_path: Path, kind: Any) -> None:
    """Attributes of type 1 have a value and those of type 2 exist, by the tables of the standard in highdicom."""
    standard = pytest.importorskip("highdicom._standard_utils")
    save_dicom_seg(tmp_path / "x.dcm", small(1, 2), segmentation_type=kind)
    dataset = pydicom.dcmread(tmp_path / "x.dcm")
    iod = standard.get_sop_class_iod_map()[dataset.SOPClassUID]
    modules = [m["key"] for m in standard.get_iod_module_map()[iod] if m["usage"] == "M"]
    attributes = [a for m in modules for a in standard.get_module_attribute_map()[m]]
    checked = 0
    for attribute in attributes:
        items = [dataset]
        for keyword in attribute["path"]:
            items = [inner for outer in items for inner in outer.get(keyword) or []]
        if attribute["type"] not in ("1", "2") or any(
            p.endswith("FunctionalGroupsSequence") for p in attribute["path"]
        ):
            continue
        for one in items:
            assert attribute["keyword"] in one, attribute
            assert attribute["type"] == "2" or one[attribute["keyword"]].value not in (None, ""), attribute
            checked += 1
    assert checked > 40


def test_two_files_of_one_volume_are_two_instances_in_one_study(tmp_path: Path) -> None:
    volume = small(1, metadata={"study_uid": "1.2.3", "frame_of_reference_uid": "1.2.4", "series_uid": "1.2.5"})
    for name in ("a.dcm", "b.dcm"):
        save_volume(tmp_path / name, volume)
    one, two = (pydicom.dcmread(tmp_path / name) for name in ("a.dcm", "b.dcm"))
    assert one.SOPInstanceUID != two.SOPInstanceUID
    assert one.SeriesInstanceUID not in (two.SeriesInstanceUID, "1.2.5")
    assert (one.StudyInstanceUID, one.FrameOfReferenceUID) == (two.StudyInstanceUID, two.FrameOfReferenceUID)
    assert (one.StudyInstanceUID, one.FrameOfReferenceUID) == ("1.2.3", "1.2.4")
    assert "ReferencedSeriesSequence" not in one


SOURCE = {
    "study_uid": "1.2.3",
    "frame_of_reference_uid": "1.2.4",
    "series_uid": "1.2.5",
    "sop_class_uid": "1.2.840.10008.5.1.4.1.1.2",
    "instance_uids": tuple(f"1.2.6.{k}" for k in range(5)),
}


@pytest.mark.parametrize("kind", TYPES)
def test_each_frame_refers_to_the_slice_it_was_made_from(tmp_path: Path, kind: Any) -> None:
    volume = small(1, 2)
    image = Volume(torch.zeros(1, *SHAPE), volume.grid, metadata=SOURCE)
    save_dicom_seg(tmp_path / "x.dcm", volume, source=image, segmentation_type=kind)
    dataset = pydicom.dcmread(tmp_path / "x.dcm")
    series = dataset.ReferencedSeriesSequence[0]
    assert series.SeriesInstanceUID == "1.2.5"
    assert [i.ReferencedSOPInstanceUID for i in series.ReferencedInstanceSequence] == list(SOURCE["instance_uids"])
    for frame in dataset.PerFrameFunctionalGroupsSequence:
        z = frame.PlanePositionSequence[0].ImagePositionPatient[2]
        image_item = frame.DerivationImageSequence[0].SourceImageSequence[0]
        assert image_item.ReferencedSOPInstanceUID == f"1.2.6.{(z - 30) / 3:.0f}"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("axcodes", ["LPS", "LAS", "RAS", "SPL"])
def test_labels_are_written_slice_for_slice_as_their_series_lies(tmp_path: Path, axcodes: str, kind: Any) -> None:
    labels = small(1, 3)
    paths = write_grid(tmp_path / "series", labels.data[0].numpy().astype(np.int16), labels.grid.affine.numpy())
    image = load_volume(tmp_path / "series")
    turned = Volume(labels.data, image.grid).reoriented(axcodes)
    save_dicom_seg(tmp_path / "x.dcm", Volume(turned.data, turned.grid), source=image, segmentation_type=kind)
    back = load_volume(tmp_path / "x.dcm", labels=True)
    check_same_grid(image, back, atol_mm=1e-6)
    assert torch.equal(back.data, labels.data)
    by_place = {tuple(d.ImagePositionPatient): d.SOPInstanceUID for d in map(pydicom.dcmread, paths)}
    for frame in pydicom.dcmread(tmp_path / "x.dcm").PerFrameFunctionalGroupsSequence:
        position = tuple(frame.PlanePositionSequence[0].ImagePositionPatient)
        referred = frame.DerivationImageSequence[0].SourceImageSequence[0]
        assert referred.ReferencedSOPInstanceUID == by_place[position]
        assert referred.ReferencedSOPClassUID == "1.2.840.10008.5.1.4.1.1.2"


def test_frames_on_another_grid_refer_to_no_slice_but_to_the_series(tmp_path: Path) -> None:
    volume = small(1, 2, metadata=SOURCE).crop((0, 0, 0), (3, 4, 4))
    save_volume(tmp_path / "x.dcm", volume)
    dataset = pydicom.dcmread(tmp_path / "x.dcm")
    assert dataset.ReferencedSeriesSequence[0].SeriesInstanceUID == "1.2.5"
    assert not any(frame.DerivationImageSequence for frame in dataset.PerFrameFunctionalGroupsSequence)


def test_frames_between_the_slices_of_their_series_keep_their_own_step(tmp_path: Path) -> None:
    """highdicom would take slice thickness and step from images of the same orientation and pixel spacing."""
    volume = small(1, 2, metadata=SOURCE)
    thinner = volume.resampled(volume.grid.resampled((0.5, 0.7, 1.5)))
    save_volume(tmp_path / "x.dcm", thinner)
    measures = pydicom.dcmread(tmp_path / "x.dcm").SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
    assert (measures.SpacingBetweenSlices, measures.SliceThickness) == (1.5, 1.5)
    back = load_volume(tmp_path / "x.dcm", labels=True)
    check_same_grid(thinner, back, atol_mm=1e-6)
    assert torch.equal(back.data, thinner.data)


@pytest.mark.parametrize("sop_class", ["1.2.840.10008.5.1.4.1.1.2.1", "1.2.840.10008.5.1.4.1.1.4", "1.2.3.4"])
@pytest.mark.parametrize("images", [1, 5])
def test_every_class_of_image_can_be_referred_to(tmp_path: Path, sop_class: str, images: int) -> None:
    """Enhanced CT (whose frames are not told apart), MR, and a private class."""
    source = {**SOURCE, "sop_class_uid": sop_class, "instance_uids": SOURCE["instance_uids"][:images]}
    save_volume(tmp_path / "x.dcm", small(1, 2, metadata=source))
    dataset = pydicom.dcmread(tmp_path / "x.dcm")
    listed = dataset.ReferencedSeriesSequence[0].ReferencedInstanceSequence
    frames = dataset.PerFrameFunctionalGroupsSequence
    derived = [d.SourceImageSequence[0] for frame in frames for d in frame.DerivationImageSequence]
    assert (len(listed), len(derived)) == (images, 6 if images == 5 else 0)
    assert {i.ReferencedSOPClassUID for i in [*listed, *derived, *dataset.SourceImageSequence]} == {sop_class}


def test_labels_of_a_real_series_that_are_stored_flipped_are_written_as_the_series_lies(tmp_path: Path) -> None:
    folder, path = (find_dataset(name) for name in ("totalsegmentator_dicom", "totalsegmentator_dicom_labels"))
    if not (folder.is_cached and path.is_cached):
        pytest.skip("not in the cache; get both with 'python -m medattn data fetch totalsegmentator_dicom'")
    image, labels = load_volume(folder.path), load_volume(path.path, labels=True)
    assert ("".join(image.grid.axcodes), "".join(labels.grid.axcodes)) == ("LPS", "LAS")
    save_dicom_seg(tmp_path / "x.dcm", labels, source=image)
    back = load_volume(tmp_path / "x.dcm", labels=True)
    check_same_grid(image, back, atol_mm=1e-3)
    check_same_grid(labels, back.reoriented("LAS"), atol_mm=1e-3)
    assert torch.equal(back.reoriented("LAS").data, labels.data)
    assert len(back.data.unique()) == 32
    dataset = pydicom.dcmread(tmp_path / "x.dcm")
    assert image.metadata["frame_of_reference_uid"] == dataset.FrameOfReferenceUID
    assert "ReferencedSeriesSequence" not in dataset  # the series is without UIDs of its own


# -- patient data ----------------------------------------------------------------------------------------------------

PATIENT = {
    "PatientName": "Mustermann^Erika",
    "PatientID": "MRN-4711",
    "PatientBirthDate": "19570812",
    "PatientAddress": "Heidestrasse 17",
    "InstitutionName": "Charite Mitte",
    "ReferringPhysicianName": "Brinkmann^Klaus",
    "AccessionNumber": "ACC-0815",
    "StudyID": "STUDY-99",
    "StudyDate": "20190304",
    "StudyDescription": "Verdacht auf Filiae",
    "SeriesDescription": "Erika CT Thorax",
    "StationName": "SCANNER-A5",
    "DeviceSerialNumber": "SN-77123",
    "ProtocolName": "Protokoll Erika",
    "PatientComments": "vertraulich",
    "OperatorsName": "Schwester^Stefanie",
}


@pytest.mark.parametrize("kind", TYPES)
def test_nothing_about_the_patient_is_written(tmp_path: Path, kind: Any) -> None:
    labels = small(1, 2)
    write_grid(tmp_path / "series", labels.data[0].numpy().astype(np.int16), labels.grid.affine.numpy(), **PATIENT)
    image = load_volume(tmp_path / "series")
    save_dicom_seg(tmp_path / "x.dcm", Volume(labels.data, image.grid), source=image, segmentation_type=kind)
    content = (tmp_path / "x.dcm").read_bytes()
    assert image.metadata["study_uid"].encode() in content
    assert [value for value in PATIENT.values() if value.encode() in content] == []
    dataset = pydicom.dcmread(tmp_path / "x.dcm")
    for keyword in ("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID"):
        assert dataset[keyword].value in ("", None)


# -- what cannot be written ------------------------------------------------------------------------------------------


def changed(**options: Any) -> Volume:
    volume = small(1)
    return Volume(**{"data": volume.data, "grid": volume.grid, **options})


SKEWED = VoxelGrid(SHAPE, torch.tensor([[1.0, 0.2, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        (changed(data=torch.zeros(1, *SHAPE)), r"only label maps .*got torch\.float32 in 1 channels"),
        (changed(data=torch.zeros(2, *SHAPE, dtype=torch.int64)), r"got torch\.int64 in 2 channels"),
        (changed(data=sparse_labels(-1)), "labels must be 0 to 65535 in DICOM, got -1 to 0"),
        (changed(data=sparse_labels(65536)), "got 0 to 65536"),
        (small(1).crop((0, 0, 0), (1, 4, 5)), "slices of at least 8 voxels here, got 1 x 4"),
        (changed(grid=SKEWED), r"axes i and j must be at right angles .* got a cosine of 0\.19"),
        (changed(notes=(Note(NoteKind.ORIENTATION_UNKNOWN, ""),)), "the orientation is unknown"),
    ],
)
def test_what_dicom_cannot_hold_is_an_error_and_leaves_the_old_file(
    tmp_path: Path, volume: Volume, message: str
) -> None:
    path = tmp_path / "x.dcm"
    path.write_bytes(b"old")
    for save in (save_volume, save_dicom_seg):
        with pytest.raises(VolumeError, match=f"x.dcm: .*{message}"):
            save(path, volume)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "a\\b", "a\nb", 5])
def test_a_name_that_dicom_cannot_hold_is_an_error(tmp_path: Path, name: Any) -> None:
    with pytest.raises(VolumeError, match="the name of segment 1 must be 1 to 64 printable characters"):
        save_dicom_seg(tmp_path / "x.dcm", small(1), segment_names={1: name})


@pytest.mark.parametrize("library", ["pydicom", "highdicom"])
def test_without_its_libraries_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for save in (save_volume, save_dicom_seg):
        with pytest.raises(ImportError, match=r"pip install 'medattn\[dicom\]'"):
            save(tmp_path / "x.dcm", small(1))
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_errors(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match=r"source must be a DICOM image, .*got 'scan\.nii'"):
        save_dicom_seg(tmp_path / "x.dcm", small(1), source=small(name="scan.nii"))
    with pytest.raises(VolumeError, match="segmentation_type must be 'labelmap' or 'binary', got 'fractional'"):
        save_dicom_seg(tmp_path / "x.dcm", small(1), segmentation_type="fractional")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        save_dicom_seg(tmp_path / "nowhere" / "x.dcm", small(1))
    assert list(tmp_path.iterdir()) == []
