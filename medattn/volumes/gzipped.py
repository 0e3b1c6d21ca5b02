"""Unpacking gzip with a bound: a small file may claim, or hold, more than any memory."""

from __future__ import annotations

from medattn.volumes.errors import VolumeError, library_errors

MAX_RATIO = 1032
"""No deflate stream unpacks to more than this many times its length (a 258-byte match takes two bits)."""

MAGIC = b"\x1f\x8b"


def gunzip(content: bytes, max_bytes: int) -> bytes:
    """Unpack all members of a gzip stream; length and CRC of each are checked.

    Raises:
        VolumeError: if the stream is damaged or truncated, or unpacks to more than ``max_bytes``.
    """
    from isal import isal_zlib

    parts, left = [], max_bytes
    while content:
        member = isal_zlib.decompressobj(wbits=31)
        with library_errors("unpacking the gzip stream, which is truncated or damaged,"):
            parts.append(member.decompress(content, left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise VolumeError(f"the gzip stream unpacks to more than the limit of {max_bytes} bytes")
        if not member.eof:
            raise VolumeError("the gzip stream is truncated or damaged (it ends too early)")
        content = member.unused_data.lstrip(b"\0")  # padding between members is allowed
    return b"".join(parts)
