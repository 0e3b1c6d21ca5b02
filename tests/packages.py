"""Tiny packages of each registry: the archive that would be downloaded, and its entry in a manifest."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import medattn.volumes

Files = dict[str, bytes]
Entry = dict[str, Any]
FETCH_MODULE = medattn.volumes.datasets.fetch

FIRST, SECOND, THIRD = b"first file " * 1000, b"second file", b"third"
DATASETS: dict[str, Files] = {
    "first": {"first.bin": FIRST},
    "pair": {"pair.hdr": SECOND, "pair.img": THIRD},
    "series": {"series/1": b"slice 1", "series/2": b"slice 2"},
}
"""Dataset -> its files -> their content; the one whose files lie in a folder is opened by its folder."""


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


def deb_of(files: Files) -> bytes:
    """An ar archive of three members, as deb(5) describes it; names in its tar start with "./"."""
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": tar_of({"./control": b"odd"}),
        "data.tar.gz": tar_of({f"./{name}": content for name, content in files.items()}),
    }
    packed = b"!<arch>\n"
    for name, content in members.items():
        packed += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content
        packed += b"\n" * (len(content) % 2)
    return packed


KINDS = {
    "sdist": ("pypi", "tiny_pack-1.0.tar.gz", "tiny_pack-1.0/data/", tar_of),
    "wheel": ("pypi", "tiny_pack-1.0-py3-none-any.whl", "tiny_pack/data/", zip_of),
    "tgz": ("npm", "tiny-pack-1.0.tgz", "package/data/", tar_of),
    "deb": ("debian", "tiny-pack_1.0_all.deb", "usr/share/tiny/", deb_of),
}
"""Kind of archive -> registry, file name, the folder of the data in it, and how it is packed."""


def checked(path: str, content: bytes) -> list[Any]:
    """A file as the manifest lists it."""
    return [path, len(content), hashlib.sha256(content).hexdigest()]


def tiny_package(
    kind: str = "sdist", datasets: dict[str, Files] = DATASETS, *, extra: Files | None = None, name: str = "tiny-pack"
) -> tuple[Entry, bytes]:
    """The manifest's entry and the archive of a package with ``datasets``, and ``extra`` members beside them."""
    registry, archive_name, root, pack = KINDS[kind]
    content = {root + path: data for files in datasets.values() for path, data in files.items()}
    archive = pack({**(extra or {}), **content})
    entry = {
        "registry": registry,
        "kind": kind,
        "package": name,
        "version": "1.0",
        "archive": checked(archive_name.replace("tiny", name.split("-")[0]), archive),
        "licence": "Apache-2.0",
        "data_licence": "not stated",
        "source": "https://example.org",
        "root": root,
        "datasets": [
            {
                "name": dataset,
                "description": f"what {dataset} is",
                "files": [checked(path, data) for path, data in files.items()],
                **({"opens": dataset} if all(path.startswith(f"{dataset}/") for path in files) else {}),
            }
            for dataset, files in datasets.items()
        ],
    }
    return entry, archive


def use_manifest(monkeypatch: pytest.MonkeyPatch, folder: Path, entries: Sequence[Entry]) -> None:
    """Let the manifest have ``entries`` alone, and the cache be empty, both in ``folder``."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    monkeypatch.setattr(sys.modules["medattn.volumes.datasets.manifest"], "MANIFEST", path)
    monkeypatch.setenv("MEDATTN_CACHE", str(folder / "cache"))


class FakeDownload:
    """Stands for ``download``: puts the archive of a package where its client would, and remembers the calls."""

    def __init__(self, archives: dict[str, bytes]) -> None:
        self.archives, self.calls = archives, list[str]()

    def __call__(self, package: Any, folder: Path, on_bytes: Any) -> Path:
        self.calls.append(package.name)
        on_bytes(len(self.archives[package.name]))
        path = folder / package.archive.path
        path.write_bytes(self.archives[package.name])
        return path


def fake_download(monkeypatch: pytest.MonkeyPatch, **archives: bytes) -> FakeDownload:
    """Let ``fetch`` get these archives, by package with "_" for "-", instead of using a network."""
    fake = FakeDownload({name.replace("_", "-"): archive for name, archive in archives.items()})
    monkeypatch.setattr(FETCH_MODULE, "download", fake)
    return fake
