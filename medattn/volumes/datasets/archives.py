"""Reading single files out of archives (wheel, zip, tar, Debian package), without unpacking anything else."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

_AR_MAGIC, _AR_HEADER_BYTES = b"!<arch>\n", 60


class DamagedError(Exception):
    """An archive lacks a member, or a file is not what the manifest says."""


def read_members(archive: Path, paths: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Path and content of each member of exactly these paths, in one pass over the archive.

    Raises:
        DamagedError: if a member is missing, or is a link or anything else but a plain file.
    """
    return _zip_members(archive, paths) if archive.suffix in (".whl", ".zip") else _tar_members(archive, paths)


def _zip_members(archive: Path, paths: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as zipped:
        missing = sorted(set(paths) - set(zipped.namelist()))
        if missing:
            raise DamagedError(f"{archive.name} has no member {missing[0]}")
        for path in paths:
            with zipped.open(path) as stream:
                yield path, stream


def _tar_members(archive: Path, paths: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    missing = set(paths)
    with _open_deb(archive) if archive.suffix == ".deb" else tarfile.open(archive) as tar:
        for info in tar:
            path = info.name.removeprefix("./")
            if path not in missing:
                continue
            stream = tar.extractfile(info) if info.isfile() else None
            if stream is None:
                raise DamagedError(f"member {path} of {archive.name} is not a plain file")
            yield path, stream
            missing.remove(path)
            if not missing:
                return
    raise DamagedError(f"{archive.name} has no member {min(missing)}")


def _open_deb(archive: Path) -> tarfile.TarFile:
    """The tar with a Debian package's files: member ``data.tar.*`` of an ar archive, which deb(5) describes."""
    with archive.open("rb") as stream:
        stream.seek(len(_AR_MAGIC))
        while len(header := stream.read(_AR_HEADER_BYTES)) == _AR_HEADER_BYTES:
            name, size = header[:16], int(header[48:58])
            if name.startswith(b"data.tar"):
                return tarfile.open(fileobj=io.BytesIO(stream.read(size)))
            stream.seek(size + size % 2, io.SEEK_CUR)
    raise DamagedError(f"{archive.name} has no member data.tar")
