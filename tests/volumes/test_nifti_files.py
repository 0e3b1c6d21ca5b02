"""Files as such: the one asked for, whole, or an error that names it."""

from __future__ import annotations

import gzip
import os
import re
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medattn.volumes import NoteKind, VolumeError, VolumeWarning, load_volume

FORM = {"sform": np.eye(4), "codes": (1, 0)}


def unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()


def voxel_file(path: Path) -> Path:
    """The file that holds the voxels of what ``path`` names."""
    return path.with_name(path.name.replace(".hdr", ".img"))


def extensions(write: Any, *sizes: int) -> bytes:
    """A chain of header extensions that say these sizes, in the byte order that ``write`` writes."""
    order = write.keywords["endianness"]
    return b"".join(struct.pack(f"{order}ii", size, 6).ljust(min(size, 64), b"x") for size in sizes)


def load_refused(path: Path, *, match: str) -> None:
    with pytest.raises(VolumeError, match=match):
        load_volume(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.nii"):
        load_volume(tmp_path / "nowhere.nii")


def test_a_pipe_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.nii")
    with pytest.raises(VolumeError, match=r"pipe\.nii: must be a file"):
        load_volume(tmp_path / "pipe.nii")


@pytest.mark.parametrize("content", [b"", b"\0", b"hello " * 100, b"\x1f\x8b", b"\x5c\x01\0\0"])
@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz"])
def test_a_file_that_is_no_nifti_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(VolumeError, match=name.replace(".", r"\.")):
        load_volume(tmp_path / name)


def test_text_in_gzip_is_no_nifti(tmp_path: Path) -> None:
    (tmp_path / "x.nii.gz").write_bytes(gzip.compress(b"hello " * 100))
    with pytest.raises(VolumeError, match=r"x\.nii\.gz: not a NIfTI file"):
        load_volume(tmp_path / "x.nii.gz")


@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz"])
def test_no_part_of_a_file_loads(write_nifti: Any, counting: Any, name: str) -> None:
    path = write_nifti(counting, name, **FORM)
    content = path.read_bytes()
    assert load_volume(path).data.shape == (1, 2, 3, 4)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(VolumeError, match=name.replace(".", r"\.")):
            load_volume(path)


@pytest.mark.parametrize("lost", [1, 47, 48])
def test_a_file_that_lacks_voxels_is_truncated(write_each: Any, counting: Any, lost: int) -> None:
    path = voxel_file(write_each(counting, **FORM))
    content = unpacked(path)
    packed = path.name.endswith(".gz")
    path.write_bytes(gzip.compress(content[:-lost]) if packed else content[:-lost])
    least = rf"holds {len(content) - lost}" if packed else rf"can hold {len(content) - lost} at most"
    with pytest.raises(VolumeError, match=rf"{path.name} is truncated: its header promises {len(content)} .*{least}"):
        load_volume(path)


@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz", "x.hdr", "x.hdr.gz"])
@pytest.mark.parametrize("shape", [(500, 500, 500), (2000, 2000, 900), (30000, 30000, 30000)])
def test_a_header_that_promises_too_much_is_an_error_not_an_allocation(
    write_nifti: Any, counting: Any, shape: tuple[int, ...], name: str
) -> None:
    path = write_nifti(counting, name, **FORM, fields={"dim": [3, *shape, 1, 1, 1, 1]})
    load_refused(path, match=r"is truncated: its header promises|over the limit")  # imports are not counted
    tracemalloc.start()
    load_refused(path, match=r"is truncated: its header promises|over the limit")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 21


@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz", "x.img", "x.hdr.gz"])
def test_the_limit_on_bytes_is_exact_and_named(write_nifti: Any, counting: Any, name: str) -> None:
    path = write_nifti(counting, name, **FORM)
    assert load_volume(path, max_bytes=48).data.shape == (1, 2, 3, 4)
    with pytest.raises(VolumeError, match="needs 48 bytes, over the limit of 47"):
        load_volume(path, max_bytes=47)


def test_a_stream_that_goes_on_and_on_is_not_unpacked(write_nifti: Any, counting: Any) -> None:
    path = write_nifti(counting, "x.nii.gz", **FORM)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + bytes(200 << 20), 1))
    load_refused(path, match="at most 16384 bytes may follow the last voxel")
    tracemalloc.start()
    load_refused(path, match="at most 16384 bytes may follow the last voxel")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 22


