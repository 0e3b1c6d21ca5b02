"""The files that may be DICOM in a folder, a list or a zip archive, which is unpacked in memory only, within bounds."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from medattn.volumes.errors import VolumeError, library_errors
from medattn.volumes.gzipped import MAX_RATIO

SUFFIXES = (".dcm", ".dicom", ".ima")
"""Files named so are taken for DICOM even without its mark."""

MARK_OFFSET, MARK = 128, b"DICM"

_DEFLATED = b"\x02\x00\x10\x00UI\x16\x001.2.840.10008.1.2.1.99"  # element TransferSyntaxUID of the file meta group
_EXPLICIT = b"\x02\x00\x10\x00UI\x16\x001.2.840.10008.1.2.1\0\0\0"
_META_LENGTH = b"\x02\x00\x00\x00UL\x04\x00"
_META_START = MARK_OFFSET + len(MARK)
_MOST_META = 4096
_ENCRYPTED = 0x1


class _BoundedFile(BufferedReader):
    """A file that is never asked for more than it has: Python allocates first what a length in the file asks for."""

    def __init__(self, path: Path) -> None:
        super().__init__(FileIO(path))
        self._size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """The next ``size`` bytes, fewer at the end of the file; all that are left if it is negative."""
        return super().read(-1 if size is None else min(size, self._size))


@dataclass(frozen=True)
class DicomFile:
    """A file, or a member of an archive.

    Attributes:
        name: relative to the folder or archive, for messages.
        start: opens it.
        max_bytes: the most that a deflated one may unpack to.
    """

    name: str
    start: Callable[[], BinaryIO]
    max_bytes: int

    @property
    def is_named_dicom(self) -> bool:
        """True if its suffix says that it is DICOM."""
        return self.name.lower().endswith(SUFFIXES)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of reading it name it."""
        try:
            yield
        except VolumeError as error:
            raise VolumeError(f"{self.name}: {error}") from error

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The file from its beginning; a deflated data set is unpacked.

        Raises:
            VolumeError: if it cannot be opened, or unpacks to more than ``max_bytes``.
        """
        with library_errors(f"opening {self.name}"):
            stream = self.start()
        with stream:
            with library_errors(f"reading {self.name}"):
                beginning = stream.read(_MOST_META)
                stream.seek(0)
            yield self._inflated(stream) if _DEFLATED in beginning else stream

    def _inflated(self, stream: BinaryIO) -> BinaryIO:
        """The file as if it had been written without deflation."""
        with library_errors(f"reading {self.name}"):
            content = stream.read()
        length = content[_META_START + len(_META_LENGTH) :][:4]
        end = _META_START + len(_META_LENGTH) + 4 + int.from_bytes(length, "little")
        if not content[_META_START:].startswith(_META_LENGTH) or end > len(content):
            raise VolumeError(f"{self.name} must begin with the length of its meta information to be inflated")
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        with library_errors(f"inflating {self.name}, which is truncated or damaged,"):
            data = unpacker.decompress(content[end:], self.max_bytes + 1)
        if len(data) > self.max_bytes:
            raise VolumeError(f"{self.name} inflates to more than the limit of {self.max_bytes} bytes")
        if not unpacker.eof:
            raise VolumeError(f"{self.name} is truncated or damaged: its deflated data set ends too early")
        return BytesIO(content[:end].replace(_DEFLATED, _EXPLICIT) + data)


class FoundFiles(NamedTuple):
    """Files that may be DICOM, and the names of those that cannot be."""

    files: list[DicomFile]
    others: list[str]


@contextmanager
def open_files(path: Path | Sequence[Path], max_bytes: int) -> Iterator[FoundFiles]:
    """The files at ``path``, in order of their names, to be read while the context lasts.

    A folder is searched to its ends. Hidden files, indices (DICOMDIR) and archives inside an archive are no candidates.

    Raises:
        VolumeError: if an archive is damaged, encrypted, or claims to hold more than ``max_bytes``, more than its
            compression can, or members outside its folder.
    """
    if not isinstance(path, Path):
        yield FoundFiles([_file(member, str(member), max_bytes) for member in path], [])
    elif path.is_dir():
        yield _in_folder(path, max_bytes)
    elif path.suffix.lower() == ".zip":
        with _BoundedFile(path) as stream:
            with library_errors("opening the zip archive, which is truncated or damaged,"):
                archive = zipfile.ZipFile(stream)
            with archive:
                yield _in_archive(archive, max_bytes)
    else:
        yield FoundFiles([_file(path, path.name, max_bytes)], [])


def _file(path: Path, name: str, max_bytes: int) -> DicomFile:
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    if not path.is_file():
        raise VolumeError(f"{name} must be a file, but is none")
    return DicomFile(name, partial(_BoundedFile, path), max_bytes)


def _in_folder(folder: Path, max_bytes: int) -> FoundFiles:
    def failed(error: OSError) -> None:
        raise VolumeError(f"a folder cannot be listed: {error}") from error

    found = FoundFiles([], [])
    for parent, folders, names in os.walk(folder, onerror=failed):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            shown = path.relative_to(folder).as_posix()
            if _is_candidate(name) and path.is_file():
                found.files.append(_file(path, shown, max_bytes))
            else:
                found.others.append(shown)
    return found


def _in_archive(archive: zipfile.ZipFile, max_bytes: int) -> FoundFiles:
    found, total = FoundFiles([], []), 0
    for member in sorted(archive.infolist(), key=lambda info: info.filename):
        if member.filename.endswith("/"):
            continue
        _check_member(member)
        name = PurePosixPath(member.filename).name
        if not _is_candidate(name) or name.lower().endswith(".zip"):
            found.others.append(member.filename)
            continue
        total += member.file_size
        found.files.append(DicomFile(member.filename, partial(_unpacked, archive, member), max_bytes))
    if total > max_bytes:
        raise VolumeError(
            f"the archive holds {total} bytes, over the limit of {max_bytes}; load_volume(..., max_bytes=...) raises it"
        )
    return found


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> BinaryIO:
    """A whole member, so that its checksum is always compared."""
    return BytesIO(archive.read(member))


def _check_member(member: zipfile.ZipInfo) -> None:
    """Python's reader gives at most the claimed size of a stored or deflated member, so claims are all to check."""
    name, parts = member.filename, member.filename.replace("\\", "/").split("/")
    if ".." in parts or parts[0] == "" or parts[0].endswith(":"):
        raise VolumeError(f"the archive's member {name!r} lies outside of it")
    if member.flag_bits & _ENCRYPTED:
        raise VolumeError(f"the archive is encrypted (member {name!r}), and must not be")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise VolumeError(f"members of the archive must be stored or deflated, {name!r} is neither")
    if member.file_size > member.compress_size * MAX_RATIO:
        raise VolumeError(
            f"the archive's member {name!r} claims {member.file_size} bytes in {member.compress_size}, over "
            f"{MAX_RATIO} times as many, which no deflated file has"
        )


def _is_candidate(name: str) -> bool:
    return not name.startswith(".") and name.upper() != "DICOMDIR"
