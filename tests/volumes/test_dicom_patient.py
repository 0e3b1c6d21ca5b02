"""Nothing about the patient leaves a DICOM header: not by metadata, notes, names, warnings or errors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from medattn.volumes import Volume, VolumeError, load_volume, save_volume

pydicom = pytest.importorskip("pydicom")
from tests.volumes.dicom_writing import write_enhanced, write_series  # noqa: E402

SECRETS: dict[str, Any] = {
    "PatientName": "Plugh^Xyzzy",
    "PatientID": "ID-4711",
    "PatientBirthDate": "19330517",
    "PatientAddress": "12 Frobozz Lane",
    "PatientComments": "fell off a grue",
    "OtherPatientIDs": "ID-4712",
    "InstitutionName": "Quendor General",
    "ReferringPhysicianName": "Dimwit^Flathead",
    "OperatorsName": "Belboz^Wizard",
    "AccessionNumber": "ACC-815",
    "StudyID": "STUDY-99",
    "StudyDate": "20010203",
    "AcquisitionTime": "040506",
    "StudyDescription": "of Xyzzy",
    "ProtocolName": "for Xyzzy",
    "DeviceSerialNumber": "SN-1234",
    "StationName": "ROOM-7",
    "ImageComments": "see Xyzzy",
}
WORDS = {word for text in SECRETS.values() for word in [text, *text.split("^")]} | {"Xyzzy", "private words"}


def add_private(paths: list[Path]) -> None:
    for path in paths:
        dataset = pydicom.dcmread(path)
        block = dataset.private_block(0x0029, "Frobozz Magic Scanner", create=True)
        block.add_new(0x10, "LO", "private words")
        block.add_new(0x11, "OB", b"Plugh^Xyzzy ")
        dataset.save_as(path)


def series(folder: Path, **options: Any) -> list[Path]:
    heights = options.pop("heights", [0, 3, 6])
    paths = write_series(folder, heights, **{**SECRETS, **options})
    add_private(paths)
    return paths


def assert_silent(text: str) -> None:
    found = [word for word in WORDS if word in text]
    assert not found, text


def everything(volume: Volume) -> str:
    return repr((volume.metadata, volume.notes, volume.name))


def test_a_volume_knows_nothing(tmp_path: Path) -> None:
    series(tmp_path)
    volume = load_volume(tmp_path)
    assert_silent(everything(volume))
    assert set(volume.metadata) == {
        *("modality", "series_description", "series_uid", "study_uid", "frame_of_reference_uid", "sop_class_uid"),
        "instance_uids",
    }


def test_a_multi_frame_volume_knows_nothing(tmp_path: Path) -> None:
    path = write_enhanced(tmp_path / "e.dcm", [0, 3, 6], **SECRETS)
    add_private([path])
    assert_silent(everything(load_volume(path)))


def test_what_is_skipped_is_named_by_its_file_only(tmp_path: Path) -> None:
    series(tmp_path / "images")
    series(tmp_path / "other", SeriesInstanceUID="1.2.99")
    series(tmp_path / "dose", SOPClassUID="1.2.840.10008.5.1.4.1.1.481.2")
    volume = load_volume(tmp_path, series="1.2.3.1")
    assert len(volume.notes[0].values["files"]) == 6
    assert_silent(everything(volume))


@pytest.mark.parametrize(
    "options",
    [
        {"heights": [0, 3.02, 6]},
        {"SpacingBetweenSlices": 9},
        {"heights": [(0, 0, 0), (0, 1, 3), (0, 2, 6)], "SpacingBetweenSlices": 9},
    ],
)
def test_warnings_say_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    series(tmp_path, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        volume = load_volume(tmp_path)
    assert len(caught) == 1
    assert_silent(str(caught[0].message) + everything(volume))


@pytest.mark.parametrize(
    "options",
    [
        {"heights": [0, 3, 9]},
        {"heights": [0, 3, 3]},
        {"ImagePositionPatient": None},
        {"ImageOrientationPatient": [1, 0, 0, 1, 0, 0]},
        {"PhotometricInterpretation": "PALETTE COLOR"},
        {"Rows": 9},
        {"PixelData": None},
        {"each": {"SeriesInstanceUID": ["1.2.1", "1.2.1", "1.2.2"]}},
        {"each": {"RescaleSlope": [1, None, 1]}},
        {"RescaleSlope": 0},
    ],
)
def test_errors_say_nothing(tmp_path: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    series(tmp_path, **options)
    with pytest.raises(VolumeError) as caught:
        load_volume(tmp_path)
    said: BaseException | None = caught.value
    while said is not None:  # the errors that it came from are shown too
        assert_silent(str(said))
        said = said.__cause__ or said.__context__
    assert_silent(caplog.text)


def test_truncated_files_say_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    paths = series(tmp_path)
    content = paths[1].read_bytes()
    for length in range(140, len(content) - 1, 9):
        paths[1].write_bytes(content[:length])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(VolumeError) as caught:
                load_volume(tmp_path)
        assert_silent(str(caught.value))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("suffix", [".nii", ".nrrd", ".mha"])
def test_what_is_written_says_nothing(tmp_path: Path, suffix: str) -> None:
    series(tmp_path / "series")
    save_volume(tmp_path / f"out{suffix}", load_volume(tmp_path / "series"))
    assert_silent((tmp_path / f"out{suffix}").read_bytes().decode("latin-1"))
