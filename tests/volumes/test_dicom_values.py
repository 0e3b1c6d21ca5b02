"""What DICOM pixels mean: number types, byte orders, compression, colours, scale, lookup tables, labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from medattn.volumes import NoteKind, VolumeError, load_volume

pydicom = pytest.importorskip("pydicom")
from tests.volumes.dicom_writing import (  # noqa: E402
    LOSSLESS,
    LOSSY,
    NATIVE,
    counting,
    item,
    write_enhanced,
    write_series,
    write_slice,
)

ROWS, COLUMNS = 40, 36


def smooth(count: int, dtype: Any) -> NDArray[Any]:
    """Frames (count, ROWS, COLUMNS) that any codec takes, over the whole range of 8 bits or 12."""
    rows, columns = np.mgrid[:ROWS, :COLUMNS]
    waves = np.stack([np.sin(rows / (5 + k)) * np.cos(columns / 7) for k in range(count)])
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if info.bits == 8 else (-2048 if info.min else 0, 2047 if info.min else 4095)
    return np.rint(low + (waves + 1) / 2 * (high - low)).astype(dtype)


def assert_values(path: Path, expected: NDArray[Any], atol: float = 0) -> None:
    """``expected`` (K, J, I) is what the file or folder holds."""
    data = load_volume(path).data[0].numpy()
    np.testing.assert_allclose(data, np.transpose(expected).astype(np.float32), rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("stored", "scale", "expected"),
    [
        (0, (1, -1024), -1024.0),
        (40000, (1, 0), 40000.0),
        (40000, (1, -1024), 38976.0),
        (65535, (0.5, 10), 32777.5),
        (10, (None, -5), 5.0),
        (10, (2, None), 20.0),
        (10, (None, None), 10.0),
        (10, (-1, 0), -10.0),
        (3, (0.1, 0), np.float32(0.1 * 3)),
    ],
)
def test_rescale_is_applied_once(tmp_path: Path, stored: int, scale: Any, expected: float) -> None:
    pixels = [np.full((2, 3), stored, np.uint16)] * 2
    write_series(tmp_path, [0, 3], pixels=pixels, RescaleSlope=scale[0], RescaleIntercept=scale[1])
    data = load_volume(tmp_path).data
    assert data.dtype == torch.float32
    assert data.unique().tolist() == [expected]


def test_each_slice_has_its_own_scale_wherever_it_is_sorted_to(tmp_path: Path) -> None:
    each: dict[str, Any] = {"RescaleSlope": [1, 2, 0.5], "RescaleIntercept": [0, 1, 0]}
    write_series(tmp_path, [3, 6, 0], pixels=[np.full((2, 3), 10, np.uint16)] * 3, each=each)
    assert load_volume(tmp_path).data[0, 0, 0].tolist() == [5, 10, 21]


def test_slopes_per_slice(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3, 6], pixels=[np.full((2, 3), 10, np.uint16)] * 3, each={"RescaleSlope": [0.5, 1, 2]})
    assert load_volume(tmp_path).data[0, 2, 1].tolist() == [5, 10, 20]


def test_a_scale_in_some_slices_only_is_an_error(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3], each={"RescaleSlope": [1, None], "RescaleIntercept": [-1024, None]})
    with pytest.raises(VolumeError, match=r"a scale in 0\.dcm \(instance 1\) and no scale in 1\.dcm"):
        load_volume(tmp_path)


@pytest.mark.parametrize(("value", "said"), [("0", "RescaleSlope must not be 0"), ("1\\2", "must be 1 finite number")])
def test_a_scale_that_is_none_is_an_error(tmp_path: Path, value: str, said: str) -> None:
    write_series(tmp_path, [0, 3], RescaleSlope=value.split("\\"), RescaleIntercept=0)
    with pytest.raises(VolumeError, match=said):
        load_volume(tmp_path)


@pytest.mark.parametrize("syntax", NATIVE)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32])
def test_every_integer_type_in_every_byte_order(tmp_path: Path, syntax: str, dtype: Any) -> None:
    info = np.iinfo(dtype)
    pixels = np.array([[info.min, info.max, 1], [2, 3, 100]], dtype)
    write_series(tmp_path, [0, 3], pixels=[pixels, pixels[::-1]], syntax=syntax)
    if info.bits < 32:
        assert_values(tmp_path, np.stack([pixels, pixels[::-1]]))
    else:
        with pytest.warns(UserWarning, match="float32 cannot hold"):
            assert_values(tmp_path, np.stack([pixels, pixels[::-1]]))


@pytest.mark.parametrize("syntax", LOSSLESS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16])
@pytest.mark.parametrize("bits", [None, 12])
def test_lossless_compression(tmp_path: Path, syntax: str, dtype: Any, bits: int | None) -> None:
    if bits and dtype == np.uint8:
        bits = 7
    pixels = smooth(3, dtype) // (2 if bits == 7 else 1)
    options: dict[str, Any] = {} if bits is None else {"BitsStored": bits}
    write_series(tmp_path / "classic", [0, 3, 6], pixels=pixels, syntax=syntax, **options)
    assert_values(tmp_path / "classic", pixels)
    write_enhanced(tmp_path / "enhanced.dcm", [6, 3, 0], pixels=pixels, syntax=syntax, **options)
    assert_values(tmp_path / "enhanced.dcm", pixels[::-1])


@pytest.mark.parametrize("syntax", LOSSY)
def test_lossy_compression(tmp_path: Path, syntax: str) -> None:
    pixels = smooth(3, np.uint8)
    write_series(tmp_path / "classic", [0, 3, 6], pixels=pixels, syntax=syntax)
    assert_values(tmp_path / "classic", pixels, atol=8)
    write_enhanced(tmp_path / "enhanced.dcm", [6, 3, 0], pixels=pixels, syntax=syntax)
    assert_values(tmp_path / "enhanced.dcm", pixels[::-1], atol=8)


@pytest.mark.parametrize("syntax", ["RLE", "JPEG lossless"])  # pyjpegls cannot write so small ones
def test_small_compressed_images(tmp_path: Path, syntax: str) -> None:
    write_series(tmp_path, [0, 3], syntax=syntax)
    assert_values(tmp_path, np.stack([counting(0), counting(1)]))


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_floating_point_pixels(tmp_path: Path, kind: str) -> None:
    pixels = np.array([[0.1, -1e30, 3], [np.nan, 5, 6]], kind)
    write_series(tmp_path, [0, 3], pixels=[pixels, pixels])
    with pytest.warns(UserWarning, match="2 of 12 voxels are NaN"):
        assert_values(tmp_path, np.stack([pixels, pixels]))


def test_bits_above_bits_stored_are_no_part_of_the_value(tmp_path: Path) -> None:
    pixels = np.array([[0x0FFF, 0xF001, 0x8000], [1, 2, 0x0800]], np.uint16)
    write_series(tmp_path / "unsigned", [0, 3], pixels=[pixels] * 2, BitsStored=12)
    assert load_volume(tmp_path / "unsigned").data[0, :, :, 0].T.tolist() == [[4095, 1, 0], [1, 2, 2048]]
    write_series(tmp_path / "signed", [0, 3], pixels=[pixels.view(np.int16)] * 2, BitsStored=12)
    assert load_volume(tmp_path / "signed").data[0, :, :, 0].T.tolist() == [[-1, 1, 0], [1, 2, -2048]]


@pytest.mark.parametrize("frames", [1, 3])
def test_big_endian_words_of_two_bytes(tmp_path: Path, frames: int) -> None:
    pixels = np.arange(15 * frames, dtype=np.uint8).reshape(frames, 3, 5)
    path = write_enhanced(
        tmp_path / "words.dcm",
        [3 * k for k in range(frames)],
        pixels=pixels,
        syntax="big endian",
        shared={"PixelMeasuresSequence": item(PixelSpacing=[1, 1], SliceThickness=3)},
    )
    dataset = pydicom.dcmread(path)
    content = dataset.PixelData
    dataset.PixelData = np.frombuffer(content, np.uint16).byteswap().tobytes()
    dataset["PixelData"].VR = "OW"
    dataset.save_as(path, enforce_file_format=True)
    assert_values(path, pixels)


def test_monochrome1_and_padding_stay_as_stored(tmp_path: Path) -> None:
    attributes: dict[str, Any] = {
        "PhotometricInterpretation": "MONOCHROME1",
        "PixelPaddingValue": 3,
        "RescaleIntercept": 100,
    }
    write_series(tmp_path, [0, 3], **attributes)
    assert_values(tmp_path, np.stack([counting(0), counting(1)]) + 100)


@pytest.mark.parametrize("planar", [0, 1])
@pytest.mark.parametrize("syntax", NATIVE)
def test_colours_are_channels(tmp_path: Path, planar: int, syntax: str) -> None:
    pixels = np.arange(2 * 2 * 3 * 3, dtype=np.uint8).reshape(2, 2, 3, 3)
    stored = np.moveaxis(pixels, -1, 1) if planar else pixels
    each = {"PixelData": [frame.tobytes() for frame in stored]}
    write_series(tmp_path, [0, 3], pixels=pixels, each=each, PlanarConfiguration=planar, syntax=syntax)
    volume = load_volume(tmp_path)
    np.testing.assert_array_equal(volume.data.numpy(), pixels.transpose(3, 2, 1, 0))
    (note,) = volume.notes
    assert note.kind is NoteKind.CHANNELS
    assert note.values == {"channels": 3, "axis": "colour"}
    with pytest.raises(VolumeError, match="labels must have one channel, got 3"):
        load_volume(tmp_path, labels=True)


@pytest.mark.parametrize(
    ("syntax", "atol"),  # 2 x 2 pixels share their colour differences in JPEG baseline
    [("RLE", 0), ("JPEG-LS", 0), ("JPEG lossless", 0), ("JPEG 2000 lossless", 0), ("JPEG baseline", 25)],
)
def test_compressed_colours(tmp_path: Path, syntax: str, atol: float) -> None:
    pixels = np.stack([smooth(2, np.uint8), 255 - smooth(2, np.uint8), smooth(3, np.uint8)[1:]], axis=-1)
    write_series(tmp_path, [0, 3], pixels=pixels, syntax=syntax)
    data = load_volume(tmp_path).data.numpy()
    np.testing.assert_allclose(data, pixels.transpose(3, 2, 1, 0), rtol=0, atol=atol)


def test_luminance_and_colour_differences_become_rgb(tmp_path: Path) -> None:
    red, green, blue = (76, 85, 255), (150, 44, 21), (29, 255, 107)  # YBR_FULL, ITU-T T.871
    pixels = np.array([[red, green, blue], [(0, 128, 128), (255, 128, 128), (77, 128, 128)]], np.uint8)
    write_series(tmp_path, [0, 3], pixels=[pixels] * 2, PhotometricInterpretation="YBR_FULL")
    colours = load_volume(tmp_path).data[:, :, :, 0].permute(2, 1, 0).numpy()
    expected = [[(255, 0, 0), (0, 255, 0), (0, 0, 255)], [(0, 0, 0), (255, 255, 255), (77, 77, 77)]]
    np.testing.assert_allclose(colours, expected, atol=2)


@pytest.mark.parametrize(("bits", "first"), [(16, 10), (8, 10), (16, -2)])
def test_modality_lookup_table(tmp_path: Path, bits: int, first: int) -> None:
    entries = [100, 200, 50, 255]
    data = bytes(entries) if bits == 8 else np.array(entries, "<u2").tobytes()
    table = item(LUTDescriptor=[4, first, bits], ModalityLUTType="HU", LUTData=data)
    pixels = np.array([[first - 5, first, first + 1], [first + 2, first + 3, first + 99]], np.int16)
    write_series(tmp_path, [0, 3], pixels=[pixels] * 2, ModalityLUTSequence=[table])
    assert load_volume(tmp_path).data[0, :, :, 1].T.tolist() == [[100, 100, 200], [50, 255, 255]]


def test_a_table_of_another_length_than_it_says_is_an_error(tmp_path: Path) -> None:
    table = item(LUTDescriptor=[5, 0, 16], LUTData=bytes(8))
    write_series(tmp_path, [0, 3], ModalityLUTSequence=[table])
    with pytest.raises(VolumeError, match="LUTData must have 5 entries, as LUTDescriptor says, got 4"):
        load_volume(tmp_path)


def test_labels_are_integers_where_there_is_no_scale(tmp_path: Path) -> None:
    largest = 2**24 + 1
    pixels = np.array([[0, 1, 2], [3, 4, largest]], np.uint32)
    write_series(tmp_path, [0, 3], pixels=[pixels] * 2, RescaleSlope=1, RescaleIntercept=0)
    volume = load_volume(tmp_path, labels=True, strict=True)
    assert volume.data.dtype == torch.int64
    assert volume.data[0, :, :, 0].T.tolist() == pixels.tolist()


def test_labels_with_a_scale_are_rounded(tmp_path: Path) -> None:
    write_series(
        tmp_path, [0, 3], pixels=[np.full((2, 3), 20, np.uint8)] * 2, RescaleSlope="0.0996", RescaleIntercept=1
    )
    volume = load_volume(tmp_path, labels=True)
    assert volume.data.unique().tolist() == [3]
    assert [note.kind for note in volume.notes] == [NoteKind.LABELS_ROUNDED]


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "PhotometricInterpretation must be one of MONOCHROME1"),
        ({"PhotometricInterpretation": None}, "PhotometricInterpretation must be one of"),
        ({"SamplesPerPixel": 3}, "SamplesPerPixel must be 1, got 3"),
        ({"BitsAllocated": 12}, "BitsAllocated must be 8 or 16 or 32, got 12"),
        ({"BitsAllocated": 1}, "BitsAllocated must be 8 or 16 or 32, got 1"),
        ({"BitsStored": 17}, "BitsStored must be from 1 to 16, got 17"),
        ({"BitsStored": 0}, "BitsStored must be from 1 to 16, got 0"),
        ({"BitsStored": 12, "HighBit": 15}, "HighBit must be BitsStored - 1, 11, got 15"),
        ({"PixelRepresentation": None}, "PixelRepresentation must be 0 or 1, got None"),
        ({"Rows": 0}, "Rows must be positive, got 0"),
        ({"Columns": None}, "Columns must be positive, got None"),
        ({"Rows": 65535}, r"must hold 393210 bytes .*\(196605 numbers.* but its length is 12"),
        ({"Rows": 1}, "must hold 6 bytes .* but its length is 12"),
        ({"NumberOfFrames": 2}, r"must hold 24 bytes \(12 numbers: 2 x \(2, 3\)\), but its length is 12"),
        ({"NumberOfFrames": 2**31 - 1}, "must hold 25769803764 bytes"),
        ({"NumberOfFrames": -1}, "must hold -12 bytes"),
    ],
)
def test_pixels_that_the_header_does_not_describe_are_an_error(
    tmp_path: Path, attributes: dict[str, Any], said: str
) -> None:
    path = write_slice(tmp_path / "one.dcm", counting(0), (0, 0, 0), SliceThickness=1, **attributes)
    with pytest.raises(VolumeError, match=said):
        load_volume(path)


def test_files_with_different_number_types_are_an_error(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3], pixels=[counting(0), counting(1, np.uint16)])
    with pytest.raises(VolumeError, match=r"same dtype, got int16 in 0\.dcm and uint16 in 1\.dcm"):
        load_volume(tmp_path)


def test_voxels_are_bounded(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 3])
    assert load_volume(tmp_path, max_bytes=24).data.shape == (1, 3, 2, 2)
    with pytest.raises(VolumeError, match="needs 24 bytes, over the limit of 23"):
        load_volume(tmp_path, max_bytes=23)
