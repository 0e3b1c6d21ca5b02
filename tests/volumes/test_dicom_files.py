"""Where DICOM files may lie: folders, lists, zip archives; what is left out, what is chosen, and what is refused."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from medattn.volumes import NoteKind, Volume, VolumeError, load_volume

pydicom = pytest.importorskip("pydicom")
from tests.volumes.dicom_writing import SAGITTAL, counting, image, item, save, write_series, write_slice  # noqa: E402

EXPECTED = np.stack([counting(number).T for number in range(3)], axis=-1).astype(np.float32)
SEG_CLASS, DOSE_CLASS, SR_CLASS = "1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.481.2", "1.2.3.88"


def array(volume: Volume) -> NDArray[Any]:
    return volume.data[0].numpy()


def zipped(archive: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(archive, "w", method) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return archive


def series_bytes(folder: Path) -> dict[str, bytes]:
    return {f"study/{path.name}": path.read_bytes() for path in write_series(folder, [0, 3, 6])}


def test_a_folder_is_searched_to_its_ends(tmp_path: Path) -> None:
    for number, path in enumerate(write_series(tmp_path, [0, 3, 6])):
        deep = tmp_path / "a" / ("b" * number or ".") / f"IM{number}"
        deep.parent.mkdir(parents=True, exist_ok=True)
        path.rename(deep)
    volume = load_volume(tmp_path)
    np.testing.assert_array_equal(array(volume), EXPECTED)
    assert volume.notes == ()
    assert volume.name == str(tmp_path)


def test_paths_may_be_strings(tmp_path: Path) -> None:
    paths = [str(path) for path in write_series(tmp_path, [0, 3, 6])]
    np.testing.assert_array_equal(array(load_volume(paths)), EXPECTED)
    np.testing.assert_array_equal(array(load_volume(str(tmp_path))), EXPECTED)


def test_other_files_are_left_out_and_noted(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6])
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / ".hidden.dcm").write_text("hello")
    (tmp_path / "DICOMDIR").write_text("hello")
    dose = image(np.ones((2, 2, 3), np.uint32), frames=True, SOPClassUID=DOSE_CLASS, SeriesInstanceUID="1.2.99")
    save(tmp_path / "dose.dcm", dose)
    save(tmp_path / "report.dcm", item(SOPClassUID=SR_CLASS, SOPInstanceUID="1.2.7", Modality="SR"))
    volume = load_volume(tmp_path)
    np.testing.assert_array_equal(array(volume), EXPECTED)
    (note,) = volume.notes
    assert note.kind is NoteKind.SKIPPED
    assert set(note.values["files"]) == {
        ".hidden.dcm",
        "DICOMDIR",
        "notes.txt",
        "dose.dcm (RT Dose Storage)",
        "report.dcm (1.2.3.88)",
    }
    assert not note.is_warning
    assert load_volume(tmp_path, strict=True).notes == volume.notes


def test_a_localizer_in_the_series_is_left_out(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6])
    kind = ["ORIGINAL", "PRIMARY", "LOCALIZER"]
    write_slice(tmp_path / "scout.dcm", np.zeros((9, 9), np.int16), (0, 0, 0), orientation=SAGITTAL, ImageType=kind)
    volume = load_volume(tmp_path)
    np.testing.assert_array_equal(array(volume), EXPECTED)
    assert volume.notes[0].values == {"files": ["scout.dcm (localizer)"]}


def test_a_series_of_localizers_is_a_series(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6], ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"])
    np.testing.assert_array_equal(array(load_volume(tmp_path)), EXPECTED)


def test_a_screenshot_in_a_series_of_its_own_is_left_out(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6])
    attributes: dict[str, Any] = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.7", "SeriesInstanceUID": "1.2.77"}
    save(tmp_path / "shot.dcm", image(np.zeros((4, 4, 3), np.uint8), instance=9, **attributes))
    volume = load_volume(tmp_path)
    np.testing.assert_array_equal(array(volume), EXPECTED)
    assert volume.notes[0].values == {"files": ["shot.dcm (another series)"]}


def two_series(folder: Path) -> None:
    write_series(folder / "one", [0, 3, 6], SeriesDescription="thin axial", Modality="CT")
    write_series(folder / "two", [0, 3, 6, 9], SeriesInstanceUID="1.2.3.11", SeriesDescription="T1", Modality="MR")


def test_several_series_are_an_error_that_lists_them(tmp_path: Path) -> None:
    two_series(tmp_path)
    listed = r"1\.2\.3\.1 \(CT, 'thin axial', 3 slices\), 1\.2\.3\.11 \(MR, 'T1', 4 slices\)$"
    with pytest.raises(VolumeError, match=rf"several series lie here, and series=UID must choose one: {listed}"):
        load_volume(tmp_path)
    with pytest.raises(VolumeError, match=rf"there is no series '1\.2\.3', but {listed}"):
        load_volume(tmp_path, series="1.2.3")


def test_a_series_is_chosen_by_its_uid(tmp_path: Path) -> None:
    two_series(tmp_path)
    volume = load_volume(tmp_path, series="1.2.3.11")
    assert volume.data.shape == (1, 3, 2, 4)
    assert volume.metadata["series_uid"] == "1.2.3.11"
    assert volume.notes[0].values == {"files": [f"one/{n}.dcm (another series)" for n in range(3)]}
    np.testing.assert_array_equal(array(load_volume(tmp_path, series="1.2.3.1")), EXPECTED)


def test_the_uid_of_the_only_series_must_be_right_too(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6])
    assert load_volume(tmp_path, series="1.2.3.1").notes == ()
    with pytest.raises(VolumeError, match="there is no series '9', but 1.2.3.1"):
        load_volume(tmp_path, series="9")


def test_a_segmentation_beside_its_images_is_another_series(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6])
    write_slice(tmp_path / "seg.dcm", counting(0), (0, 0, 0), SOPClassUID=SEG_CLASS, SeriesInstanceUID="1.2.66")
    with pytest.raises(VolumeError, match=r"several series .* 1\.2\.66 \("):
        load_volume(tmp_path)


def test_several_segmentations_are_an_error(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3], SOPClassUID=SEG_CLASS)
    with pytest.raises(VolumeError, match=r"by itself, but there are 2 files: 0\.dcm and 1\.dcm"):
        load_volume(tmp_path)


@pytest.mark.parametrize("files", [{}, {"readme.txt": b"hello"}, {"DICOMDIR": b"x"}])
def test_no_image_is_an_error(tmp_path: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(VolumeError, match=f"must be a DICOM image, got {next(iter(files), 'no files')}"):
        load_volume(tmp_path)


def test_an_empty_list_is_an_error() -> None:
    with pytest.raises(VolumeError, match="must be a DICOM image, got no files"):
        load_volume([])


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    paths = write_series(tmp_path, [0, 3, 6])
    with pytest.raises(FileNotFoundError, match=r"no such file: .*nothing\.dcm"):
        load_volume([*paths, tmp_path / "nothing.dcm"])
    with pytest.raises(VolumeError, match="must be a file, but is none"):
        load_volume([*paths, tmp_path])


def test_a_dose_alone_is_no_image(tmp_path: Path) -> None:
    save(tmp_path / "dose.dcm", image(np.ones((2, 2, 3), np.uint32), frames=True, SOPClassUID=DOSE_CLASS))
    with pytest.raises(VolumeError, match=r"must be a DICOM image, got dose\.dcm \(RT Dose Storage\)"):
        load_volume(tmp_path / "dose.dcm")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_is_read_in_memory(tmp_path: Path, method: int) -> None:
    files = {**series_bytes(tmp_path / "files"), "study/readme.txt": b"hello", "inner.zip": b"PK"}
    archive = zipped(tmp_path / "scan.zip", files, method)
    before = sorted(tmp_path.rglob("*"))
    volume = load_volume(archive)
    np.testing.assert_array_equal(array(volume), EXPECTED)
    assert set(volume.notes[0].values["files"]) == {"study/readme.txt", "inner.zip"}
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("syntax", ["deflated", "RLE", "big endian"])
def test_a_zip_of_any_syntax(tmp_path: Path, syntax: str) -> None:
    paths = write_series(tmp_path / "files", [0, 3, 6], syntax=syntax)
    archive = zipped(tmp_path / "scan.ZIP", {path.name: path.read_bytes() for path in paths})
    np.testing.assert_array_equal(array(load_volume(archive)), EXPECTED)


@pytest.mark.parametrize("name", ["../evil.dcm", "/evil.dcm", "a/../../evil.dcm", "C:/evil.dcm", "..\\evil.dcm"])
def test_members_outside_the_archive_are_an_error(tmp_path: Path, name: str) -> None:
    archive = zipped(tmp_path / "scan.zip", {**series_bytes(tmp_path / "files"), name: b"x"})
    with pytest.raises(VolumeError, match="lies outside of it"):
        load_volume(archive)


def test_an_archive_that_unpacks_to_too_much_is_an_error_that_states_the_limit(tmp_path: Path) -> None:
    files = series_bytes(tmp_path / "files")
    archive = zipped(tmp_path / "scan.zip", files)
    size = sum(map(len, files.values()))
    assert load_volume(archive, max_bytes=size).data.shape == (1, 3, 2, 3)
    with pytest.raises(VolumeError, match=f"holds {size} bytes, over the limit of {size - 1}; .*max_bytes"):
        load_volume(archive, max_bytes=size - 1)
    bomb = zipped(tmp_path / "bomb.zip", {"a.dcm": bytes(10_000_000)})
    with pytest.raises(VolumeError, match="holds 10000000 bytes, over the limit of 1000000"):
        load_volume(bomb, max_bytes=1_000_000)


def patched(archive: Path, old: bytes, new: bytes) -> Path:
    content = archive.read_bytes()
    assert old in content
    archive.write_bytes(content.replace(old, new))
    return archive


def test_a_member_that_claims_more_than_deflate_can_is_an_error(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "scan.zip", {"a.dcm": bytes(1000)})
    size = (1000).to_bytes(4, "little")
    with pytest.raises(VolumeError, match="claims 1000000000 bytes in .*, over 1032 times"):
        load_volume(patched(archive, size, (10**9).to_bytes(4, "little")))


def test_a_member_that_holds_more_than_it_claims_is_an_error(tmp_path: Path) -> None:
    files = series_bytes(tmp_path / "files")
    archive = zipped(tmp_path / "scan.zip", files)
    size = len(files["study/0.dcm"])
    with pytest.raises(VolumeError, match="CRC|truncated|damaged"):
        load_volume(patched(archive, size.to_bytes(4, "little"), (size - 8).to_bytes(4, "little")))


def test_a_flipped_bit_in_an_archive_is_an_error(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "scan.zip", series_bytes(tmp_path / "files"), zipfile.ZIP_STORED)
    pixels = counting(1).tobytes()
    with pytest.raises(VolumeError, match="opening study/1.dcm failed: BadZipFile: Bad CRC-32"):
        load_volume(patched(archive, pixels, bytes([pixels[0] ^ 1]) + pixels[1:]))


def test_an_encrypted_archive_is_an_error(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "scan.zip", series_bytes(tmp_path / "files"))
    content = bytearray(archive.read_bytes())
    for at in (content.index(b"PK\x03\x04") + 6, content.index(b"PK\x01\x02") + 8):
        content[at] |= 1
    archive.write_bytes(content)
    with pytest.raises(VolumeError, match="is encrypted"):
        load_volume(archive)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_is_an_error(tmp_path: Path, method: int) -> None:
    archive = zipped(tmp_path / "scan.zip", {"a.dcm": bytes(1000)}, method)
    with pytest.raises(VolumeError, match="must be stored or deflated"):
        load_volume(archive)


def test_a_truncated_archive_is_an_error(tmp_path: Path) -> None:
    content = zipped(tmp_path / "whole.zip", series_bytes(tmp_path / "files")).read_bytes()
    archive = tmp_path / "cut.zip"
    for length in range(0, len(content), 7):
        archive.write_bytes(content[:length])
        with pytest.raises(VolumeError):
            load_volume(archive)


def test_a_deflated_file_that_unpacks_to_too_much_is_an_error(tmp_path: Path) -> None:
    pixels = [np.zeros((500, 500), np.int16)] * 2
    write_series(tmp_path, [0, 3], pixels=pixels, syntax="deflated")
    assert load_volume(tmp_path, max_bytes=1_000_000).data.shape == (1, 500, 500, 2)
    with pytest.raises(VolumeError, match="inflates to more than the limit of 400000 bytes"):
        load_volume(tmp_path, max_bytes=400_000)


def test_without_pydicom_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_series(tmp_path, [0, 3])
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(ImportError, match=r"pip install 'medattn\[dicom\]'"):
        load_volume(tmp_path)
