"""The one kind of error that a bad file raises, and how other libraries' errors become it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class VolumeError(ValueError):
    """A file, folder or archive that is no usable volume; the message names it, the field, what it must be and is."""


@contextmanager
def library_errors(doing: str) -> Iterator[None]:
    """Turn whatever a file library raises on a damaged file into a ``VolumeError`` that says what it was ``doing``.

    Only for calls into such a library: libraries raise anything on damaged files, our own code must not.
    """
    try:
        yield
    except (VolumeError, FileNotFoundError, ImportError):
        raise
    except Exception as error:
        raise VolumeError(f"{doing} failed: {type(error).__name__}: {' '.join(str(error).split())[:500]}") from error


def first_few(items: Iterable[str], most: int = 5) -> str:
    """The first of ``items`` for a message, and how many more there are."""
    listed = list(items)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
