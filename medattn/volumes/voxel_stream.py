"""Voxels that follow a header of text, or lie in a file of their own: raw, gzip or zlib, read with a bound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.errors import VolumeError
from medattn.volumes.gzipped import MAGIC, MAX_RATIO, ByteStream
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.stored import ReadOptions, check_size

MAX_TRAILING_BYTES = 16 << 10
"""Bytes after the last voxel: so few may be padding, more mean that the header does not say what the file holds."""

_LEVEL = 2  # of isal's 0 to 3: on CT smaller than level 1 and than zlib's 4, in a seventh of zlib's time


class Packing(Enum):
    """How voxels are packed."""

    RAW = "raw"
    GZIP = "gzip"
    ZLIB = "zlib"
    """zlib's own format; gzip's is taken as well, told by its first bytes."""


@contextmanager
def open_voxels(path: Path, packing: Packing, offset: int) -> Iterator[ByteStream]:
    """The bytes of ``path`` from ``offset`` on, unpacked."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(offset)
        if packing is Packing.RAW:
            stream = ByteStream(file, path.name, size)
            stream.position = offset
            yield stream
            return
        capacity = max(size - offset, 0) * MAX_RATIO
        if packing is Packing.ZLIB:
            yield ByteStream(_Inflated(file), path.name, capacity)
            return
        from isal.igzip import IGzipFile

        with IGzipFile(fileobj=file, mode="rb") as unpacked:
            yield ByteStream(unpacked, path.name, capacity)


class _Inflated(BufferedIOBase):
    """What a zlib stream at the position of ``file`` unpacks to, then the bytes that follow it, as they are."""

    _PIECE_BYTES = 1 << 16

    def __init__(self, file: BinaryIO) -> None:
        from isal import isal_zlib

        self._file, self._packed = file, file.read(self._PIECE_BYTES)
        self._unpacker = isal_zlib.decompressobj(wbits=31 if self._packed.startswith(MAGIC) else 15)

    def read(self, size: int | None = -1, /) -> bytes:
        """The next ``size`` bytes; fewer only at the end of the file."""
        assert size is not None and size >= 0
        parts = list[bytes]()
        while size > 0:
            ended = self._unpacker.eof
            part = self._rest(size) if ended else self._unpack(size)
            if ended and not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _unpack(self, size: int) -> bytes:
        before = self._packed or self._file.read(self._PIECE_BYTES)
        part: bytes = self._unpacker.decompress(before, size)
        if not (before or part or self._unpacker.eof):
            raise EOFError("the zlib stream ends too early")
        self._packed = self._unpacker.unused_data if self._unpacker.eof else self._unpacker.unconsumed_tail
        return part

    def _rest(self, size: int) -> bytes:
        if not self._packed:
            return self._file.read(size)
        part, self._packed = self._packed[:size], self._packed[size:]
        return part


def offset_from_end(path: Path, axes: Sequence[int], dtype: np.dtype[Any], least: int) -> int:
    """Where raw voxels start that reach to the end of ``path``; not before ``least``."""
    size, needed = path.stat().st_size, math.prod(axes) * dtype.itemsize
    if size - needed < least:
        raise VolumeError(f"{path.name} is truncated: its header promises {least + needed} bytes, but it holds {size}")
    return size - needed


def read_voxels(
    stream: ByteStream,
    axes: Sequence[int],
    spatial: Sequence[int],
    dtype: np.dtype[Any],
    options: ReadOptions,
    *,
    scaled: bool = False,
) -> NDArray[Any]:
    """Numbers (C, I, J, K), as the type that is wanted in the end where that changes none.

    Args:
        stream: at the first voxel.
        axes: lengths of the array's axes, the first one the fastest.
        spatial: which of them are I, J and K. Of the others at most one may be longer than 1.
        dtype: of each number in the file.
        scaled: the numbers are still to be scaled, so that they must keep their type.

    Raises:
        VolumeError: if they are too many for ``options``, or more than the file holds.
    """
    check_size(axes, dtype.itemsize, options.max_bytes)
    wanted = np.dtype(np.int64 if options.labels else np.float32)
    if scaled or not np.can_cast(dtype, wanted, "safe"):
        wanted = dtype.newbyteorder("=")
    values = stream.numbers(math.prod(axes), dtype, wanted).reshape(axes, order="F")
    others = [axis for axis in range(len(axes)) if axis not in spatial]
    values = values.transpose(*others, *spatial)
    return values.reshape(-1, *values.shape[-3:])


def check_end(stream: ByteStream) -> list[Note]:
    """A note if a little follows the last voxel. Reads to the end of the file, so that its sums are checked.

    Raises:
        VolumeError: if much follows.
    """
    left = len(stream.read(MAX_TRAILING_BYTES + 1))
    if left > MAX_TRAILING_BYTES:
        most = f"at most {MAX_TRAILING_BYTES} bytes may follow the last voxel"
        raise VolumeError(f"{stream.name} holds more than its header says: {most}")
    if left == 0:
        return []
    message = f"{stream.name} holds {left} bytes more than its header says; they were left out"
    return [Note(NoteKind.FIELDS_DISAGREE, message, {"bytes": left})]


def new_packer(packing: Packing) -> Any:
    """A compressor for gzip, whose header names no file and no time, or for zlib."""
    from isal import isal_zlib

    return isal_zlib.compressobj(_LEVEL, wbits=15 if packing is Packing.ZLIB else 31)


def pack(array: NDArray[Any], packing: Packing) -> list[bytes]:
    """``array`` (I, J, K) or (I, J, K, C) as the formats with headers of text hold it: channels the fastest, then I."""
    ordered = np.ascontiguousarray(array.transpose(2, 1, 0, *range(3, array.ndim)), array.dtype.newbyteorder("<"))
    packer = new_packer(packing)
    return [packer.compress(ordered.data), packer.flush()]
