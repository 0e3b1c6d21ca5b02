"""Damage to bytes, without knowing what they mean; and extreme numbers and texts to put where one knows."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from numpy.random import Generator

INTEGERS = (
    0,
    -1,
    1,
    2,
    3,
    5,
    7,
    255,
    256,
    2**15 - 1,
    2**15,
    2**16 - 1,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63,
)
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.5,
    1e-3,
    1e-30,
    1e-45,
    5e-324,
    1e6,
    1e9,
    1e30,
    -1e30,
    3e38,
    1e300,
    *(math.inf, math.nan),
)
TEXTS = (
    *("", "0", "-1", "1", "3", "0.5", "1e400", "nan", "inf", "-inf", "1e-320", "99999999999999999999", "1e30", "1e-30"),
    *(
        "0x10",
        "1_0",
        "1,5",
        "½",
        "٣",
        "(1,0,0)",
        "1 2",
        "none",
        "a" * 5000,
        "\0",
        "%s%n",
        "../../x",
        "/dev/zero",
        "\x1b[",
    ),
)

_HEADER_BYTES = 700  # most offsets of damage are in the first so many bytes

_MOST_SPLICED = 1 << 20  # what is spliced in may itself be a bomb

BytesDamage = Callable[[bytes, bytes, Generator], tuple[bytes, str]]


def damage_bytes(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    """``content`` damaged in one place or several, with ``other`` as a source of foreign blocks; and what was done."""
    return _DAMAGES[int(rng.integers(len(_DAMAGES)))](content, other, rng)


def pick(choices: Any, rng: Generator) -> Any:
    """One of ``choices``."""
    return choices[int(rng.integers(len(choices)))]


def _place(content: bytes, rng: Generator) -> int:
    """An offset in ``content``, its end included."""
    limit = min(len(content), _HEADER_BYTES) if rng.random() < 0.6 else len(content)
    return int(rng.integers(limit + 1))


def _run(content: bytes, rng: Generator) -> tuple[int, int]:
    """Begin and end of a run: short, or sometimes long."""
    start = _place(content, rng)
    return start, min(len(content), start + 1 + int(rng.integers(pick((1, 4, 16, 400), rng))))


def _truncate(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    at = _place(content, rng)
    return content[:at], f"truncation to {at} bytes"


def _flip_bits(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    if not content:
        return content, "no bit to flip"
    changed, places = bytearray(content), []
    for _ in range(int(pick((1, 1, 2, 8), rng))):
        at, bit = min(_place(content, rng), len(content) - 1), int(rng.integers(8))
        changed[at] ^= 1 << bit
        places.append(f"{at}.{bit}")
    return bytes(changed), f"flip of bits {' '.join(places)}"


def _fill(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    (start, end), value = _run(content, rng), int(pick((0, 255, 32, 10), rng))
    return content[:start] + bytes([value]) * (end - start) + content[end:], f"bytes {start} to {end} set to {value}"


def _delete(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    start, end = _run(content, rng)
    return content[:start] + content[end:], f"deletion of bytes {start} to {end}"


def _repeat(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    (start, end), at = _run(content, rng), _place(content, rng)
    return content[:at] + content[start:end] + content[at:], f"copy of bytes {start} to {end} inserted at {at}"


def _noise(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    start, end = _run(content, rng)
    return content[:start] + rng.bytes(end - start) + content[end:], f"noise at {start} to {end}"


def _integer(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    at, size, order = _place(content, rng), int(pick((2, 4, 8), rng)), pick(("little", "big"), rng)
    value = int(pick(INTEGERS, rng))
    packed = (value % (1 << 8 * size)).to_bytes(size, order)
    return content[:at] + packed + content[at + size :], f"{size}-byte {order} integer {value} at {at}"


def _float(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    at, kind, value = _place(content, rng), pick(("<f", ">f", "<d", ">d"), rng), pick(FLOATS, rng)
    try:
        packed = struct.pack(kind, value)
    except OverflowError:
        packed = struct.pack(kind, math.inf)
    return content[:at] + packed + content[at + len(packed) :], f"float {kind} {value} at {at}"


def _splice(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    at, begin = _place(content, rng), _place(other, rng)
    return content[:at] + other[begin:][:_MOST_SPLICED], f"splice at {at} with another sample from {begin}"


def _append(content: bytes, other: bytes, rng: Generator) -> tuple[bytes, str]:
    size = int(pick((1, 4, 100, 5000, 40000), rng))
    return content + (bytes(size) if rng.random() < 0.5 else rng.bytes(size)), f"{size} bytes appended"


_DAMAGES: tuple[BytesDamage, ...] = (
    *(_truncate, _flip_bits, _flip_bits, _fill, _delete, _repeat, _noise, _integer, _integer, _float),
    *(_splice, _append),
)
