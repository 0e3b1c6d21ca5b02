"""Truncated, damaged and lying DICOM files: an error of our own kind, soon, and without taking memory."""

from __future__ import annotations

import resource
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medattn.volumes import VolumeError, load_volume

pydicom = pytest.importorskip("pydicom")
from tests.volumes.dicom_writing import NATIVE, counting, item, write_enhanced, write_series  # noqa: E402

SYNTAXES = [*NATIVE, "RLE", "JPEG lossless", "JPEG-LS", "JPEG 2000 lossless", "JPEG baseline"]
LARGE = [np.add.outer(np.arange(33), np.arange(34)).astype(np.uint8)] * 3


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("name", ["1.dcm", "IM1"])
def test_a_file_cut_off_anywhere_is_an_error(tmp_path: Path, syntax: str, name: str) -> None:
    """Never left out, as long as its mark or its name says that it is DICOM."""
    paths = write_series(tmp_path, [0, 3, 6], pixels=LARGE, syntax=syntax)
    cut = paths[1].rename(tmp_path / name)
    content = cut.read_bytes()
    padding = 8 if syntax not in NATIVE else 0  # the end of encapsulated pixels
    first = 132 if name == "IM1" else 0
    for length in [*range(first, len(content) - padding - 1, 13), len(content) - padding - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(VolumeError, match=name):
            load_volume(tmp_path)


@pytest.mark.parametrize("keyword", ["PixelData", "FloatPixelData", "DoubleFloatPixelData"])
def test_pixels_that_are_missing_are_an_error(tmp_path: Path, keyword: str) -> None:
    dtype = {"PixelData": np.int16, "FloatPixelData": np.float32, "DoubleFloatPixelData": np.float64}[keyword]
    pixels = [counting(n).astype(dtype) for n in range(2)]
    write_series(tmp_path, [0, 3], pixels=pixels, each={keyword: [pixels[0].tobytes(), None]})
    with pytest.raises(VolumeError, match=r"1\.dcm: it is truncated or damaged: it ends before its pixels"):
        load_volume(tmp_path)


def test_a_file_named_as_dicom_that_is_none_is_an_error(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6])
    (tmp_path / "1.dcm").write_bytes(b"not DICOM at all" * 100)
    with pytest.raises(VolumeError, match=r"1\.dcm"):
        load_volume(tmp_path)


def test_a_file_without_the_mark_is_read_if_it_is_named_so(tmp_path: Path) -> None:
    for path in write_series(tmp_path, [0, 3], syntax="implicit"):
        dataset = pydicom.dcmread(path)
        dataset.preamble, dataset.file_meta = None, pydicom.dataset.FileMetaDataset()
        dataset.save_as(path, implicit_vr=True, little_endian=True)
        assert path.read_bytes()[128:132] != b"DICM"
    np.testing.assert_array_equal(load_volume(tmp_path).data[0, :, :, 1].T.numpy(), counting(1))


def element(tag: int, vr: bytes, content: bytes, length: int | None = None) -> bytes:
    """An element in explicit VR, little endian, that claims ``length``."""
    claimed = len(content) if length is None else length
    long = vr in (b"OB", b"OW", b"SQ", b"UN", b"UT")
    size = struct.pack("<HL", 0, claimed) if long else struct.pack("<H", claimed)
    return struct.pack("<HH", tag >> 16, tag & 0xFFFF) + vr + size + content


def with_element(path: Path, added: bytes, before: bytes) -> None:
    content = path.read_bytes()
    at = content.index(before)
    path.write_bytes(content[:at] + added + content[at:])


