"""NRRD files as such: whole, where the header says, or an error; nothing large is allocated for a header that lies."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medattn.volumes import VolumeError, load_volume
from tests.volumes.header_writing import COUNTING, raw, write_nrrd

PACKED = {"encoding": "gzip"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.nrrd"


@pytest.fixture(params=["attached", "detached", "attached-gzip", "detached-gzip"])
def write_each(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """``write(voxels, changes)``: with the voxels in the same file or another, packed or not; the file to load."""
    where, _, packing = request.param.partition("-")

    def write(voxels: bytes, changes: dict[str, str | None] | None = None) -> Path:
        content = gzip.compress(voxels) if packing else voxels
        fields = (PACKED if packing else {}) | (changes or {})
        if where == "attached":
            return write_nrrd(tmp_path / "x.nrrd", fields, voxels=content)
        (tmp_path / "x.raw").write_bytes(content)
        return write_nrrd(tmp_path / "x.nhdr", fields | {"data file": "x.raw"}, voxels=b"")

    return write


def refused(path: Path, match: str) -> None:
    with pytest.raises(VolumeError, match=match):
        load_volume(path)


def is_counting(path: Path) -> bool:
    return load_volume(path, strict=True).data.tolist() == [COUNTING.tolist()]


@pytest.mark.parametrize("encoding", ["gzip", "gz", "GZIP"])
def test_every_name_of_gzip(path: Path, encoding: str) -> None:
    assert is_counting(write_nrrd(path, {"encoding": encoding}, voxels=gzip.compress(raw())))


def test_the_bytes_that_are_missing_are_counted(tmp_path: Path) -> None:
    path = write_nrrd(tmp_path / "x.nhdr", {"data file": "x.raw"}, voxels=b"")
    (tmp_path / "x.raw").write_bytes(raw()[:40])
    refused(path, r"x\.raw is truncated: its header promises 48 bytes, but it can hold 40 at most")


@pytest.mark.parametrize("packed", [False, True])
def test_no_part_of_a_file_loads(path: Path, packed: bool) -> None:
    write_nrrd(path, PACKED if packed else {}, voxels=gzip.compress(raw()) if packed else None)
    content = path.read_bytes()
    assert is_counting(path)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        refused(path, r"x\.nrrd: ")


@pytest.mark.parametrize("at", [-5, -1])  # in the checksum, in the length
def test_damage_inside_gzip_is_an_error(path: Path, at: int) -> None:
    write_nrrd(path, PACKED, voxels=gzip.compress(raw()))
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    refused(path, r"reading x\.nrrd, which is truncated or damaged, failed")


def test_gzip_must_be_gzip(path: Path) -> None:
    refused(write_nrrd(path, PACKED), "truncated or damaged")


def test_a_stream_that_goes_on_and_on_is_not_unpacked(path: Path) -> None:
    for fields in (PACKED, PACKED | {"byte skip": str(60 << 20)}):
        write_nrrd(path, fields, voxels=gzip.compress(bytes(200 << 20), 1))
        refused(path, "at most 16384 bytes may follow")
    write_nrrd(path, PACKED | {"byte skip": str(100 << 20)}, voxels=gzip.compress(bytes(200 << 20), 1))
    refused(path, "byte skip must be integers from -1 to 67108864")


def test_a_header_must_end_soon(path: Path) -> None:
    refused(write_nrrd(path, extra="# " + "x" * (1 << 20)), "an empty line must end the header within 1048576 bytes")
    path.write_bytes(b"NRRD0004\n" * 200_000)
    refused(path, "must be 'field: value'")
    path.write_bytes(b"NRRD0004\n" + b"#\n" * 600_000 + b"\n" + raw())
    refused(path, "an empty line must end the header within 1048576 bytes")


# -- skips --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "before"),
    [
        ({"byte skip": "4"}, b"abcd"),
        ({"byte skip": "0", "line skip": "0"}, b""),
        ({"line skip": "2"}, b"abcd\n\n"),
        ({"line skip": "1", "byte skip": "2"}, b"abcd\r\nxy"),
    ],
)
def test_lines_then_bytes_are_skipped(write_each: Any, fields: dict[str, str], before: bytes) -> None:
    path = write_each(b"", fields)
    file = path if path.suffix == ".nrrd" else path.with_name("x.raw")
    packed = b"encoding: gzip" in path.read_bytes()
    lines, other = before[: before.rfind(b"\n") + 1], before[before.rfind(b"\n") + 1 :]  # lines are never packed
    header = path.read_bytes().partition(b"\n\n")[0] + b"\n\n" if file == path else b""
    voxels = other + raw()
    file.write_bytes(header + lines + (gzip.compress(voxels) if packed else voxels))
    assert is_counting(path)


@pytest.mark.parametrize("before", [b"", b"anything\n\nat all"])
def test_a_skip_of_minus_one_takes_the_end_of_the_file(tmp_path: Path, before: bytes) -> None:
    assert is_counting(write_nrrd(tmp_path / "x.nrrd", {"byte skip": "-1"}, voxels=before + raw()))
    (tmp_path / "x.dat").write_bytes(before + raw())
    assert is_counting(write_nrrd(tmp_path / "x.nhdr", {"byte skip": "-1", "data file": "x.dat"}, voxels=b""))
    (tmp_path / "x.dat").write_bytes(raw()[1:])
    refused(tmp_path / "x.nhdr", r"x\.dat is truncated: its header promises 48 bytes, but it holds 47")
    write_nrrd(tmp_path / "x.nrrd", {"byte skip": "-1"}, voxels=raw()[1:])
    refused(tmp_path / "x.nrrd", r"x\.nrrd is truncated: its header promises")


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"byte skip": "-2"}, "byte skip must be integers from -1 to"),
        ({"byte skip": "x"}, "byte skip must be integers from -1 to"),
        ({"byte skip": "1000"}, "is truncated: its header promises"),
        ({"line skip": "-1"}, "line skip must be integers >= 0"),
        ({"line skip": "1"}, "line skip must not go further than 1048576 bytes, nor than the file, got 1"),
        ({"line skip": "99999999999"}, "line skip must not go further"),
        (PACKED | {"byte skip": "-1"}, "byte skip must not be -1 where encoding is gzip"),
    ],
)
def test_a_skip_that_is_none_is_an_error(path: Path, fields: Any, match: str) -> None:
    refused(write_nrrd(path, fields, voxels=raw().replace(b"\n", b"\x0b")), match)


# -- detached headers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["data file", "datafile", "Data File"])
@pytest.mark.parametrize("name", ["x.raw", "below/x.raw", "./x.raw", "two words.raw", "50%.raw", "x.nrrd"])
def test_the_voxels_lie_beside_the_header_or_below(tmp_path: Path, field: str, name: str) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / name).write_bytes(raw())
    path = write_nrrd(tmp_path / "x.nhdr", {field: name}, voxels=b"")
    assert is_counting(path)
    path.write_bytes(path.read_bytes().rstrip())  # without an empty line, nor an end of the last one
    assert is_counting(path)


@pytest.mark.parametrize("name", ["../x.raw", "below/../../x.raw", "/etc/passwd", "..", "below/.."])
def test_a_header_cannot_lead_out_of_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "here" / "below").mkdir(parents=True)
    (tmp_path / "x.raw").write_bytes(raw())
    path = write_nrrd(tmp_path / "here" / "x.nhdr", {"data file": name}, voxels=b"")
    refused(path, "data file must name a file in the folder of the header, or below it, got ")
    write_nrrd(path, {"data file": str(tmp_path / "x.raw")}, voxels=b"")
    refused(path, "data file must name a file in the folder of the header, or below it, got ")


@pytest.mark.parametrize("name", ["missing.raw", "", ".", "below", "x\0.raw", "y" * 5000])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "below").mkdir()
    path = write_nrrd(tmp_path / "x.nhdr", {"data file": name}, voxels=b"")
    refused(path, rf"data file names the file of the voxels, but there is no file '{name[:1].replace('.', '[.]')}")


@pytest.mark.parametrize("value", ["LIST", "LIST 2", "x.%03d.raw 1 4 1", "x%d.raw 1 4 1 2"])
def test_voxels_in_several_files_are_refused(tmp_path: Path, value: str) -> None:
    path = write_nrrd(tmp_path / "x.nhdr", {"data file": value}, voxels=b"x.1.raw\nx.2.raw\n")
    refused(path, rf"data file must name the one file that holds all voxels, got several: '{value}'")


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "1234").write_bytes(raw())
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "x.raw").symlink_to(tmp_path / "store" / "1234")
    assert is_counting(write_nrrd(tmp_path / "here" / "x.nhdr", {"data file": "x.raw"}, voxels=b""))


def test_what_is_read_is_not_copied_again(tmp_path: Path) -> None:
    array = np.zeros((100, 100, 100), np.float32)
    path = write_nrrd(tmp_path / "x.nrrd", {"type": "float", "sizes": "100 100 100"}, voxels=raw(array))
    load_volume(path)
    tracemalloc.start()
    load_volume(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * array.nbytes + (4 << 20)
