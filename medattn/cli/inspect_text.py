"""Words and rounded numbers for what ``inspect`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def shown(text: object) -> str:
    """``text`` with a replacement character for what is not printable: names and headers may hold anything."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def number(value: float, digits: int = 4) -> str:
    """``value`` to so many significant digits, and without an exponent below ten million."""
    text = f"{value + 0.0:.{digits}g}"  # + 0.0 turns -0.0 into 0.0
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e7 else text


def product(lengths: Iterable[float]) -> str:
    """Rounded lengths, such as 0.7031 x 0.7031 x 2.5."""
    return " x ".join(map(number, lengths))


def counted(count: int, noun: str) -> str:
    """Such as 1 volume, 2 volumes."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(items: Sequence[object], most: int) -> str:
    """At most so many ``items``, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(str(item) for item in items[:most]) + more
