"""DICOM files and archives whose lengths and names lie: no memory, no error of a library, nothing about the patient."""

from __future__ import annotations

import re
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from medattn.volumes import VolumeError, load_volume

pytest.importorskip("pydicom")
from pydicom.tag import Tag

from tests.volumes.dicom_writing import item, write_enhanced, write_series

NAME = "Xyzzy^Plugh"


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def with_length(path: Path, keyword: str, length: int) -> Path:
    """The file with another length of an element in explicit VR, little endian."""
    content = bytearray(path.read_bytes())
    tag = Tag(keyword)
    at = content.index(struct.pack("<HH", tag.group, tag.element)) + 4
    place, form = (at + 4, "<L") if content[at : at + 2] in (b"SQ", b"OB", b"OW", b"UN") else (at + 2, "<H")
    struct.pack_into(form, content, place, length)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("vr", [b"UN", b"OB", b"UT"])
def test_an_element_that_says_it_has_gigabytes_takes_no_memory(tmp_path: Path, vr: bytes) -> None:
    path = write_series(tmp_path, [0, 3], PatientComments="hello")[0]
    content = path.read_bytes()
    at = content.index(b"\x10\x00\x00\x40LT")
    path.write_bytes(content[: at + 4] + vr + b"\0\0" + struct.pack("<L", 3 << 30) + content[at + 8 :])
    tracemalloc.start()
    with pytest.raises(VolumeError, match=re.escape(str(tmp_path))):
        load_volume(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_a_sequence_that_says_it_has_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    path = write_enhanced(tmp_path / "x.dcm", [0, 3])
    with_length(path, "SharedFunctionalGroupsSequence", 0xFFFFFFFE)
    tracemalloc.start()
    with pytest.raises(VolumeError, match=r"x\.dcm"):
        load_volume(path)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "keyword", ["SOPClassUID", "SeriesInstanceUID", "Modality", "ImagePositionPatient", "ImageType"]
)
@pytest.mark.parametrize("length", [60, 200, 0xFFFE])
def test_no_message_quotes_what_follows_an_element_whose_length_lies(tmp_path: Path, keyword: str, length: int) -> None:
    attributes = {"PatientName": NAME, "PatientID": NAME, "ImageType": "ORIGINAL", "SeriesDescription": "head"}
    path = write_series(tmp_path, [0, 3], **attributes)[0]
    with_length(path, keyword, length)
    with pytest.raises(VolumeError, match=re.escape(str(tmp_path))) as error:
        load_volume(tmp_path)
    assert "Xyzzy" not in str(error.value)
    assert len(str(error.value)) < 1000


def test_no_message_quotes_what_follows_a_uid_of_the_file_meta_group(tmp_path: Path) -> None:
    path = write_series(tmp_path, [0], SliceThickness=3, PatientName=NAME)[0]
    with_length(path, "MediaStorageSOPClassUID", 400)
    with pytest.raises(VolumeError, match=r"0\.dcm") as error:
        load_volume(path)
    assert "Xyzzy" not in str(error.value)


def test_a_description_ends_where_its_text_does(tmp_path: Path) -> None:
    """Its length reaches to the end of the patient's name, so that all else is whole."""
    path = write_series(tmp_path, [0], SliceThickness=3, SeriesDescription="head", PatientName=NAME)[0]
    content = path.read_bytes()
    with_length(path, "SeriesDescription", content.index(NAME.encode()) + 12 - content.index(b"head"))
    volume = load_volume(path)
    assert "Xyzzy" not in repr((volume.metadata, volume.notes))
    assert str(volume.metadata["series_description"]).startswith("head")


def test_a_very_long_code_is_refused_and_not_quoted(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom's, of such a code
        path = write_series(tmp_path, [0], SliceThickness=3, PhotometricInterpretation="A" * 5000)[0]
    with pytest.raises(
        VolumeError, match="PhotometricInterpretation must be at most 1024 characters .* got 5000 bytes"
    ):
        load_volume(path)


@pytest.mark.parametrize("number", [b"1_00", b"nan ", b"-inf", b"\xbd   ", b"0x10"])
def test_what_only_python_takes_for_a_number_is_refused(tmp_path: Path, number: bytes) -> None:
    path = write_series(tmp_path, [0], SliceThickness=3, RescaleSlope="2.25", RescaleIntercept="0")[0]
    path.write_bytes(path.read_bytes().replace(b"2.25", number))
    with pytest.raises(VolumeError, match="RescaleSlope must be 1 finite number"):
        load_volume(path)


@pytest.mark.parametrize("vr", ["US", "AT", "FL", "OW"])
def test_a_number_written_as_text_is_never_read_as_binary(tmp_path: Path, vr: str) -> None:
    path = write_series(tmp_path, [0], SliceThickness=3, RescaleSlope="2.25", RescaleIntercept="0")[0]
    path.write_bytes(path.read_bytes().replace(b"\x28\0\x53\x10DS", b"\x28\0\x53\x10" + vr.encode()))
    with pytest.raises(VolumeError, match=re.escape(str(tmp_path))):
        load_volume(path)


def test_a_scale_in_a_sequence_that_is_none_is_not_passed_over(tmp_path: Path) -> None:
    shared = {"PixelValueTransformationSequence": item(RescaleSlope="2", RescaleIntercept="-1024")}
    path = write_enhanced(tmp_path / "x.dcm", [0, 3], shared=shared)
    path.write_bytes(path.read_bytes().replace(b"\x28\0\x45\x91SQ", b"\x28\0\x45\x91OW"))
    with pytest.raises(VolumeError, match="PixelValueTransformationSequence must be a sequence"):
        load_volume(path)


@pytest.mark.parametrize("keyword", ["SOPClassUID", "TransferSyntaxUID"])
def test_a_uid_that_is_none_is_refused_without_a_warning(tmp_path: Path, keyword: str) -> None:
    path = write_series(tmp_path, [0], SliceThickness=3)[0]
    content = bytearray(path.read_bytes())
    tag = Tag(keyword)
    at = content.index(struct.pack("<HH", tag.group, tag.element) + b"UI") + 8
    content[at : at + 6] = b"no uid"
    path.write_bytes(content)
    if keyword == "SOPClassUID":  # an unknown class of image, with pixels and a place
        assert load_volume(path).metadata["sop_class_uid"] == content[at : at + 26].decode().strip("\0")
        return
    with pytest.raises(VolumeError, match="transfer syntax no uid.* cannot be read"):
        load_volume(path)


def zipped(folder: Path, names: Any) -> Path:
    path = folder / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in zip(names, write_series(folder / "series", [0, 3, 6]), strict=True):
            archive.writestr(zipfile.ZipInfo(name), member.read_bytes())
    return path


@pytest.mark.parametrize("name", ["", "/0.dcm", "..", "a/../../0.dcm", "C:/0.dcm", "..\\0.dcm"])
def test_a_member_outside_the_archive_is_refused(tmp_path: Path, name: str) -> None:
    path = zipped(tmp_path, [name, "1.dcm", "2.dcm"])
    with pytest.raises(VolumeError, match=rf"x\.zip: the archive's member {re.escape(repr(name))} lies outside of it"):
        load_volume(path)


def test_a_file_that_is_no_archive_is_closed(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"PK" + bytes(100))
    with pytest.raises(VolumeError, match="opening the zip archive"):
        load_volume(tmp_path / "x.zip")
