"""Atomic writes: the old file or the new one, never half of it, with the permissions that the user's umask gives."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from medattn.files import replacing, write_text


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "a" / "table.csv"
    write_text(path, "old")
    with pytest.raises(OSError, match="disk full"):
        write_half(path)
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["table.csv"]


def write_half(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("half")
        raise OSError("disk full")


def test_the_temporary_file_lies_beside_and_ends_like_the_target(tmp_path: Path) -> None:
    with replacing(tmp_path / "scan.nii.gz") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.endswith(".nii.gz")
        temporary.write_bytes(b"x")
    assert (tmp_path / "scan.nii.gz").read_bytes() == b"x"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_permissions_follow_the_umask_whatever_the_writer_does(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_text(tmp_path / "a.txt", "x")
        with replacing(tmp_path / "b.safetensors") as temporary:
            save_file({"x": torch.zeros(2)}, temporary)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a.txt", "b.safetensors")] == [mode, mode]
