"""What ``inspect`` prints: JSON, or one volume in detail, or a table of several."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console

from medattn.cli.inspect_detail import print_detail
from medattn.cli.inspect_table import print_table
from medattn.cli.inspect_text import counted
from medattn.cli.inspection import Inspected, as_json

_UNLIMITED = 100_000
"""Columns where there is no terminal: nothing is folded or cut."""


def report(inspected: Sequence[Inspected], ignored: int, json_wanted: bool) -> None:
    """Print what is known about ``inspected``."""
    if json_wanted:
        print(json.dumps(as_json(inspected), indent=2, allow_nan=False))
        return
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNLIMITED
    with console.capture() as capture:
        _print(inspected, ignored, console)
    text = "\n".join(line.rstrip() for line in capture.get().splitlines())
    if text:
        console.out(text, highlight=False)


def _print(inspected: Sequence[Inspected], ignored: int, console: Console) -> None:
    if len(inspected) == 1:
        print_detail(inspected[0], console)
    elif inspected:
        print_table(inspected, console)
    if len(inspected) > 1 or (inspected and ignored):
        console.print(_count(inspected, ignored))


def _count(inspected: Sequence[Inspected], ignored: int) -> str:
    refused = sum(item.summary is None for item in inspected)
    warned = sum(any(note.is_warning for note in item.summary.notes) for item in inspected if item.summary)
    parts = [f"{len(inspected) - refused} read", f"{warned} with warnings", f"{refused} refused"]
    return f"{counted(len(inspected), 'volume')}: {', '.join(parts)}; {counted(ignored, 'other file')} ignored"
