"""Damage to headers that are lines of text with a field each."""

from __future__ import annotations

import re
from collections.abc import Callable

from numpy.random import Generator

from tests.fuzz.case import Damage, Files
from tests.fuzz.damage import TEXTS, pick

Lines = list[bytes]
Split = Callable[[bytes], tuple[Lines, bytes]]
"""Takes a file apart into the lines of its header, each with its end, and the rest."""

_WORD = re.compile(rb"[^\s(),\"]+")


def text_damages(split: Split, header_suffixes: tuple[str, ...], values: tuple[str, ...]) -> tuple[Damage, ...]:
    """Damages to a line or several; ``values`` are texts that mean something to the format."""
    texts = tuple(text.encode() for text in (*TEXTS, *values))

    def damage(change: Callable[[Lines, Generator], str]) -> Damage:
        def on_files(files: Files, rng: Generator) -> str:
            name = next((name for name in files if name.endswith(header_suffixes)), "")
            lines, rest = split(files[name]) if name else ([], b"")
            if not lines:
                return ""
            what = change(lines, rng)
            files[name] = b"".join(lines) + rest
            return what

        return on_files

    def set_word(lines: Lines, rng: Generator) -> str:
        at = int(rng.integers(len(lines)))
        begin = max(lines[at].find(b":"), lines[at].find(b"=")) + 1
        found = list(_WORD.finditer(lines[at], begin))
        if not found:
            return ""
        word, text = (
            found[int(rng.integers(len(found)))],
            pick((*texts, b"-" + found[0][0], b"1.5" + found[-1][0]), rng),
        )
        lines[at] = lines[at][: word.start()] + text + lines[at][word.end() :]
        return f"a word becomes {text[:40]!r}: {lines[at][:200]!r}"

    def set_value(lines: Lines, rng: Generator) -> str:
        at, other = int(rng.integers(len(lines))), lines[int(rng.integers(len(lines)))]
        begin = re.search(rb"[:=] ?", lines[at])
        if begin is None:
            return ""
        text = pick((*texts, re.split(rb"[:=] ?", other, maxsplit=1)[-1].rstrip()), rng)
        lines[at] = lines[at][: begin.end()] + text + b"\n"
        return f"a value becomes {text[:40]!r}: {lines[at][:200]!r}"

    return tuple(map(damage, (set_word, set_word, set_word, set_value, set_value, _delete, _duplicate, _swap, _style)))


def _delete(lines: Lines, rng: Generator) -> str:
    return f"line deleted: {lines.pop(int(rng.integers(len(lines))))[:200]!r}"


def _duplicate(lines: Lines, rng: Generator) -> str:
    line = lines[int(rng.integers(len(lines)))]
    if rng.random() < 0.5:
        line = re.sub(rb"\d", b"7", line)
    lines.insert(int(rng.integers(len(lines) + 1)), line)
    return f"another line: {line[:200]!r}"


def _swap(lines: Lines, rng: Generator) -> str:
    a, b = (int(n) for n in rng.integers(len(lines), size=2))
    lines[a], lines[b] = lines[b], lines[a]
    return f"lines {a} and {b} swapped"


def _style(lines: Lines, rng: Generator) -> str:
    """Changes of form that may change the meaning for a careless reader."""
    style = int(rng.integers(5))
    at = int(rng.integers(len(lines)))
    line = lines[at]
    if style == 0:
        lines[:] = [line.replace(b"\n", b"\r\n") for line in lines]
        return "lines end in CR LF"
    if style == 1:
        lines[at] = line.upper()
    elif style == 2:
        lines[at] = line.replace(b" ", b"  ").replace(b"\n", b" \t\n")
    elif style == 3:
        lines[at] = b"# " + line
    else:
        lines[at] = line.replace(b"e", b"\xc3\xa9", 1).replace(b"i", b"\xff", 1)
    return f"line becomes {lines[at][:200]!r}"
