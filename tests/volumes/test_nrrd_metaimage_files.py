"""NRRD and MetaImage files, attached or detached, packed or not: whole, or an error, and no allocation for a lie."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from medattn.volumes import NoteKind, VolumeError, VolumeWarning, load_volume
from tests.volumes.header_writing import COUNTING, raw, write_metaimage, write_nrrd

PACKERS: dict[str, Callable[[bytes], bytes]] = {"raw": bytes, "gzip": gzip.compress, "zlib": zlib.compress}
VARIANTS = [*product(["nrrd"], ["raw", "gzip"], [True, False]), *product(["metaimage"], PACKERS, [True, False])]


@pytest.fixture(params=VARIANTS, ids=lambda v: f"{v[0]}-{v[1]}-{'attached' if v[2] else 'detached'}")
def write_each(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    """``write_each(voxels, sizes="2 3 4")`` -> the file to load, of each kind in turn."""
    kind, packing, attached = request.param

    def write(voxels: bytes, sizes: str = "2 3 4") -> Path:
        content = PACKERS[packing](voxels)
        if not attached:
            (tmp_path / "x.raw").write_bytes(content)
        here = content if attached else b""
        if kind == "nrrd":
            elsewhere = {} if attached else {"data file": "x.raw"}
            return write_nrrd(tmp_path / "x.nhdr", {"sizes": sizes, "encoding": packing, **elsewhere}, voxels=here)
        packed = {} if packing == "raw" else {"CompressedData": "True", "CompressedDataSize": str(len(content))}
        name = "LOCAL" if attached else "x.raw"
        return write_metaimage(tmp_path / "x.mhd", {"DimSize": sizes, **packed}, voxels=here, data_file=name)

    return write


def refused(path: Path, match: str) -> None:
    with pytest.raises(VolumeError, match=match):
        load_volume(path)


def test_voxels_are_read_from_where_they_lie(write_each: Any) -> None:
    assert load_volume(write_each(raw()), strict=True).data.tolist() == [COUNTING.tolist()]


@pytest.mark.parametrize("lost", [1, 47, 48])
def test_a_file_that_lacks_voxels_is_truncated(write_each: Any, lost: int) -> None:
    refused(write_each(raw()[:-lost]), r"truncated: its header promises \d+ bytes, but it (can hold|holds) \d+")


@pytest.mark.parametrize(("more", "accepted"), [(1, True), (16384, True), (16385, False)])
def test_a_little_after_the_last_voxel_is_warned_about_and_much_is_an_error(
    write_each: Any, more: int, accepted: bool
) -> None:
    path = write_each(raw() + bytes(more))
    if not accepted:
        refused(path, "holds more than its header says: at most 16384 bytes may follow the last voxel")
        return
    with pytest.warns(VolumeWarning, match=rf"x\.(raw|nhdr|mhd) holds {more} bytes more than its header says"):
        volume = load_volume(path)
    assert volume.data.tolist() == [COUNTING.tolist()]
    assert [(note.kind, note.values) for note in volume.notes] == [(NoteKind.FIELDS_DISAGREE, {"bytes": more})]


@pytest.mark.parametrize("sizes", ["500 500 500", "2000 2000 900", "99999999 99999999 99999999"])
def test_a_header_that_promises_too_much_is_an_error_not_an_allocation(write_each: Any, sizes: str) -> None:
    path = write_each(raw(), sizes)
    refused(path, "is truncated: its header promises|over the limit")  # imports are not counted
    tracemalloc.start()
    refused(path, "is truncated: its header promises|over the limit")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 21


def test_the_limit_on_bytes_is_exact_and_named(write_each: Any) -> None:
    path = write_each(raw())
    assert load_volume(path, max_bytes=48).data.shape == (1, 2, 3, 4)
    with pytest.raises(VolumeError, match="needs 48 bytes, over the limit of 47"):
        load_volume(path, max_bytes=47)
