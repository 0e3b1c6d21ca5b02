"""Fetching without a network: a small archive stands for what a registry would send."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from medattn.volumes import FetchError, fetch
from medattn.volumes.datasets.manifest import cache_dir
from tests.packages import (
    DATASETS,
    FETCH_MODULE,
    FIRST,
    KINDS,
    SECOND,
    THIRD,
    FakeDownload,
    checked,
    fake_download,
    tar_of,
    tiny_package,
    use_manifest,
    zip_of,
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDownload:
    """A manifest of one source distribution with three datasets, and an empty cache."""
    entry, archive = tiny_package()
    use_manifest(monkeypatch, tmp_path, [entry])
    return fake_download(monkeypatch, tiny_pack=archive)


def cached_files() -> list[str]:
    """Every file in the cache but the locks."""
    files = (path for path in cache_dir().rglob("*") if path.is_file() and path.suffix != ".lock")
    return sorted(str(path.relative_to(cache_dir())) for path in files)


WHOLE = [f"tiny_pack-1.0/data/{name}" for name in ("first.bin", "pair.hdr", "pair.img", "series/1", "series/2")]


# -- what is fetched -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_datasets_come_out_of_every_kind_of_archive(monkeypatch: Any, tmp_path: Path, kind: str) -> None:
    entry, archive = tiny_package(kind)
    use_manifest(monkeypatch, tmp_path, [entry])
    fake = fake_download(monkeypatch, tiny_pack=archive)
    folder = cache_dir() / ("" if kind == "sdist" else "tiny-pack-1.0") / entry["root"]
    assert fetch("first") == folder / "first.bin"
    assert fetch("first").read_bytes() == FIRST
    assert fetch("pair") == folder / "pair.hdr"
    assert (folder / "pair.hdr").read_bytes() == SECOND and (folder / "pair.img").read_bytes() == THIRD
    assert fetch("series") == folder / "series"
    assert {path.name: path.read_bytes() for path in fetch("series").iterdir()} == {"1": b"slice 1", "2": b"slice 2"}
    assert fake.calls == ["tiny-pack"]


def test_only_the_files_of_the_manifest_are_kept(monkeypatch: Any, tmp_path: Path) -> None:
    extra = {"tiny_pack-1.0/setup.py": b"not wanted", "../outside": b"no", "/tmp/outside": b"no"}
    entry, archive = tiny_package(extra=extra)
    use_manifest(monkeypatch, tmp_path, [entry])
    fake_download(monkeypatch, tiny_pack=archive)
    fetch("first")
    assert cached_files() == WHOLE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "manifest.json"]


def test_packages_are_downloaded_apart(monkeypatch: Any, tmp_path: Path) -> None:
    one, one_archive = tiny_package("wheel", {"one": {"one.bin": b"1"}})
    two, two_archive = tiny_package("tgz", {"two": {"two.bin": b"2"}}, name="other-pack")
    use_manifest(monkeypatch, tmp_path, [one, two])
    fake = fake_download(monkeypatch, tiny_pack=one_archive, other_pack=two_archive)
    assert fetch("two").read_bytes() == b"2"
    assert fake.calls == ["other-pack"]
    assert cached_files() == ["other-pack-1.0/package/data/two.bin"]


def test_progress_reaches_the_size_of_the_archive_and_of_each_file(tiny: FakeDownload) -> None:
    steps = dict[str, tuple[int, int]]()
    fetch("first", lambda step, done, total: steps.update({step: (done, total)}))
    size = len(tiny.archives["tiny-pack"])
    assert steps == {
        "downloading tiny-pack 1.0": (size, size),
        **{Path(f).name: (len(data),) * 2 for files in DATASETS.values() for f, data in files.items()},
    }


def test_an_unknown_name_is_an_error_that_names_near_ones(tiny: FakeDownload) -> None:
    with pytest.raises(ValueError, match=r"no dataset 'frist' \(did you mean first\?\); 'python -m medattn data list'"):
        fetch("frist")
    with pytest.raises(ValueError, match="no dataset 'q'; 'python -m medattn data list'"):
        fetch("q")


# -- damage, and going on --------------------------------------------------------------------------------------------


def test_a_damaged_cached_file_is_fetched_again_with_a_warning(tiny: FakeDownload) -> None:
    fetch("pair").with_suffix(".img").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match=r"pair\.img is damaged .*fetching it again") as caught:
        assert fetch("pair").with_suffix(".img").read_bytes() == THIRD
    assert [warning.filename for warning in caught] == [__file__]
    assert tiny.calls == ["tiny-pack"] * 2


def test_a_file_in_use_is_replaced_and_not_written_into(tiny: FakeDownload) -> None:
    fetch("first").write_bytes(b"damaged")
    with (cache_dir() / WHOLE[0]).open("rb") as in_use:
        with pytest.warns(UserWarning, match="damaged"):
            assert fetch("first").read_bytes() == FIRST
        assert in_use.read() == b"damaged"


def test_a_missing_file_of_a_series_is_fetched_again(tiny: FakeDownload) -> None:
    (fetch("series") / "2").unlink()
    assert (fetch("series") / "2").read_bytes() == b"slice 2"
    assert tiny.calls == ["tiny-pack"] * 2


def test_an_archive_got_by_hand_is_used_and_not_downloaded(tiny: FakeDownload) -> None:
    place = cache_dir() / "archives" / "tiny_pack-1.0.tar.gz"
    place.parent.mkdir(parents=True)
    place.write_bytes(tiny.archives["tiny-pack"])
    assert fetch("first").read_bytes() == FIRST
    assert tiny.calls == []
    assert cached_files() == WHOLE


def test_a_wrong_archive_got_by_hand_is_not_opened(tiny: FakeDownload) -> None:
    place = cache_dir() / "archives" / "tiny_pack-1.0.tar.gz"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"no archive at all")
    assert fetch("first").read_bytes() == FIRST
    assert tiny.calls == ["tiny-pack"]


KILLED = """
import os, signal, sys
sys.path.insert(0, {root!r})
import medattn.volumes, pathlib
from medattn.volumes.datasets.fetch import fetch
sys.modules["medattn.volumes.datasets.manifest"].MANIFEST = pathlib.Path({manifest!r})
def download(package, folder, on_bytes):
    path = folder / package.archive.path
    path.write_bytes(pathlib.Path({archive!r}).read_bytes())
    return path
