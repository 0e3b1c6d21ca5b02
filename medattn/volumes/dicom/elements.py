"""Values of DICOM elements, checked, and taken from their bytes as they lie in the file.

pydicom's own conversion takes longer than reading the header does, and its warnings and errors quote what it finds.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from medattn.volumes.errors import VolumeError, library_errors

if TYPE_CHECKING:
    from pydicom.dataset import Dataset
    from pydicom.tag import BaseTag

_BINARY = {"US": "u2", "SS": "i2", "UL": "u4", "SL": "i4", "FL": "f4", "FD": "f8", "OW": "u2", "AT": "u2"}
_PRINTABLE = re.compile(rb"[\x20-\x7e]{0,64}")
_DECIMAL = re.compile(rb" *[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)? *")
_CONTROL = re.compile(rb"[\0-\x1f\x7f]")
_MOST_TEXT = 1024


def numbers(elements: Dataset, keyword: str, count: int | None = None) -> tuple[float, ...]:
    """The numbers of an element, ``count`` of them; none if it is absent or empty.

    Raises:
        VolumeError: if they are not numbers, not finite, or not ``count``, or are said to be binary and are text.
    """
    content, vr, order = _raw(elements, keyword)
    if vr in _BINARY and _dictionary_vr(keyword) not in _BINARY:  # any two characters would make a number
        raise VolumeError(f"{keyword} must have value representation {_dictionary_vr(keyword)}, got {vr}")
    content = content if vr in _BINARY else _stripped(content)
    if not content:
        return ()
    values = _binary(content, order + _BINARY[vr]) if vr in _BINARY else _decimals(content)
    if not values or len(values) != (count or len(values)) or not all(map(math.isfinite, values)):
        wanted = f"{count} finite number{'s' * (count > 1)}" if count else "finite numbers"
        raise VolumeError(f"{keyword} must be {wanted}, got {_shown(content)}")
    return tuple(values)


def _binary(content: bytes, dtype: str) -> list[float]:
    whole = len(content) % np.dtype(dtype).itemsize == 0
    return np.frombuffer(content, dtype).astype(float).tolist() if whole else []


def _decimals(content: bytes) -> list[float]:
    """Numbers as text; none if one of them is none. Python alone would take 1_0 for 10, and skip a line break."""
    parts = content.split(b"\\")
    return [float(part) for part in parts] if all(map(_DECIMAL.fullmatch, parts)) else []


def number(elements: Dataset, keyword: str) -> float | None:
    """The one number of an element; None if it is absent or empty."""
    values = numbers(elements, keyword, count=1)
    return values[0] if values else None


def integer(elements: Dataset, keyword: str) -> int | None:
    """The one integer of an element; None if it is absent or empty.

    Raises:
        VolumeError: if there is more than one number, or it is no integer.
    """
    value = number(elements, keyword)
    if value is not None and not value.is_integer():
        raise VolumeError(f"{keyword} must be an integer, got {value}")
    return None if value is None else int(value)


def text(elements: Dataset, keyword: str) -> str:
    """Codes, UIDs or numbers, several separated by a backslash; empty if the element is absent.

    Raises:
        VolumeError: if it is too long, or has control characters, as it has where its length reaches into what follows.
    """
    content, vr, _ = _raw(elements, keyword)
    if vr in _BINARY:
        return "\\".join(f"{value:g}" for value in numbers(elements, keyword))
    content = _stripped(content)
    if len(content) > _MOST_TEXT or _CONTROL.search(content):
        raise VolumeError(f"{keyword} must be at most {_MOST_TEXT} characters of text, got {_shown(content)}")
    return content.decode("ascii", "replace")


def _stripped(content: bytes) -> bytes:
    """Without padding: spaces, and one NUL at the end. More is damage that hides digits, unless there is no digit."""
    return content.removesuffix(b"\0").strip(b" ") if content.strip(b" \0") else b""


def _shown(content: bytes) -> str:
    """``content`` for a message; only its length unless it is a short text, as it may reach into the patient's name."""
    return repr(content.decode()) if _PRINTABLE.fullmatch(content) else f"{len(content)} bytes"


def items(elements: Dataset, keyword: str) -> list[Dataset]:
    """The items of a sequence; none if it is absent."""
    from pydicom.sequence import Sequence

    with library_errors(f"reading {keyword}"), quiet():
        found = elements.get(_tag(keyword))
        value = None if found is None else found.value
    if value and not isinstance(value, Sequence):
        raise VolumeError(f"{keyword} must be a sequence of items, and is none")
    return list(value) if isinstance(value, Sequence) else []


@contextmanager
def quiet() -> Iterator[None]:
    """Without pydicom's warnings, which quote what elements hold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _raw(elements: Dataset, keyword: str) -> tuple[bytes, str, str]:
    """Content of an element, its value representation, and the byte order of its numbers."""
    element: Any = elements.get_item(_tag(keyword), keep_deferred=True)
    if element is None:
        return b"", "", "<"
    if element.VR == "SQ" or element.VR not in _known_vrs():
        raise VolumeError(f"{keyword} must have value representation {_dictionary_vr(keyword)}, got {element.VR!r}")
    if not hasattr(element, "is_little_endian"):  # converted, as pydicom does with some when it reads a sequence
        values = element.value if element.VM > 1 else [element.value]
        return "\\".join(str(value) for value in values if value is not None).encode(), "DS", "<"
    vr = _dictionary_vr(keyword) if element.VR in (None, "UN") else element.VR
    return element.value or b"", vr, "<" if element.is_little_endian else ">"


@cache
def _tag(keyword: str) -> BaseTag:
    from pydicom.tag import Tag

    return Tag(keyword)


@cache
def _dictionary_vr(keyword: str) -> str:
    from pydicom.datadict import dictionary_VR

    return dictionary_VR(_tag(keyword)).split(" ")[0]  # "US or SS" is one of them


@cache
def _known_vrs() -> frozenset[str | None]:
    """Value representations, None standing for that of the dictionary."""
    from pydicom.valuerep import VR

    return frozenset({None, *map(str, VR)})
