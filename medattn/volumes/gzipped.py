"""Files that may be gzip, read with a bound: a small file may claim, or hold, more than any memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.errors import VolumeError, library_errors

MAX_RATIO = 1032
"""No deflate stream unpacks to more than this many times its length (a 258-byte match takes two bits)."""

MAGIC = b"\x1f\x8b"

_PIECE_BYTES = 1 << 18  # stays in a core's cache


class ByteStream:
    """The bytes of a file from front to back, unpacked on the way; never more is unpacked than was asked for.

    Attributes:
        name: of the file, for messages.
        capacity: the most bytes that the file can hold, unpacked.
        position: how many bytes have been read.
    """

    def __init__(self, stream: BufferedIOBase, name: str, capacity: int) -> None:
        self._stream = stream
        self.name, self.capacity, self.position = name, capacity, 0

    def read(self, count: int) -> bytes:
        """The next ``count`` bytes; fewer only at the end of the file.

        Raises:
            VolumeError: if a gzip stream is damaged.
        """
        with self._errors():
            content = self._stream.read(min(count, self.capacity))
        self.position += len(content)
        return content

    def numbers(self, count: int, stored: np.dtype[Any], wanted: np.dtype[Any]) -> NDArray[Any]:
        """The next ``count`` numbers, of type ``stored``, as type ``wanted``.

        Raises:
            VolumeError: if the file ends before that, or a gzip stream is damaged. Nothing is allocated for numbers
                that the file cannot hold.
        """
        end = self.position + count * stored.itemsize
        if end > self.capacity:
            raise self._truncated(end, f"can hold {self.capacity} at most")
        if isinstance(self._stream, BufferedReader):  # not packed: mapping it saves a copy
            with self._errors():
                numbers = np.memmap(self._stream, stored, "r", self.position, (count,)).astype(wanted)
            self.position = self._stream.seek(end)
            return np.asarray(numbers)
        numbers, step = np.empty(count, wanted), _PIECE_BYTES // stored.itemsize
        for start in range(0, count, step):
            part = numbers[start : start + step]
            content = self.read(len(part) * stored.itemsize)
            if len(content) < len(part) * stored.itemsize:
                raise self._truncated(end, f"holds {self.position}")
            part[...] = np.frombuffer(content, stored)
        return numbers

    def _errors(self) -> AbstractContextManager[None]:
        return library_errors(f"reading {self.name}, which is truncated or damaged,")

    def _truncated(self, needed: int, holds: str) -> VolumeError:
        return VolumeError(f"{self.name} is truncated: its header promises {needed} bytes, but it {holds}")


@contextmanager
def open_bytes(path: Path) -> Iterator[ByteStream]:
    """Open a file that may be gzip, which its content tells and not its name."""
    size = path.stat().st_size
    with path.open("rb") as file:
        packed = file.read(len(MAGIC)) == MAGIC
        file.seek(0)
        if not packed:
            yield ByteStream(file, path.name, size)
            return
        from isal.igzip import IGzipFile

        with IGzipFile(fileobj=file, mode="rb") as unpacked:
            yield ByteStream(unpacked, path.name, size * MAX_RATIO)