@pytest.fixture
def little_memory() -> Any:
    """No more than 2 GiB above what is taken already."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 30), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


ROWS = element(0x00280010, b"US", struct.pack("<H", 2))


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "added",
    [
        element(0x00200032, b"UT", b"", 0xFFFFFFFE),
        element(0x00200032, b"UN", b"0", 0xFFFFFFF0),
        element(0x00090010, b"UN", b"", 0xFFFFFFFE),
        element(0x00090010, b"OB", b"", 0xFFFFFFFF),
        element(0x00283000, b"SQ", b"", 0xFFFFFFFE),
        element(0x52009229, b"SQ", b"\xfe\xff\x00\xe0\xff\xff\xff\xff" * 5000, 0xFFFFFFFF),
        element(0x52009230, b"SQ", (b"\xfe\xff\x00\xe0\xff\xff\xff\xff" + ROWS[:0]) * 50, 0xFFFFFFFF),
    ],
)
def test_lengths_that_lie_are_an_error(tmp_path: Path, added: bytes) -> None:
    paths = write_series(tmp_path, [0, 3, 6])
    with_element(paths[1], added, ROWS)
    with pytest.raises(VolumeError, match=r"1\.dcm"):
        load_volume(tmp_path)


def nested(depth: int) -> bytes:
    """Sequences inside each other, all of undefined length."""
    begin = element(0x52009230, b"SQ", b"\xfe\xff\x00\xe0\xff\xff\xff\xff", 0xFFFFFFFF)
    end = b"\xfe\xff\x0d\xe0\0\0\0\0\xfe\xff\xdd\xe0\0\0\0\0"
    return begin * depth + end * depth


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("depth", [500, 100_000])
def test_sequences_nested_deeply_are_an_error(tmp_path: Path, depth: int) -> None:
    paths = write_series(tmp_path, [0, 3, 6])
    with_element(paths[1], nested(depth), ROWS)
    with pytest.raises(VolumeError, match=r"1\.dcm"):
        load_volume(tmp_path)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("syntax", ["explicit", "deflated", "RLE", "JPEG 2000 lossless", "JPEG-LS", "JPEG lossless"])
@pytest.mark.parametrize("attributes", [{"Rows": 65535}, {"Columns": 65535}, {"Rows": 65535, "Columns": 65535}])
def test_sizes_that_lie_are_an_error(tmp_path: Path, syntax: str, attributes: dict[str, int]) -> None:
    (path,) = write_series(tmp_path, [0], pixels=LARGE[:1], SliceThickness=1, syntax=syntax)
    dataset = pydicom.dcmread(path)
    dataset.update(attributes)
    dataset.save_as(path)
    with pytest.raises(VolumeError, match=r"must hold|over the limit|decoding|compressed picture"):
        load_volume(path)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("syntax", ["explicit", "RLE"])
def test_a_number_of_frames_that_lies_is_an_error(tmp_path: Path, syntax: str) -> None:
    path = write_enhanced(tmp_path / "e.dcm", [0, 3, 6], syntax=syntax)
    dataset = pydicom.dcmread(path)
    dataset.NumberOfFrames = 2**31 - 1
    dataset.save_as(path)
    with pytest.raises(VolumeError, match="PixelData must hold|NumberOfFrames, 2147483647"):
        load_volume(path)


@pytest.mark.usefixtures("little_memory")
def test_a_deflate_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    paths = write_series(tmp_path, [0], pixels=[np.zeros((4000, 4000), np.uint16)], SliceThickness=1, syntax="deflated")
    assert paths[0].stat().st_size < 100_000
    with pytest.raises(VolumeError, match="inflates to more than the limit of 1000000 bytes"):
        load_volume(paths[0], max_bytes=1_000_000)


@pytest.mark.parametrize(
    "values",
    [
        {"ImagePositionPatient": "0\\0\\nan"},
        {"ImagePositionPatient": "0\\0\\1e999"},
        {"ImagePositionPatient": "0\\0\\three"},
        {"ImagePositionPatient": "\0\0\0\\0\\3"},
        {"ImagePositionPatient": "0\\0\\3\n"},
        {"ImagePositionPatient": "0\\0\\3.\0\0\0"},
        {"ImagePositionPatient": "0\\0\\1_0"},
        {"PixelSpacing": "1\\"},
        {"PixelSpacing": "\0.5\\0.5"},
        {"RescaleSlope": "x"},
        {"NumberOfFrames": "1.5"},
    ],
)
def test_numbers_that_are_none_are_an_error_that_names_the_element(tmp_path: Path, values: dict[str, str]) -> None:
    paths = write_series(tmp_path, [0, 3, 6], RescaleSlope=1, RescaleIntercept=0, NumberOfFrames=1)
    (keyword, value), text = next(iter(values.items())), b""
    dataset = pydicom.dcmread(paths[1])
    text = value.encode().ljust(len(value) + len(value) % 2)
    dataset[keyword] = pydicom.dataelem.RawDataElement(
        pydicom.tag.Tag(keyword), dataset[keyword].VR, len(text), text, 0, False, True
    )
    dataset.save_as(paths[1])
    with pytest.raises(VolumeError, match=rf"1\.dcm.*{keyword} must be"):
        load_volume(tmp_path)


@pytest.mark.parametrize("syntax", ["explicit", "implicit", "RLE", "JPEG lossless"])
def test_mutated_files_are_an_error_or_a_volume(tmp_path: Path, syntax: str) -> None:
    """A small fuzzer; what it makes of the pixels' numbers cannot be known, but the geometry must be a grid."""
    random = np.random.default_rng(0)
    write_series(tmp_path, [0, 3, 6], pixels=LARGE, syntax=syntax, SeriesDescription="x")
    write_enhanced(tmp_path / "e.dcm", [0, 3, 6], pixels=np.stack(LARGE), syntax=syntax)
    refused = 0
    for name, target in [("1.dcm", [tmp_path / f"{n}.dcm" for n in range(3)]), ("e.dcm", [tmp_path / "e.dcm"])]:
        content = (tmp_path / name).read_bytes()
        for _ in range(150):
            mutated = bytearray(content)
            for at in random.integers(128, len(content), random.integers(1, 4)):
                mutated[at] = random.integers(256)
            (tmp_path / name).write_bytes(mutated)
            try:
                volume = load_volume(target)
            except VolumeError:
                refused += 1
                continue
            assert volume.data.shape == (1, *volume.grid.shape)
            assert np.isfinite(volume.grid.affine.numpy()).all()
        (tmp_path / name).write_bytes(content)
    assert refused > 0


def test_an_empty_sequence_is_no_group(tmp_path: Path) -> None:
    empty = item(PixelSpacing=[1, 1])
    path = write_enhanced(tmp_path / "e.dcm", [0, 3], shared={"PixelMeasuresSequence": empty})
    assert load_volume(path).data.shape == (1, 3, 2, 2)


@pytest.mark.parametrize("vr", ["XX", "SQ", "US"])
def test_numbers_of_a_kind_that_holds_none_are_an_error(tmp_path: Path, vr: str) -> None:
    path = write_series(tmp_path, [0], SliceThickness=1)[0]
    content = path.read_bytes()
    tag = b"\x28\x00\x30\x00"  # PixelSpacing
    assert content.count(tag + b"DS") == 1
    path.write_bytes(content.replace(tag + b"DS", tag + vr.encode()))
    with pytest.raises(VolumeError):
        load_volume(path)