sys.modules["medattn.volumes.datasets.fetch"].download = download
def die_in_the_second_file(step, done, total):
    if step == "pair.hdr":
        os.kill(os.getpid(), signal.SIGKILL)
fetch("series", die_in_the_second_file)
"""


def test_a_killed_fetch_leaves_whole_files_and_the_next_goes_on_from_there(tiny: FakeDownload, tmp_path: Path) -> None:
    (tmp_path / "sent").write_bytes(tiny.archives["tiny-pack"])
    names = {"manifest": str(tmp_path / "manifest.json"), "archive": str(tmp_path / "sent")}
    script = KILLED.format(root=str(Path(__file__).parents[2]), **names)
    killed = subprocess.run([sys.executable, "-c", script], env={**os.environ}, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    left = cached_files()
    assert [name for name in left if not name.startswith("archives")] == ["tiny_pack-1.0/data/first.bin"]
    assert "archives/tiny_pack-1.0.tar.gz" in left
    before = (cache_dir() / WHOLE[0]).stat().st_mtime_ns
    assert len(list(fetch("series").iterdir())) == 2
    assert tiny.calls == []  # the archive had arrived
    assert cached_files() == WHOLE
    assert (cache_dir() / WHOLE[0]).stat().st_mtime_ns == before


def test_fetches_at_the_same_time_download_once(tiny: FakeDownload, monkeypatch: Any) -> None:
    started, go_on, results = threading.Event(), threading.Event(), list[bytes]()

    def slow(*arguments: Any) -> Path:
        started.set()
        assert go_on.wait(20)
        return tiny(*arguments)

    monkeypatch.setattr(FETCH_MODULE, "download", slow)
    threads = [threading.Thread(target=lambda: results.append(fetch("first").read_bytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert started.wait(20)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert results == [FIRST] * 4
    assert tiny.calls == ["tiny-pack"]
    assert cached_files() == WHOLE


# -- what goes wrong -------------------------------------------------------------------------------------------------


def assert_advice(message: str, archive: bytes) -> None:
    """What someone without a network needs to know."""
    assert "python -m pip download --no-deps --no-binary=tiny-pack tiny-pack==1.0" in message
    assert f"put tiny_pack-1.0.tar.gz into {cache_dir() / 'archives'}" in message
    assert f"{len(archive)} bytes, its sha256 {hashlib.sha256(archive).hexdigest()}" in message


def test_an_archive_with_another_checksum_is_never_opened(tiny: FakeDownload) -> None:
    right = tiny.archives["tiny-pack"]
    for wrong in (right[:-1], right + b"!", tar_of({WHOLE[0]: FIRST}), b""):
        tiny.archives["tiny-pack"] = wrong
        with pytest.raises(FetchError, match="(?s)could not fetch 'first': .*must have sha256 .* another") as caught:
            fetch("first")
        assert_advice(str(caught.value), right)
        assert cached_files() == []


LONGER, OTHER = FIRST + b"!", FIRST[:-1] + b"!"


@pytest.mark.parametrize(("kind", "pack"), [("sdist", tar_of), ("wheel", zip_of)])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (OTHER, "must have sha256 .*, got"),
        (LONGER, "must have 11000 bytes, got 11001"),
        (b"", "must have 11000 bytes, got 0"),
        (None, "has no member .*first.bin"),
    ],
    ids=["other", "longer", "empty", "missing"],
)
def test_a_member_that_is_not_what_the_manifest_says_is_an_error(
    monkeypatch: Any, tmp_path: Path, kind: str, pack: Any, content: bytes | None, reason: str
) -> None:
    entry, _ = tiny_package(kind, {"first": {"first.bin": FIRST}})
    member = f"{entry['root']}first.bin"
    archive = pack({member: content} if content is not None else {"elsewhere/first.bin": FIRST})
    entry["archive"] = checked(entry["archive"][0], archive)
    use_manifest(monkeypatch, tmp_path, [entry])
    fake_download(monkeypatch, tiny_pack=archive)
    with pytest.raises(FetchError, match=rf"(?s)could not fetch 'first': .*({reason})"):
        fetch("first")
    assert [name for name in cached_files() if not name.startswith("archives")] == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_member_that_is_no_plain_file_is_refused(monkeypatch: Any, tmp_path: Path, kind: bytes) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        info = tarfile.TarInfo("tiny_pack-1.0/data/first.bin")
        info.type, info.linkname = kind, "/etc/hostname"
        tar.addfile(info)
    entry, _ = tiny_package(datasets={"first": {"first.bin": FIRST}})
    entry["archive"] = checked(entry["archive"][0], stream.getvalue())
    use_manifest(monkeypatch, tmp_path, [entry])
    fake_download(monkeypatch, tiny_pack=stream.getvalue())
    with pytest.raises(FetchError, match="not a plain file"):
        fetch("first")


@pytest.mark.parametrize(("kind", "pack"), [("sdist", tar_of), ("wheel", zip_of)])
def test_an_oversized_member_is_not_unpacked_to_its_end(monkeypatch: Any, tmp_path: Path, kind: str, pack: Any) -> None:
    monkeypatch.setattr(FETCH_MODULE, "CHUNK_BYTES", 1000)
    entry, _ = tiny_package(kind, {"first": {"first.bin": FIRST}})
    archive = pack({f"{entry['root']}first.bin": bytes(10_000_000)})
    entry["archive"] = checked(entry["archive"][0], archive)
    use_manifest(monkeypatch, tmp_path, [entry])
    fake_download(monkeypatch, tiny_pack=archive)
    with pytest.raises(FetchError, match="must have 11000 bytes, got 12000 or more"):
        fetch("first")


def test_a_cache_that_cannot_be_written_is_an_error_with_advice(tiny: FakeDownload, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(FetchError, match="could not fetch 'first'") as caught:
        fetch("first")
    assert_advice(str(caught.value), tiny.archives["tiny-pack"])


def test_the_cache_is_found_by_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDATTN_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.setenv("MEDATTN_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "medattn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "medattn"
