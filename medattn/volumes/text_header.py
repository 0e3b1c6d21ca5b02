"""What headers written as text share: a bounded start of the file, numbers, and the name of the file of the voxels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from medattn.volumes.errors import VolumeError

MAX_HEADER_BYTES = 1 << 20
"""A header of text must end within so many bytes."""

MAX_SKIP_BYTES = 64 << 20
"""So many bytes may be skipped before the first voxel."""

_SHOWN = 80


class Header(NamedTuple):
    """Fields by their names, where in the file the header ends, and of what ``format`` it is."""

    fields: dict[str, str]
    end: int
    format: str

    def required(self, name: str) -> str:
        """The value of the field ``name``.

        Raises:
            VolumeError: if there is none.
        """
        value = self.fields.get(name)
        if value is None:
            raise VolumeError(f"not a whole {self.format} header: it must have the field {name!r}")
        return value


def read_start(path: Path) -> bytes:
    """The bytes that may be the header."""
    with path.open("rb") as file:
        return file.read(MAX_HEADER_BYTES)


def lines(content: bytes) -> Iterator[tuple[str, int]]:
    """Each line without its end (LF or CRLF), and where the next one starts; bytes that are no UTF-8 are replaced."""
    at, pieces = 0, content.split(b"\n")
    for piece in pieces if pieces[-1] else pieces[:-1]:
        at = min(at + len(piece) + 1, len(content))
        yield piece.removesuffix(b"\r").decode("utf-8", "replace"), at


def shown(text: str) -> str:
    """``text`` for a message; the start of it, if it is long."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def reals(text: str, field: str, count: int) -> list[float]:
    """``count`` numbers, which may be NaN or infinite.

    Raises:
        VolumeError: if there are more or fewer, or one is no number.
    """
    return [_real(word, field) for word in words(text, field, count)]


def wholes(text: str, field: str, count: int, *, least: int, most: int | None = None) -> list[int]:
    """``count`` integers, none below ``least`` nor above ``most``.

    Raises:
        VolumeError: if there are more or fewer, or one is no such integer.
    """
    return [_whole(word, field, least, most) for word in words(text, field, count)]


def words(text: str, field: str, count: int) -> Sequence[str]:
    """The ``count`` words that ``text`` must have."""
    found = text.split()
    if len(found) != count:
        raise VolumeError(f"{field} must have {count} value{'s' * (count > 1)}, got {len(found)}: {shown(text)}")
    return found


def _real(word: str, field: str) -> float:
    try:
        return float(word.replace("_", "?"))  # Python takes 1_0 for 10
    except ValueError:
        raise VolumeError(f"{field} must be numbers, got {shown(word)}") from None


def _whole(word: str, field: str, least: int, most: int | None) -> int:
    wanted = f"integers >= {least}" if most is None else f"integers from {least} to {most}"
    try:
        value = int(word.replace("_", "?"))
    except ValueError:
        raise VolumeError(f"{field} must be {wanted}, got {shown(word)}") from None
    if value < least or (most is not None and value > most):
        raise VolumeError(f"{field} must be {wanted}, got {shown(word)}")
    return value


def voxel_path(header: Path, name: str, field: str) -> Path:
    """The file of the voxels, which lies beside ``header`` or in a folder below.

    What a header says cannot lead out of its folder. Links are followed, as for any file: no header makes one.

    Raises:
        VolumeError: if ``name`` is an absolute path or has "..", or there is no such file.
    """
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise VolumeError(f"{field} must name a file in the folder of the header, or below it, got {shown(name)}")
    path = header.parent / relative
    if not name or not os.path.isfile(path):  # of the two, only this one accepts any text
        raise VolumeError(f"{field} names the file of the voxels, but there is no file {shown(name)} beside the header")
    return path