def test_a_header_that_goes_on_and_on_or_is_damaged_behind_its_extensions_is_refused(
    write_nifti: Any, counting: Any
) -> None:
    path = write_nifti(counting, "x.hdr.gz", **FORM)
    packed = path.read_bytes()
    path.write_bytes(gzip.compress(gzip.decompress(packed) + bytes(65 << 20), 1))
    load_refused(path, match="extensions of a header must be at most 67108864 bytes")
    path.write_bytes(packed[:-8] + bytes(8))  # CRC and length are behind all that is used of it
    load_refused(path, match="x.hdr.gz, which is truncated or damaged")


@pytest.mark.parametrize(("more", "accepted"), [(1, True), (16384, True), (16385, False)])
def test_a_little_after_the_last_voxel_is_warned_about_and_much_is_an_error(
    write_each: Any, counting: Any, more: int, accepted: bool
) -> None:
    path = voxel_file(write_each(counting, **FORM))
    content = unpacked(path) + bytes(more)
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    if not accepted:
        load_refused(path, match=rf"{path.name} holds more than its header says: at most 16384 bytes")
        return
    with pytest.warns(VolumeWarning, match=rf"{path.name} holds {more} bytes more than its header says"):
        volume = load_volume(path)
    assert volume.data.tolist() == [counting.tolist()]
    assert [(note.kind, note.values) for note in volume.notes] == [(NoteKind.FIELDS_DISAGREE, {"bytes": more})]


def test_a_file_of_several_gzip_members_is_one_stream(write_nifti: Any, counting: Any) -> None:
    path = write_nifti(counting, "x.nii.gz", **FORM)
    content = gzip.decompress(path.read_bytes())
    parts = [content[:7], content[7:351], b"", content[351:390], content[390:]]
    path.write_bytes(b"".join(gzip.compress(part) for part in parts) + bytes(512))  # padded, as tapes are
    assert load_volume(path, strict=True).data.tolist() == [counting.tolist()]


@pytest.mark.parametrize("at", [-5, -1])  # in the checksum, in the length
def test_damage_inside_gzip_is_an_error(write_nifti: Any, counting: Any, at: int) -> None:
    path = write_nifti(counting, "x.nii.gz", **FORM)
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    load_refused(path, match=r"x\.nii\.gz: reading x\.nii\.gz, which is truncated or damaged, failed")


@pytest.mark.parametrize("offset", [0.0, 348.0, -1.0, 352.5, float("nan"), float("inf"), 1e5, 1e9, 1e30])
def test_a_data_offset_outside_the_file_is_an_error(write_nifti: Any, counting: Any, offset: float) -> None:
    for name in ("x.nii", "x.nii.gz"):
        load_refused(
            write_nifti(counting, name, **FORM, fields={"vox_offset": offset}), match="vox_offset|is truncated"
        )


@pytest.mark.parametrize("offset", [-1, 2**40, 2**63 - 1])
def test_a_data_offset_outside_the_file_is_an_error_in_nifti_2(write_nifti: Any, counting: Any, offset: int) -> None:
    load_refused(write_nifti(counting, **FORM, version=2, fields={"vox_offset": offset}), match="vox_offset must be")


@pytest.mark.parametrize("name", ["x.hdr", "x.img.gz"])
@pytest.mark.parametrize("offset", [16, 100])
def test_the_voxels_of_a_pair_may_start_later(write_nifti: Any, counting: Any, name: str, offset: int) -> None:
    path = write_nifti(counting, name, **FORM, fields={"vox_offset": offset})
    voxels = voxel_file(path)
    content = bytes(offset) + unpacked(voxels)
    voxels.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert load_volume(path, strict=True).data.tolist() == [counting.tolist()]


@pytest.mark.parametrize("sizes", [(16,), (32, 16), (32, 0), (8, 40)])
def test_extensions_are_passed_over(write_each: Any, counting: Any, sizes: tuple[int, ...]) -> None:
    path = write_each(counting, **FORM, extensions=extensions(write_each, *sizes))
    assert load_volume(path, strict=True).data.tolist() == [counting.tolist()]


@pytest.mark.parametrize("size", [-16, 7, 33, 2**31 - 1])
def test_an_extension_that_does_not_fit_is_an_error(write_each: Any, counting: Any, size: int) -> None:
    content = extensions(write_each, 16) + extensions(write_each, size)[:32].ljust(32, b"\0")
    with pytest.raises(VolumeError, match=rf"extension says it has {size} bytes, but must have 8 to 32"):
        load_volume(write_each(counting, **FORM, extensions=content))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("name", "magic"), [("x.nii", "ni"), ("x.nii.gz", "ni"), ("x.hdr", "n+"), ("x.img.gz", "n+")])
