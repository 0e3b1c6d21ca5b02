"""Damage to files that are gzip, or are turned into gzip."""

from __future__ import annotations

import gzip
import zlib
from functools import cache

from numpy.random import Generator

from tests.fuzz.case import Files
from tests.fuzz.damage import damage_bytes, pick

_BOMB_BYTES = 300 << 20


def is_gzip(content: bytes) -> bool:
    """True if it starts like a gzip stream."""
    return content[:2] == b"\x1f\x8b"


def _packed(files: Files, rng: Generator) -> str:
    """One of the packed files."""
    names = [name for name, content in files.items() if is_gzip(content)]
    return str(pick(names, rng)) if names else ""


def _inner(files: Files, rng: Generator) -> str:
    """Damage the content, and pack it again: length and CRC are right."""
    name = _packed(files, rng)
    if not name:
        return ""
    try:
        content = gzip.decompress(files[name])
    except (OSError, EOFError, zlib.error):
        return ""
    content, what = damage_bytes(content, content, rng)
    files[name] = gzip.compress(content, mtime=0)
    return f"{what} of what {name} unpacks to"


def _members(files: Files, rng: Generator) -> str:
    """Cut into two members; sometimes with padding or garbage between them."""
    name = _packed(files, rng)
    if not name:
        return ""
    try:
        content = gzip.decompress(files[name])
    except (OSError, EOFError, zlib.error):
        return ""
    at, between = int(rng.integers(len(content) + 1)), pick((b"", b"", bytes(7), b"garbage", b"\x1f\x8b"), rng)
    files[name] = gzip.compress(content[:at], mtime=0) + between + gzip.compress(content[at:], mtime=0)
    return f"{name} in two members from {at}, {between!r} between"


def _bomb(files: Files, rng: Generator) -> str:
    """Hundreds of MB of zeros behind the content, or in its place."""
    name = _packed(files, rng)
    if not name:
        return ""
    keep = rng.random() < 0.7
    files[name] = (files[name] if keep else b"") + _zeros()
    return f"bomb {'behind' if keep else 'in place of'} {name}"


@cache
def _zeros() -> bytes:
    packer, piece = zlib.compressobj(9, wbits=31), bytes(1 << 20)
    return b"".join([*(packer.compress(piece) for _ in range(_BOMB_BYTES >> 20)), packer.flush()])


def _plain(files: Files, rng: Generator) -> str:
    """Packed becomes plain and plain becomes packed, under the same name."""
    if not files:
        return ""
    name = str(pick(list(files), rng))
    try:
        files[name] = gzip.decompress(files[name]) if is_gzip(files[name]) else gzip.compress(files[name], mtime=0)
    except (OSError, EOFError, zlib.error):
        return ""
    return f"{name} unpacked or packed"


GZIP_DAMAGES = (_inner, _inner, _inner, _members, _bomb, _plain)
