"""Files that may be packed: the same bytes either way, and never more memory than they can fill."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from medattn.volumes import VolumeError
from medattn.volumes.gzipped import MAGIC, MAX_RATIO, open_bytes

NAMES = ("plain", "packed")
BYTE, INT16, INT32 = np.dtype("<u1"), np.dtype("<i2"), np.dtype(">i4")


def written(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(gzip.compress(content) if name == "packed" else content)
    return folder / name


@pytest.mark.parametrize("name", NAMES)
def test_bytes_come_in_order_and_end(tmp_path: Path, name: str) -> None:
    with open_bytes(written(tmp_path, name, bytes(range(100)))) as stream:
        assert (stream.name, stream.position) == (name, 0)
        assert list(stream.read(3)) == [0, 1, 2]
        assert stream.numbers(4, BYTE, BYTE).tolist() == [3, 4, 5, 6]
        assert list(stream.read(2)) == [7, 8]
        assert stream.position == 9
        assert len(stream.read(1000)) == 91
        assert stream.read(1) == b""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stored", ["<i2", ">i2", "<f4", ">f8", "u1"])
@pytest.mark.parametrize("wanted", ["i8", "f4"])
def test_numbers_come_as_wanted_over_many_pieces(tmp_path: Path, stored: str, wanted: str, name: str) -> None:
    values = np.arange(300_001) % 251  # more than one piece, and no whole number of them
    path = written(tmp_path, name, b"head!" + values.astype(stored).tobytes() + b"tail")
    with open_bytes(path) as stream:
        assert stream.read(5) == b"head!"
        numbers = stream.numbers(len(values), np.dtype(stored), np.dtype(wanted))
        assert stream.read(10) == b"tail"
    assert numbers.dtype == wanted
    assert np.array_equal(numbers, values)
    assert numbers.flags.writeable


def test_capacity_is_the_length_or_the_most_that_gzip_can_hold(tmp_path: Path) -> None:
    content = bytes(10 << 20)
    for name in NAMES:
        path = written(tmp_path, name, content)
        with open_bytes(path) as stream:
            assert stream.capacity == path.stat().st_size * (MAX_RATIO if name == "packed" else 1)
            assert stream.capacity >= len(content)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_a_file_cannot_hold_are_not_allocated(tmp_path: Path, name: str) -> None:
    with open_bytes(written(tmp_path, name, bytes(100))) as stream:
        tracemalloc.start()
        with pytest.raises(VolumeError, match=rf"{name} is truncated: its header promises 400000000 bytes, but it can"):
            stream.numbers(10**8, INT32, INT32)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(("name", "holds"), [("plain", "can hold 99 at most"), ("packed", "holds 99")])
def test_numbers_that_are_missing_are_counted(tmp_path: Path, name: str, holds: str) -> None:
    with open_bytes(written(tmp_path, name, bytes(99))) as stream:
        stream.read(9)
        with pytest.raises(VolumeError, match=rf"{name} is truncated: its header promises 109 bytes, but it {holds}"):
            stream.numbers(50, INT16, INT16)


@pytest.mark.parametrize("length", [2, 5, 12, -9, -8, -4, -1])
def test_a_stream_that_is_cut_is_an_error_not_an_end(tmp_path: Path, length: int) -> None:
    path = written(tmp_path, "packed", bytes(range(256)) * 4)
    path.write_bytes(path.read_bytes()[:length])
    with open_bytes(path) as stream, pytest.raises(VolumeError, match="packed, which is truncated or damaged, failed"):
        stream.read(2000)


def test_an_empty_file_is_empty(tmp_path: Path) -> None:
    with open_bytes(written(tmp_path, "plain", b"")) as stream:
        assert stream.read(10) == b""
        with pytest.raises(VolumeError, match="promises 1 bytes, but it can hold 0"):
            stream.numbers(1, BYTE, BYTE)


@pytest.mark.parametrize("members", [[b"abc"], [b"abc", b"", b"defg"], [b"", b""]])
@pytest.mark.parametrize("padding", [0, 100])
def test_members_are_joined_and_padding_is_dropped(tmp_path: Path, members: list[bytes], padding: int) -> None:
    path = tmp_path / "packed"
    path.write_bytes(b"".join(gzip.compress(member) + bytes(padding) for member in members))
    with open_bytes(path) as stream:
        assert stream.read(100) == b"".join(members)
        assert stream.read(1) == b""


def test_of_a_bomb_no_more_is_unpacked_than_was_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "packed", bytes(100 << 20))
    with open_bytes(path) as stream:
        tracemalloc.start()
        assert stream.read(1000) == bytes(1000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("change", [slice(-1, None), slice(-5, -4), slice(3, None)])
def test_what_is_cut_or_changed_is_an_error(tmp_path: Path, change: slice) -> None:
    packed = bytearray(gzip.compress(bytes(range(256))))
    packed[change] = b"\x55" if change.stop else b""
    path = tmp_path / "packed"
    path.write_bytes(MAGIC + bytes(packed[2:]))
    with open_bytes(path) as stream, pytest.raises(VolumeError, match="truncated or damaged"):
        stream.read(1000)
