"""DICOM segmentations read as labels, or refused with the reason."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from medattn.volumes import VolumeError, load_volume

pydicom = pytest.importorskip("pydicom")
from tests.volumes.dicom_seg_writing import LEFT, NAMES, RIGHT, Frames, frames_at, load, write_seg  # noqa: E402
from tests.volumes.dicom_writing import AXIAL, LOSSLESS, SAGITTAL, item, write_series  # noqa: E402

# -- what the labels are ---------------------------------------------------------------------------------------------


def test_segment_numbers_are_labels_and_slices_that_are_left_out_are_empty(tmp_path: Path) -> None:
    path = write_seg(tmp_path / "x.dcm", [(2, 9, RIGHT), (1, 0, LEFT), (2, 0, RIGHT), (1, 3, LEFT)])
    volume = load(path)
    assert volume.data.shape == (1, 3, 2, 4)
    assert volume.data.dtype == torch.int64
    assert volume.data[0, :, 0].tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [2, 0, 0, 2]]
    assert torch.equal(volume.data[:, :, 0], volume.data[:, :, 1])
    assert np.allclose(volume.grid.affine, np.diag([-0.7, -0.5, 3, 1]))
    assert volume.notes == ()


def test_a_folder_or_an_archive_may_hold_it_beside_its_series(tmp_path: Path) -> None:
    path = write_seg(tmp_path / "x" / "seg.dcm", frames_at(0, 3), SeriesInstanceUID="1.2.9")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.write(path, "seg.dcm")
    write_series(tmp_path / "x", [0, 3])
    for found in (load(tmp_path / "x", series="1.2.9"), load(tmp_path / "x.zip"), load_volume([path], labels=True)):
        assert found.data[0, :, 0].tolist() == [[1, 1], [0, 0], [0, 0]]
    with pytest.raises(VolumeError, match="several series"):
        load(tmp_path / "x")


@pytest.mark.parametrize("large", [2, 200, 300, 65535])
@pytest.mark.parametrize("photometric", ["MONOCHROME2", "PALETTE COLOR"])
def test_a_label_map_holds_segment_numbers(tmp_path: Path, large: int, photometric: str) -> None:
    frames = [(0, 0, [[0, 0, large], [0, 1, 0]]), (0, 6, [[1, 1, 1], [0, 0, large]])]
    names = {0: "Background", 1: "liver", large: "tumour"}
    lookup = {
        f"{colour}PaletteColorLookupTable{what}": value
        for colour in ("Red", "Green", "Blue")
        for what, value in (("Descriptor", [256, 0, 16]), ("Data", bytes(512)))
        if photometric == "PALETTE COLOR"
    }
    path = write_seg(
        tmp_path / "x.dcm", frames, kind="LABELMAP", names=names, PhotometricInterpretation=photometric, **lookup
    )
    volume = load(path)
    assert volume.data[0, :, :, 0].T.tolist() == [[0, 0, large], [0, 1, 0]]
    assert volume.data[0, :, :, 1].unique().tolist() == [0]
    assert volume.data[0, :, :, 2].T.tolist() == [[1, 1, 1], [0, 0, large]]
    assert volume.metadata["segment_labels"] == ("1: liver", f"{large}: tumour")


def test_the_background_of_a_label_map_may_have_another_number(tmp_path: Path) -> None:
    frames = [(0, 0, [[9, 9, 1], [2, 9, 9]])]
    path = write_seg(tmp_path / "x.dcm", frames, kind="LABELMAP", names={**NAMES, 9: "Background"}, PixelPaddingValue=9)
    assert load(path).data[0, :, :, 0].T.tolist() == [[0, 0, 1], [2, 0, 0]]


@pytest.mark.parametrize("kind", ["BINARY", "LABELMAP", "FRACTIONAL"])
def test_a_segmentation_is_no_image(tmp_path: Path, kind: str) -> None:
    path = write_seg(tmp_path / "x.dcm", frames_at(0, 3), kind=kind)
    with pytest.raises(VolumeError, match="load it with labels=True"):
        load_volume(path)


@pytest.mark.parametrize("partly", [1, 100, 199])
def test_fractions_are_no_labels(tmp_path: Path, partly: int) -> None:
    frames = [(1, 0, [[0, 0, 200]] * 2), (2, 3, [[200, partly, 0]] * 2)]
    path = write_seg(tmp_path / "x.dcm", frames, kind="FRACTIONAL")
    with pytest.raises(VolumeError, match=rf"pixels are 0 or 200 .*got {partly} in frame 2: make it a BINARY one"):
        load(path)


def test_a_fractional_segmentation_of_whole_voxels_is_labels(tmp_path: Path) -> None:
    path = write_seg(tmp_path / "x.dcm", [(1, 0, [[0, 200, 0]] * 2), (2, 0, [[200, 0, 0]] * 2)], kind="FRACTIONAL")
    assert load(path).data[0, :, 0, 0].tolist() == [2, 1, 0]


@pytest.mark.parametrize("kind", ["BINARY", "FRACTIONAL"])
def test_overlapping_segments_are_no_labels(tmp_path: Path, kind: str) -> None:
    one, other, right = (
        np.multiply(pixels, 1 if kind == "BINARY" else 200) for pixels in ([[1, 1, 0]] * 2, LEFT, RIGHT)
    )
    path = write_seg(tmp_path / "x.dcm", [(2, 3, one), (1, 0, other), (1, 3, other)], kind=kind)
    with pytest.raises(VolumeError, match=r"segments 1 \('liver'\) and 2 \('tumour'\) overlap in slice 1"):
        load(path)
    path = write_seg(tmp_path / "y.dcm", [(2, 3, right), (1, 0, other), (1, 3, other)], kind=kind)
    assert load(path).data[0, :, 0].tolist() == [[1, 1], [0, 0], [0, 2]]


@pytest.mark.parametrize("syntax", ["implicit", "big endian", "deflated", *LOSSLESS])
@pytest.mark.parametrize("large", [2, 300])
def test_every_transfer_syntax_gives_the_same_labels(tmp_path: Path, syntax: str, large: int) -> None:
    rng = np.random.default_rng(0)
    labels = np.array([0, 1, large])[rng.integers(3, size=(4, 36, 33))]
    frames = [(0, 3 * k, labels[k]) for k in range(4)]
    names = {1: "liver", large: "tumour"}
    path = write_seg(tmp_path / "x.dcm", frames, kind="LABELMAP", names=names, syntax=syntax)
    assert np.array_equal(load(path).data[0], labels.T)


def test_binary_pixels_may_be_compressed_as_bytes(tmp_path: Path) -> None:
    path = write_seg(tmp_path / "x.dcm", [(1, 0, LEFT), (2, 3, RIGHT)], syntax="RLE")
    assert load(path).data[0, :, 0].tolist() == [[1, 0], [0, 0], [0, 2]]


@pytest.mark.parametrize("name", ["liver_1frame.dcm", "liver_expb_1frame.dcm"])
@pytest.mark.parametrize("representation", ["OB", "OW"])
def test_bits_of_either_byte_order_are_read(tmp_path: Path, name: str, representation: str) -> None:
    from pydicom.data import get_testdata_file

    dataset = pydicom.dcmread(get_testdata_file(name))
    dataset.NumberOfFrames = 1
    dataset.PerFrameFunctionalGroupsSequence = dataset.PerFrameFunctionalGroupsSequence[:1]
    if representation == "OW" and "expb" in name:
        dataset.PixelData = np.frombuffer(dataset.PixelData, np.uint16).byteswap().tobytes()
    dataset["PixelData"].VR = representation
    dataset.save_as(tmp_path / "x.dcm")
    volume = load(tmp_path / "x.dcm")
    assert volume.data.shape == (1, 512, 512, 1)
    assert int(volume.data.sum()) == 36233
    assert torch.nonzero(volume.data[0, :, :, 0]).double().mean(dim=0).round().tolist() == [198, 239]  # column, row
    assert volume.metadata["segment_labels"] == ("1: Liver",)


def test_nothing_but_uids_modality_description_and_segments_is_kept(tmp_path: Path) -> None:
    path = write_seg(tmp_path / "x.dcm", frames_at(0), PatientName="Doe^Jane", StudyDate="20200101", StationName="CT7")
    assert load(path).metadata == {
        "modality": "SEG",
        "series_description": "small",
        "series_uid": "1.2.3.1",
        "study_uid": "1.2.3.2",
        "frame_of_reference_uid": "1.2.3.3",
        "segment_labels": ("1: liver", "2: tumour"),
    }


def test_codes_of_segments_are_kept(tmp_path: Path) -> None:
    concepts = {1: ("SCT", "10200004", "Liver"), 2: ("99LOCAL", "a b", "value with a space"), 3: ("SCT", "x", "")}
    described = [
        item(
            SegmentNumber=number,
            SegmentLabel=f"part {number}",
            SegmentedPropertyTypeCodeSequence=[
                item(CodingSchemeDesignator=scheme, CodeValue=value, CodeMeaning=meaning)
            ],
        )
        for number, (scheme, value, meaning) in concepts.items()
    ]
    metadata = load(write_seg(tmp_path / "x.dcm", frames_at(0), SegmentSequence=described)).metadata
    assert metadata["segment_labels"] == ("1: part 1", "2: part 2", "3: part 3")
    assert metadata["segment_codes"] == ("1: SCT 10200004 Liver",)  # the others are no codes


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        (frames_at(0, 3, 7.5, 10), {}, r"evenly spaced, but their distances have no common measure: 2\.5, 3, 4\.5 mm"),
        (
            frames_at(0, 3, (1, 0, 6), 9),
            {},
            r"must follow a straight line evenly, but frame 3 of .* is 0\.7 mm off its place",
        ),
        (frames_at(0, 3, 3), {}, r"frames 2 and 3 lie in one place, and both are of segment 1"),
        (
            frames_at(0),
            {"measures": {"SpacingBetweenSlices": None}},
            "there is one slice, frame 1 .*, whose extent must be given",
        ),
        ([(3, 0, LEFT)], {}, "frame 1 is of segment 3, which SegmentSequence does not describe"),
        (frames_at(0), {"names": {}}, "SegmentSequence does not describe"),
        (frames_at(0), {"names": {0: "a", 1: "b"}}, "numbers from 1, each its own, got 0"),
        (frames_at(0), {"orientation": (1, 0, 0, 0, 0.9, 0)}, "two unit vectors at right angles"),
        (frames_at(0), {"orientation": (1, 0, 0, 0.6, 0.8, 0)}, "two unit vectors at right angles"),
        (frames_at(0), {"spacing": (0, 1)}, r"PixelSpacing of frame 1 .* must be positive, got \(0, 1\)"),
        (frames_at((0, 0, 1e8)), {}, "ImagePositionPatient must be below"),
        (frames_at(0, 3), {"NumberOfFrames": 3}, "must have NumberOfFrames, 3, items, got 2"),
        (frames_at(0, 3), {"NumberOfFrames": None}, "must have NumberOfFrames, 1, items, got 2"),
        (frames_at(0), {"Rows": 0}, "Rows must be a positive integer, got 0"),
        (frames_at(0), {"Rows": 300}, r"PixelData must hold 113 bytes .*but its length is 2"),
        (frames_at(0, 3), {"PerFrameFunctionalGroupsSequence": None}, "PerFrameFunctionalGroupsSequence is missing"),
        (frames_at(0), {"per_frame": [{}]}, "ReferencedSegmentNumber of frame 1 is missing"),
        ([(0, 0, LEFT), (0, 0, RIGHT)], {"kind": "LABELMAP"}, "frames 1 and 2 lie in one place$"),
        (frames_at(0), {"PhotometricInterpretation": "RGB"}, "PhotometricInterpretation must be MONOCHROME2 .*'RGB'"),
        (frames_at(0), {"SegmentationType": "SURFACE"}, "BINARY, FRACTIONAL, LABELMAP, got 'SURFACE'"),
        (frames_at(0), {"SamplesPerPixel": 3}, "SamplesPerPixel must be 1 in a segmentation, got 3"),
        (frames_at(0), {"BitsAllocated": 32}, "BitsAllocated must be 1 or 8 in a segmentation, got 32"),
        (frames_at(0), {"TotalPixelMatrixColumns": 100}, "tiles of a larger image"),
        (frames_at(0), {"DimensionOrganizationType": "TILED_FULL"}, "tiles of a larger image"),
        (frames_at(0), {"shared": {}}, "there is one slice, frame 1 .*, whose extent must be given"),
        (frames_at(0), {"shared": {"PlaneOrientationSequence": None}}, "ImageOrientationPatient is missing"),
        ([(1, 0, np.full((2, 3), 2))], {"syntax": "explicit"}, "at most 1, got 2 in frame 1"),
    ],
)
def test_what_is_no_segmentation_of_a_volume_is_an_error_that_says_why(
    tmp_path: Path, frames: Frames, options: Any, message: str
) -> None:
    path = write_seg(tmp_path / "x.dcm", frames, **options)
    with pytest.raises(VolumeError, match=message):
        load(path)


def test_pixels_of_no_segment_are_an_error(tmp_path: Path) -> None:
    path = write_seg(tmp_path / "x.dcm", [(0, 0, [[0, 1, 9]] * 2)], kind="LABELMAP")
    with pytest.raises(VolumeError, match="frame 1 has pixels of segment 9, which SegmentSequence does not describe"):
        load(path)


def test_frames_of_several_orientations_or_pixel_sizes_are_an_error(tmp_path: Path) -> None:
    def own(keyword: str, one: Any, two: Any) -> list[Any]:
        number = {"SegmentIdentificationSequence": item(ReferencedSegmentNumber=1)}
        return [{**number, keyword: value} for value in (one, two)]

    axial, sagittal = (item(ImageOrientationPatient=list(o)) for o in (AXIAL, SAGITTAL))
    path = write_seg(tmp_path / "x.dcm", frames_at(0, 3), per_frame=own("PlaneOrientationSequence", axial, sagittal))
    with pytest.raises(
        VolumeError,
        match=r"one ImageOrientationPatient, got \(1, 0, 0, 0, 1, 0\) in frame 1 .* and \(0, 1,.* in frame 2",
    ):
        load(path)
    small, large = (item(PixelSpacing=[n, n]) for n in (1, 2))
    path = write_seg(tmp_path / "y.dcm", frames_at(0, 3), per_frame=own("PixelMeasuresSequence", small, large))
    with pytest.raises(VolumeError, match=r"one PixelSpacing, got \(1, 1\) in frame 1 .* and \(2, 2\) in frame 2"):
        load(path)


def test_a_huge_grid_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    path = write_seg(tmp_path / "x.dcm", frames_at(0, 1e6), measures={"SpacingBetweenSlices": 1e-6})
    with pytest.raises(VolumeError, match="over the limit"):
        load(path)
    path = write_seg(tmp_path / "y.dcm", frames_at(0, 3))
    assert load(path, max_bytes=8 * 12).data.shape == (1, 3, 2, 2)
    with pytest.raises(VolumeError, match=r"needs 96 bytes, over the limit of 95"):
        load(path, max_bytes=8 * 12 - 1)


@pytest.mark.parametrize("kind", ["BINARY", "FRACTIONAL", "LABELMAP"])
@pytest.mark.parametrize("syntax", ["explicit", "JPEG-LS"])
def test_a_size_that_the_file_does_not_hold_is_refused_before_it_is_allocated(
    tmp_path: Path, kind: str, syntax: str
) -> None:
    options = {} if (kind, syntax) == ("BINARY", "explicit") else {"syntax": syntax}
    path = write_seg(tmp_path / "x.dcm", [(1, 3 * k, np.ones((40, 40))) for k in range(2)], kind=kind, **options)
    dataset = pydicom.dcmread(path)
    dataset.Rows = dataset.Columns = 16_000  # 4 GB of labels, under the limit
    dataset.save_as(path)
    tracemalloc.start()
    with pytest.raises(VolumeError, match="PixelData must hold|a compressed picture must have Rows"):
        load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


@pytest.mark.parametrize("kept", [0, 1, 130, 400, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("kind", ["BINARY", "LABELMAP"])
def test_a_truncated_file_is_an_error(tmp_path: Path, kind: str, kept: float) -> None:
    path = write_seg(tmp_path / "x.dcm", [(1, 3 * k, np.ones((30, 30))) for k in range(5)], kind=kind)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if 0 < kept < 1 else int(kept)])
    with pytest.raises(VolumeError):
        load(path)
