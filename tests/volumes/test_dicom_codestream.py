"""Compressed pictures are found, measured and checked before they are decoded."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from medattn.volumes import VolumeError, load_volume
from medattn.volumes.dicom.codestream import PLUGINS, RLE, Picture, check_picture, compressed_frames

pydicom = pytest.importorskip("pydicom")
from pydicom.encaps import encapsulate, generate_frames  # noqa: E402

from tests.volumes.dicom_writing import LOSSLESS, LOSSY, SYNTAXES, write_enhanced, write_series  # noqa: E402

COMPRESSED = {**LOSSLESS, **LOSSY}
MEASURED = [name for name in COMPRESSED if name != "RLE"]
ROWS, COLUMNS = 40, 36
END = b"\xfe\xff\xdd\xe0" + bytes(4)


def items(*fragments: bytes, end: bytes = END) -> bytes:
    """Encapsulated pixel data: the first of ``fragments`` is the table of offsets."""
    return b"".join(b"\xfe\xff\x00\xe0" + struct.pack("<L", len(f)) + f for f in fragments) + end


def frames(content: bytes, count: int) -> list[bytes]:
    return compressed_frames(BytesIO(content), len(content), count)


def offsets(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}L", *numbers)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (items(b"", b"one!"), [b"one!"]),
        (items(b"", b"on", b"e!"), [b"one!"]),
        (items(b"", b"one!", b"two!"), [b"one!", b"two!"]),
        (items(offsets(0, 12), b"one!", b"two!"), [b"one!", b"two!"]),
        (items(offsets(0, 20), b"on", b"e!", b"two!"), [b"one!", b"two!"]),
        (items(offsets(0, 12), b"one!", b"tw", b"o!"), [b"one!", b"two!"]),
    ],
)
def test_fragments_make_frames(content: bytes, expected: Sequence[bytes]) -> None:
    assert frames(content, len(expected)) == expected


@pytest.mark.parametrize(
    ("content", "count", "said"),
    [
        (b"", 1, "no item begins after 0 fragments"),
        (items(b"", b"one!", end=b""), 1, "no item begins after 2 fragments"),
        (items(b"", b"one!")[:-10], 1, "truncated or damaged"),
        (items(b"")[:-8] + b"\xfe\xff\x00\xe0\xff\xff\xff\xffone!", 1, "a fragment of 4294967295 bytes has 4 left"),
        (items(), 1, "NumberOfFrames, 1, compressed frames, but holds 0 fragments"),
        (items(b""), 1, "NumberOfFrames, 1, compressed frames, but holds 0 fragments"),
        (items(b"", b"one!"), 2, "NumberOfFrames, 2, compressed frames, but holds 1 fragments"),
        (items(b"", b"one!"), 2**31, "NumberOfFrames, 2147483648, compressed frames"),
        (items(b"", b"on", b"e!", b"two!"), 2, "no table that says which make a frame"),
        (items(offsets(0, 13), b"on", b"e!", b"two!"), 2, "no table"),
        (items(offsets(10, 20), b"on", b"e!", b"two!"), 2, "no table"),
        (items(offsets(0, 0), b"on", b"e!", b"two!"), 2, "no table"),
        (items(offsets(0, 20)[:-1], b"on", b"e!", b"two!"), 2, "no table"),
    ],
)
def test_fragments_that_make_no_frames_are_an_error(content: bytes, count: int, said: str) -> None:
    with pytest.raises(VolumeError, match=said):
        frames(content, count)


def picture(path: Path, syntax: str) -> bytes:
    """The one compressed frame of a grey picture of 8 bits."""
    pixels = np.add.outer(np.arange(ROWS), 3 * np.arange(COLUMNS)).astype(np.uint8)
    write_series(path, [0], pixels=[pixels], SliceThickness=1, syntax=syntax)
    content = pydicom.dcmread(path / "0.dcm").PixelData
    return next(generate_frames(content, number_of_frames=1))


@pytest.mark.parametrize("syntax", COMPRESSED)
def test_a_picture_as_the_header_says_passes(tmp_path: Path, syntax: str) -> None:
    frame = picture(tmp_path, syntax)
    check_picture(frame, SYNTAXES[syntax], Picture(ROWS, COLUMNS, 1, 8))
    assert set(PLUGINS) >= {str(uid) for uid in COMPRESSED.values()}


@pytest.mark.parametrize("syntax", MEASURED)
@pytest.mark.parametrize(
    "wanted", [(ROWS + 1, COLUMNS, 1), (ROWS, COLUMNS - 1, 1), (COLUMNS, ROWS, 1), (ROWS, COLUMNS, 3)]
)
def test_a_picture_of_another_size_is_an_error(tmp_path: Path, syntax: str, wanted: tuple[int, int, int]) -> None:
    frame = picture(tmp_path, syntax)
    with pytest.raises(VolumeError, match=r"Rows, Columns and SamplesPerPixel .* but is \(40, 36, 1\)"):
        check_picture(frame, SYNTAXES[syntax], Picture(*wanted, 8))


@pytest.mark.parametrize("syntax", MEASURED)
def test_a_picture_cut_off_anywhere_is_an_error(tmp_path: Path, syntax: str) -> None:
    frame = picture(tmp_path, syntax).rstrip(b"\0")
    for length in range(len(frame)):
        with pytest.raises(VolumeError, match="truncated|damaged"):
            check_picture(frame[:length], SYNTAXES[syntax], Picture(ROWS, COLUMNS, 1, 8))


@pytest.mark.parametrize("syntax", MEASURED)
def test_a_picture_with_more_bits_than_allocated_is_an_error(tmp_path: Path, syntax: str) -> None:
    with pytest.raises(VolumeError, match="must fit BitsAllocated, 7, but has 8 bits"):
        check_picture(picture(tmp_path, syntax), SYNTAXES[syntax], Picture(ROWS, COLUMNS, 1, 7))


def test_a_jp2_file_in_a_frame_is_measured_too(tmp_path: Path) -> None:
    codestream = picture(tmp_path, "JPEG 2000 lossless").rstrip(b"\0")
    boxes = b"\0\0\0\x0cjP  \r\n\x87\n" + struct.pack(">L4s", 8 + len(codestream), b"jp2c") + codestream
    check_picture(boxes, SYNTAXES["JPEG 2000"], Picture(ROWS, COLUMNS, 1, 8))
    with pytest.raises(VolumeError, match="but is"):
        check_picture(boxes, SYNTAXES["JPEG 2000"], Picture(1, 1, 1, 8))


def test_run_lengths_of_another_number_of_pixels_are_an_error(tmp_path: Path) -> None:
    (path,) = write_series(tmp_path, [0], SliceThickness=1, syntax="RLE")
    dataset = pydicom.dcmread(path)
    dataset.Rows = 3
    dataset.save_as(path)
    with pytest.raises(VolumeError, match="decoding PixelData .RLE Lossless. failed"):
        load_volume(path)
    assert RLE in PLUGINS


def test_jpeg_lossless_of_twelve_bits(tmp_path: Path) -> None:
    """The first prediction is half the range, so that a picture called 12-bit comes out by 2**15 - 2**11 lower."""
    pixels = np.add.outer(60 * np.arange(ROWS), 40 * np.arange(COLUMNS)).astype(np.uint16)
    assert pixels.max() < 4096
    stored = pixels + np.uint16(2**15 - 2**11)
    paths = write_series(tmp_path, [0, 3], pixels=[stored] * 2, syntax="JPEG lossless")
    for path in paths:
        dataset = pydicom.dcmread(path)
        frame = bytearray(next(generate_frames(dataset.PixelData, number_of_frames=1)))
        at = frame.index(b"\xff\xc3") + 4
        assert frame[at] == 16
        frame[at] = 12
        dataset.PixelData, dataset.BitsStored, dataset.HighBit = encapsulate([bytes(frame)]), 12, 11
        dataset.save_as(path)
    np.testing.assert_array_equal(load_volume(tmp_path).data[0, :, :, 1].T.numpy(), pixels)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"\xff\xc3", b"\xff\xc1", "only segments of lossless JPEG"),
        (b"\xff\xc4", b"\xff\xcc", "only segments of lossless JPEG"),
        (b"\xff\xc4", b"\xff\xfe", "one scan of all components, with a table for each"),
        (b"\xff\xda\x00\x08\x01", b"\xff\xda\x00\x08\x02", "one scan of all components"),
        (b"\xff\xda", b"\xff\xfe", "a scan"),
    ],
)
def test_damaged_jpeg_lossless_never_reaches_the_decoder(tmp_path: Path, old: bytes, new: bytes, said: str) -> None:
    frame = picture(tmp_path, "JPEG lossless")
    assert old in frame
    with pytest.raises(VolumeError, match=f"lossless JPEG must have {said}"):
        check_picture(frame.replace(old, new, 1), SYNTAXES["JPEG lossless"], Picture(ROWS, COLUMNS, 1, 8))


@pytest.mark.parametrize("fragment_bytes", [100, 501])
def test_frames_in_several_fragments(tmp_path: Path, fragment_bytes: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 4096, (3, ROWS, COLUMNS)).astype(np.uint16)
    path = write_enhanced(tmp_path / "many.dcm", [0, 3, 6], pixels=pixels, syntax="JPEG 2000 lossless")
    dataset = pydicom.dcmread(path)
    whole = list(generate_frames(dataset.PixelData, number_of_frames=3))
    dataset.PixelData = encapsulate(whole, fragments_per_frame=-(-len(whole[0]) // fragment_bytes))
    dataset.save_as(path)
    np.testing.assert_array_equal(load_volume(path).data[0].numpy(), pixels.T)


@pytest.mark.parametrize("length", [8, None])
def test_compressed_pixels_in_a_file_that_calls_them_native_are_an_error(tmp_path: Path, length: int | None) -> None:
    (path,) = write_series(tmp_path, [0], SliceThickness=1, syntax="RLE")
    native = pydicom.uid.ExplicitVRLittleEndian if length is None else pydicom.uid.JPEG2000
    content = path.read_bytes().replace(b"1.2.840.10008.1.2.5\0", str(native).encode()[:19].ljust(20, b"\0"))
    path.write_bytes(content)
    with pytest.raises(VolumeError, match="its length is undefined|decoding|compressed picture|cannot be read"):
        load_volume(path)


@pytest.mark.parametrize("uid", ["1.2.840.10008.1.2.4.100", "1.2.840.10008.1.2.4.201", "1.2.3.4"])
def test_an_unknown_transfer_syntax_is_an_error(tmp_path: Path, uid: str) -> None:
    (path,) = write_series(tmp_path, [0], SliceThickness=1, syntax="RLE")
    dataset = pydicom.dcmread(path)
    dataset.file_meta.TransferSyntaxUID = uid
    dataset.save_as(path, implicit_vr=False, little_endian=True)
    with pytest.raises(VolumeError, match="PixelData in transfer syntax .* cannot be read"):
        load_volume(path)
