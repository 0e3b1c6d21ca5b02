"""Downloading with the registries' clients: the real pip, offline, and scripts in place of npm and apt."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from medattn.volumes import FetchError, fetch
from medattn.volumes.datasets.manifest import cache_dir, manifest
from medattn.volumes.datasets.pip_download import pip_arguments
from tests.packages import FIRST, Entry, tiny_package, use_manifest

METADATA = b"Metadata-Version: 2.1\nName: tiny-pack\nVersion: 1.0\nRequires-Dist: something-else\n"
WHEEL = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is the only place where pip looks for packages."""
    (tmp_path / "packages").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path / "packages"


def script(path: Path, *lines: str) -> None:
    """An executable shell script."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def left_in_the_cache() -> list[Path]:
    return [path for path in cache_dir().rglob("*") if path.suffix != ".lock" and path.name != "archives"]


# -- pip -------------------------------------------------------------------------------------------------------------


def test_a_source_distribution_is_downloaded_without_running_its_setup(
    offline: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    mark = tmp_path / "setup_was_run"
    setup = f"from pathlib import Path\nPath({str(mark)!r}).touch()\nfrom setuptools import setup\nsetup()\n"
    extra = {"tiny_pack-1.0/setup.py": setup.encode(), "tiny_pack-1.0/PKG-INFO": METADATA}
    entry, archive = tiny_package(extra=extra)
    (offline / "tiny_pack-1.0.tar.gz").write_bytes(archive)
    use_manifest(monkeypatch, tmp_path, [entry])
    assert fetch("first").read_bytes() == FIRST
    assert not mark.exists()


def test_a_wheel_is_downloaded_without_its_dependencies(offline: Path, tmp_path: Path, monkeypatch: Any) -> None:
    extra = {"tiny_pack-1.0.dist-info/METADATA": METADATA, "tiny_pack-1.0.dist-info/WHEEL": WHEEL}
    entry, archive = tiny_package("wheel", extra=extra)
    (offline / entry["archive"][0]).write_bytes(archive)
    use_manifest(monkeypatch, tmp_path, [entry])
    assert fetch("first").read_bytes() == FIRST


def test_a_replaced_source_distribution_is_refused_before_its_own_build_code_could_run(
    offline: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    mark = tmp_path / "package_code_was_run"
    backend = f"from pathlib import Path\nPath({str(mark)!r}).touch()\n".encode()
    build_system = b'[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n'
    extra = {"tiny_pack-1.0/evil.py": backend, "tiny_pack-1.0/pyproject.toml": build_system}
    _, replaced = tiny_package(extra={**extra, "tiny_pack-1.0/PKG-INFO": METADATA})
    entry, _ = tiny_package(extra={"tiny_pack-1.0/PKG-INFO": METADATA})
    (offline / "tiny_pack-1.0.tar.gz").write_bytes(replaced)
    use_manifest(monkeypatch, tmp_path, [entry])
    with pytest.raises(FetchError, match="(?s)could not fetch 'first'.*THESE PACKAGES DO NOT MATCH THE HASHES"):
        fetch("first")
    assert not mark.exists()
    assert left_in_the_cache() == []


def test_a_package_that_pip_does_not_find_is_an_error_with_its_words(
    offline: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    use_manifest(monkeypatch, tmp_path, [tiny_package()[0]])
    with pytest.raises(FetchError, match=r"(?s)No matching distribution found for tiny-pack==1\.0"):
        fetch("first")


def test_pip_is_asked_for_the_pinned_package_alone_and_for_one_wheel_on_every_machine(
    tmp_path: Path, monkeypatch: Any
) -> None:
    use_manifest(monkeypatch, tmp_path, [tiny_package()[0], tiny_package("wheel", {"wheel": {"w": b""}})[0]])
    assert pip_arguments(manifest()["first"].package) == [
        "download",
        "--no-deps",
        "--no-binary=tiny-pack",
        "tiny-pack==1.0",
    ]
    assert pip_arguments(manifest()["wheel"].package) == [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--platform=manylinux2014_x86_64",
        "--python-version=3.11",
        "tiny-pack==1.0",
    ]


@pytest.mark.parametrize(
    ("version", "resumes"), [("23.2.1", False), ("25.0", False), ("25.1", True), ("25.1b2", True), ("26.0.dev0", True)]
)
def test_a_pip_that_can_resume_is_told_to(tmp_path: Path, monkeypatch: Any, version: str, resumes: bool) -> None:
    script(tmp_path / "python", 'echo "$@" > ../../../said; exit 1')
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    use_manifest(monkeypatch, tmp_path, [tiny_package()[0]])
    with pytest.raises(FetchError):
        fetch("first")
    said = (cache_dir() / "said").read_text()
    assert said.startswith("-m pip download --no-deps ")
    assert ("--resume-retries" in said) == resumes


# -- any client ------------------------------------------------------------------------------------------------------

CLIENTS = {
    "tgz": ("npm", "pack tiny-pack@1.0 --ignore-scripts", "npm pack tiny-pack@1.0"),
    "deb": ("apt-get", "download tiny-pack=1.0", "apt-get download tiny-pack=1.0"),
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_npm_and_apt_are_asked_for_the_pinned_package(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    entry, archive = tiny_package(kind)
    client, arguments, _ = CLIENTS[kind]
    (tmp_path / "sent").write_bytes(archive)
    said, name = tmp_path / "said", entry["archive"][0]
    script(tmp_path / "bin" / client, f'echo "$@" > {said}', f"cp {tmp_path}/sent {name}", "echo noise")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    use_manifest(monkeypatch, tmp_path, [entry])
    assert fetch("first").read_bytes() == FIRST
    assert said.read_text() == arguments + "\n"
    assert {path.name for path in fetch("series").iterdir()} == {"1", "2"}


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_that_is_not_installed_is_an_error_with_advice(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    entry, archive = tiny_package(kind)
    monkeypatch.setenv("PATH", str(tmp_path))
    use_manifest(monkeypatch, tmp_path, [entry])
    with pytest.raises(FetchError, match=f"{CLIENTS[kind][0]} is not installed here") as caught:
        fetch("first")
    assert f"1. {CLIENTS[kind][2]}\n" in str(caught.value)
    assert f"put {entry['archive'][0]} into {cache_dir() / 'archives'}" in str(caught.value)
    assert hashlib.sha256(archive).hexdigest() in str(caught.value)


def use_fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> Entry:
    """Let pip be run by a script of these lines."""
    script(tmp_path / "python", *lines)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    entry, _ = tiny_package()
    use_manifest(monkeypatch, tmp_path, [entry])
    return entry


def test_a_failing_client_is_an_error_with_its_last_lines(tmp_path: Path, monkeypatch: Any) -> None:
    use_fake_python(tmp_path, monkeypatch, "seq -f 'line %g' 0 49", "echo ERROR: no connection >&2", "exit 3")
    with pytest.raises(FetchError, match="failed with exit status 3") as caught:
        fetch("first")
    assert "ERROR: no connection" in str(caught.value)
    assert "line 49" in str(caught.value) and "line 20" not in str(caught.value)
    assert left_in_the_cache() == []


def test_a_client_that_cannot_start_is_an_error_with_advice(tmp_path: Path, monkeypatch: Any) -> None:
    use_fake_python(tmp_path, monkeypatch)
    (tmp_path / "python").unlink()
    with pytest.raises(FetchError, match="(?s)could not be started.*python -m pip download"):
        fetch("first")


def test_a_client_that_leaves_no_archive_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    use_fake_python(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(FetchError, match=r"one archive, got \[\]"):
        fetch("first")


def test_a_client_that_leaves_something_else_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    use_fake_python(tmp_path, monkeypatch, "echo other > tiny_pack-1.0.tar.gz")
    with pytest.raises(FetchError, match="must have sha256 .* another"):
        fetch("first")
    assert left_in_the_cache() == []


def test_a_file_that_a_client_removes_while_it_is_looked_at_does_no_harm(tmp_path: Path, monkeypatch: Any) -> None:
    walk = os.walk
    monkeypatch.setattr("os.walk", lambda folder: [*walk(folder), (str(folder), [], ["gone"])])
    use_fake_python(tmp_path, monkeypatch, "sleep 0.1", "exit 7")
    with pytest.raises(FetchError, match="exit status 7"):
        fetch("first")


def test_an_interrupted_fetch_ends_its_client_and_leaves_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    use_fake_python(tmp_path, monkeypatch, f"touch {tmp_path}/started", "sleep 3", f"touch {tmp_path}/finished")

    def interrupt(step: str, done: int, total: int) -> None:
        if (tmp_path / "started").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("first", interrupt)
    assert not (tmp_path / "finished").exists()
    assert left_in_the_cache() == []


def test_the_bytes_that_arrived_are_told_while_the_client_runs(tmp_path: Path, monkeypatch: Any) -> None:
    use_fake_python(
        tmp_path,
        monkeypatch,
        'head -c 100 /dev/zero > "$TMPDIR/part"',
        f"while [ ! -e {tmp_path}/seen ]; do sleep 0.02; done",
        "exit 7",
    )

    def watch(step: str, done: int, total: int) -> None:
        if done >= 100:
            (tmp_path / "seen").touch()

    with pytest.raises(FetchError, match="exit status 7"):
        fetch("first", watch)
    assert (tmp_path / "seen").exists()
