"""Files as such: the one asked for, whole, or an error that names it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medattn.volumes import load_volume

FORM = {"sform": np.eye(4), "codes": (1, 0)}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.nii"):
        load_volume(tmp_path / "nowhere.nii")


def test_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.nii").mkdir()
    with pytest.raises(ValueError, match=r"folder\.nii: must be a file"):
        load_volume(tmp_path / "folder.nii")


@pytest.mark.parametrize("content", [b"", b"\0", b"hello " * 100, b"\x1f\x8b", b"\x5c\x01\0\0"])
@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz"])
def test_a_file_that_is_no_nifti_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        load_volume(tmp_path / name)


def test_text_in_gzip_is_no_nifti(tmp_path: Path) -> None:
    (tmp_path / "x.nii.gz").write_bytes(gzip.compress(b"hello " * 100))
    with pytest.raises(ValueError, match=r"x\.nii\.gz: not a NIfTI file"):
        load_volume(tmp_path / "x.nii.gz")


@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz"])
def test_no_part_of_a_file_loads(write_nifti: Any, counting: Any, name: str) -> None:
    path = write_nifti(counting, name, **FORM)
    content = path.read_bytes()
    assert load_volume(path).data.shape == (1, 2, 3, 4)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            load_volume(path)


def test_a_file_that_lacks_its_last_byte_is_truncated(write_nifti: Any, counting: Any) -> None:
    path = write_nifti(counting, **FORM)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"x\.nii: the file is truncated: .* needs 400 bytes, got 399"):
        load_volume(path)


def test_a_header_that_promises_too_much_is_an_error_not_an_allocation(write_nifti: Any, counting: Any) -> None:
    path = write_nifti(counting, **FORM, fields={"dim": [4, 32767, 32767, 32767, 32767, 1, 1, 1]})
    with pytest.raises(ValueError, match="truncated"):
        load_volume(path)


def test_damage_inside_gzip_is_an_error(write_nifti: Any, counting: Any) -> None:
    path = write_nifti(counting, "x.nii.gz", **FORM)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1  # the checksum
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.nii\.gz: the gzip stream is truncated or damaged"):
        load_volume(path)


@pytest.mark.parametrize("offset", [0.0, 348.0, -1.0, float("nan"), 1e30])
def test_a_data_offset_outside_the_file_is_an_error(write_nifti: Any, counting: Any, offset: float) -> None:
    with pytest.raises(ValueError, match=r"x\.nii: (vox_offset|the file is truncated)"):
        load_volume(write_nifti(counting, **FORM, fields={"vox_offset": offset}))


def test_half_of_a_header_and_image_pair_is_refused(write_nifti: Any, counting: Any) -> None:
    with pytest.raises(ValueError, match=r"x\.nii: not a single-file NIfTI: .*ni1"):
        load_volume(write_nifti(counting, **FORM, fields={"magic": b"ni1"}))


@pytest.mark.parametrize("name", ["x.mgz", "x.img", "x", "nii"])
def test_another_suffix_is_an_error_that_lists_the_valid_ones(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"must end in \.nii or \.nii\.gz"):
        load_volume(tmp_path / name)


def test_of_two_siblings_the_one_asked_for_is_read(write_nifti: Any) -> None:
    for name, value in (("x.nii", 1), ("x.nii.gz", 2)):
        write_nifti(np.full((2, 2, 2), value, np.uint8), name, **FORM)
    folder = write_nifti(np.zeros((2, 2, 2)), "other.nii", **FORM).parent
    assert load_volume(folder / "x.nii").data.unique().tolist() == [1]
    assert load_volume(folder / "x.nii.gz").data.unique().tolist() == [2]


def test_compression_is_told_by_content_and_suffix_case_does_not_matter(write_nifti: Any, counting: Any) -> None:
    packed = write_nifti(counting, "x.nii.gz", **FORM)
    for name in ("packed.nii", "PACKED.NII.GZ"):
        other = packed.with_name(name)
        other.write_bytes(packed.read_bytes())
        assert load_volume(other).data.tolist() == [counting.tolist()]


def test_paths_can_be_strings_and_become_the_name(write_nifti: Any, counting: Any) -> None:
    path = write_nifti(counting, **FORM)
    assert load_volume(str(path)).name == str(path)
