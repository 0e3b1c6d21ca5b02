"""MetaImage files as such: whole, where the header says, or an error; nothing large is allocated for one that lies."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medattn.volumes import NoteKind, VolumeError, VolumeWarning, load_volume
from tests.volumes.header_writing import COUNTING, raw, write_metaimage

PACKED = {"CompressedData": "True"}


def refused(path: Path, match: str) -> None:
    with pytest.raises(VolumeError, match=match):
        load_volume(path)


def is_counting(path: Path) -> bool:
    return load_volume(path, strict=True).data.tolist() == [COUNTING.tolist()]


@pytest.mark.parametrize("local", ["LOCAL", "Local", "local"])
def test_local_is_the_same_file(tmp_path: Path, local: str) -> None:
    assert is_counting(write_metaimage(tmp_path / "x.mhd", data_file=local))


@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_many_pieces_are_unpacked(tmp_path: Path, level: int) -> None:
    array = np.random.default_rng(0).integers(0, 1000, (90, 80, 70)).astype("<i2")
    fields = PACKED | {"DimSize": "90 80 70"}
    path = write_metaimage(tmp_path / "x.mha", fields, voxels=zlib.compress(raw(array), level))
    assert np.array_equal(load_volume(path, strict=True).data[0].numpy(), array)
    assert np.array_equal(load_volume(path, labels=True).data[0].numpy(), array)


@pytest.mark.parametrize(("more", "accepted"), [(1, True), (16384, True), (16385, False)])
@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress])
def test_what_follows_a_packed_stream_is_no_different(tmp_path: Path, pack: Any, more: int, accepted: bool) -> None:
    voxels = pack(raw()) + bytes(more)
    check_trailing(write_metaimage(tmp_path / "x.mha", PACKED, voxels=voxels), more, accepted)


def check_trailing(path: Path, more: int, accepted: bool) -> None:
    if not accepted:
        refused(path, "holds more than its header says: at most 16384 bytes may follow the last voxel")
        return
    with pytest.warns(VolumeWarning, match=rf"x\.(raw|mha) holds {more} bytes more than its header says"):
        volume = load_volume(path)
    assert volume.data.tolist() == [COUNTING.tolist()]
    assert [(note.kind, note.values) for note in volume.notes] == [(NoteKind.FIELDS_DISAGREE, {"bytes": more})]


def test_what_follows_is_seen_also_where_the_stream_ends_with_a_piece(tmp_path: Path) -> None:
    count = next(
        n for n in range(65_000, 66_000) if len(zlib.compress(bytes(n), 0)) == 1 << 16
    )  # as much as is read at once
    fields = PACKED | {"DimSize": f"{count} 1 1", "ElementType": "MET_UCHAR"}
    path = write_metaimage(tmp_path / "x.mha", fields, voxels=zlib.compress(bytes(count), 0) + bytes(9))
    with pytest.warns(VolumeWarning, match="holds 9 bytes more than its header says"):
        load_volume(path)


@pytest.mark.parametrize("pack", [None, zlib.compress, gzip.compress])
def test_no_part_of_a_file_loads(tmp_path: Path, pack: Any) -> None:
    path = write_metaimage(tmp_path / "x.mha", PACKED if pack else {}, voxels=pack(raw()) if pack else None)
    content = path.read_bytes()
    assert is_counting(path)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        refused(path, r"x\.mha: ")


@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress])
def test_a_wrong_sum_is_an_error(tmp_path: Path, pack: Any) -> None:
    packed = bytearray(pack(raw()))
    packed[-1] ^= 1
    path = write_metaimage(tmp_path / "x.mha", PACKED, voxels=bytes(packed))
    refused(path, r"reading x\.mha, which is truncated or damaged, failed")


def test_packed_must_be_packed(tmp_path: Path) -> None:
    refused(write_metaimage(tmp_path / "x.mha", PACKED), r"reading x\.mha, which is truncated or damaged, failed")


def test_a_stream_that_goes_on_and_on_is_not_unpacked(tmp_path: Path) -> None:
    path = write_metaimage(tmp_path / "x.mha", PACKED, voxels=zlib.compress(bytes(200 << 20), 1))
    refused(path, "at most 16384 bytes may follow the last voxel")
    tracemalloc.start()
    refused(path, "at most 16384 bytes may follow the last voxel")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 22


def test_a_header_must_end_soon(tmp_path: Path) -> None:
    refused(
        write_metaimage(tmp_path / "x.mha", {"Comment": "x" * (1 << 20)}),
        "ElementDataFile must end the header within 1048576 bytes",
    )


# -- HeaderSize ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["0", "-1"])
def test_a_header_size_in_the_same_file(tmp_path: Path, size: str) -> None:
    assert is_counting(write_metaimage(tmp_path / "x.mha", {"HeaderSize": size}))


@pytest.mark.parametrize(("size", "before"), [("5", b"abcde"), ("-1", b"abcde"), ("-1", b"")])
def test_a_header_size_of_another_file(tmp_path: Path, size: str, before: bytes) -> None:
    path = write_metaimage(tmp_path / "x.mhd", {"HeaderSize": size}, voxels=b"", data_file="x.raw")
    (tmp_path / "x.raw").write_bytes(before + raw())
    assert is_counting(path)
    if size == "-1":
        (tmp_path / "x.raw").write_bytes(raw()[1:])
        refused(path, r"x\.raw is truncated: its header promises 48 bytes, but it holds 47")
        return
    write_metaimage(path, PACKED | {"HeaderSize": size}, voxels=b"", data_file="x.raw")
    (tmp_path / "x.raw").write_bytes(before + zlib.compress(raw()))
    assert is_counting(path)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"HeaderSize": "-2"}, "HeaderSize must be integers from -1 to 67108864, got '-2'"),
        ({"HeaderSize": "10"}, r"HeaderSize must be 0 or -1 where the voxels follow the header \(LOCAL\), got 10"),
        (PACKED | {"HeaderSize": "-1"}, "HeaderSize must not be -1 where CompressedData is True"),
    ],
)
def test_a_header_size_that_is_none_is_an_error(tmp_path: Path, fields: Any, match: str) -> None:
    refused(write_metaimage(tmp_path / "x.mha", fields), match)


# -- detached headers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.raw", "below/x.raw", "./x.raw", "two words.raw", "50%.raw", "x.mha", "local.raw"])
def test_the_voxels_lie_beside_the_header_or_below(tmp_path: Path, name: str) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / name).write_bytes(raw())
    path = write_metaimage(tmp_path / "x.mhd", voxels=b"", data_file=name)
    assert is_counting(path)
    path.write_bytes(path.read_bytes().rstrip())  # without an end of the last line
    assert is_counting(path)


@pytest.mark.parametrize("name", ["../x.raw", "below/../../x.raw", "/etc/passwd", "..", "below/.."])
def test_a_header_cannot_lead_out_of_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "here" / "below").mkdir(parents=True)
    (tmp_path / "x.raw").write_bytes(raw())
    for data_file in (name, str(tmp_path / "x.raw")):
        path = write_metaimage(tmp_path / "here" / "x.mhd", voxels=b"", data_file=data_file)
        refused(path, "ElementDataFile must name a file in the folder of the header, or below it, got ")


@pytest.mark.parametrize("name", ["missing.raw", "", ".", "below", "x\0.raw", "y" * 5000])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "below").mkdir()
    path = write_metaimage(tmp_path / "x.mhd", voxels=b"", data_file=name)
    refused(
        path, rf"ElementDataFile names the file of the voxels, but there is no file '{name[:1].replace('.', '[.]')}"
    )


@pytest.mark.parametrize("value", ["LIST", "LIST 2", "x.%03d.raw 1 4 1", "x%d.raw 1 4 1"])
def test_voxels_in_several_files_are_refused(tmp_path: Path, value: str) -> None:
    path = write_metaimage(tmp_path / "x.mhd", voxels=b"x.1.raw\nx.2.raw\n", data_file=value)
    refused(path, rf"ElementDataFile must name the one file that holds all voxels, got several: '{value}'")