def test_half_of_a_pair_is_no_single_file_nor_the_other_way_round(
    write_nifti: Any, counting: Any, name: str, magic: str, version: int
) -> None:
    path = write_nifti(counting, name, **FORM, version=version, fields={"magic": f"{magic}{version}".encode()})
    load_refused(path, match=rf"magic must be .* got b'{re.escape(magic)}{version}', which is")


@pytest.mark.parametrize("magic", [b"", b"n+2", b"abc"])
@pytest.mark.parametrize("name", ["x.nii", "x.hdr", "x.img", "x.hdr.gz"])
def test_analyze_files_are_refused_because_they_have_no_orientation(
    write_nifti: Any, counting: Any, name: str, magic: bytes
) -> None:
    path = write_nifti(counting, name, **FORM, fields={"magic": magic})
    load_refused(path, match="not a NIfTI file: magic must be .* Analyze 7.5, which holds no orientation")


@pytest.mark.parametrize(("check", "accepted"), [((0, 0, 0, 0), True), ((10, 26, 10, 0), False)])
def test_a_file_that_was_sent_as_text_is_refused(
    write_nifti: Any, counting: Any, check: tuple[int, ...], accepted: bool
) -> None:
    path = write_nifti(counting, **FORM, version=2, fields={"eol_check": check})
    if accepted:
        assert load_volume(path).notes == ()
    else:
        load_refused(path, match="line ends were converted")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("stem", ["x.hdr", "X.HDR"])
def test_either_name_of_a_pair_reads_it(write_nifti: Any, counting: Any, stem: str, packed: str, version: int) -> None:
    header = write_nifti(counting, f"x.hdr{packed}", **FORM, version=version)
    image = header.with_name(f"x.img{packed}")
    if stem.isupper():
        header, image = (path.rename(path.with_name(path.name.upper())) for path in (header, image))
    for path in (header, image):
        volume = load_volume(path, strict=True)
        assert volume.data.tolist() == [counting.tolist()]
        assert volume.name == str(path)


@pytest.mark.parametrize(("header", "image"), [("x.hdr", "x.img.gz"), ("x.hdr.gz", "x.img")])
def test_halves_may_be_packed_apart(write_nifti: Any, counting: Any, header: str, image: str) -> None:
    path = write_nifti(counting, "x.hdr", **FORM)
    for name in (header, image):
        if name.endswith(".gz"):
            plain = path.with_name(name.removesuffix(".gz"))
            path.with_name(name).write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
    for name in (header, image):
        assert load_volume(path.with_name(name)).data.tolist() == [counting.tolist()]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(("kept", "missing"), [("hdr", "img"), ("img", "hdr")])
def test_a_missing_half_is_named(write_nifti: Any, counting: Any, kept: str, missing: str, packed: str) -> None:
    path = write_nifti(counting, f"x.{kept}{packed}", **FORM)
    path.with_name(f"x.{missing}{packed}").unlink()
    load_refused(path, match=rf"x\.{kept}{packed}: the other half .* there is no x\.{missing} or x\.{missing}\.gz")


@pytest.mark.parametrize("name", ["x.mgz", "x.ima", "x", "nii"])
def test_another_suffix_is_an_error_that_lists_the_valid_ones(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(VolumeError, match=r"must end in one of \.nii, \.nii\.gz, \.hdr"):
        load_volume(tmp_path / name)


def test_of_siblings_the_one_asked_for_is_read(write_nifti: Any) -> None:
    values = {"x.nii": 1, "x.nii.gz": 2, "x.hdr": 3, "x.hdr.gz": 4}
    for name, value in values.items():
        path = write_nifti(np.full((2, 2, 2), value, np.uint8), name, **FORM)
    values |= {"x.img": 3, "x.img.gz": 4}
    assert {name: int(load_volume(path.with_name(name)).data.unique()) for name in values} == values


def test_compression_is_told_by_content_and_suffix_case_does_not_matter(write_nifti: Any, counting: Any) -> None:
    packed = write_nifti(counting, "x.nii.gz", **FORM)
    for name in ("packed.nii", "PACKED.NII.GZ"):
        other = packed.with_name(name)
        other.write_bytes(packed.read_bytes())
        assert load_volume(other).data.tolist() == [counting.tolist()]


def test_paths_can_be_strings_and_become_the_name(write_nifti: Any, counting: Any) -> None:
    path = write_nifti(counting, **FORM)
    assert load_volume(str(path)).name == str(path)
