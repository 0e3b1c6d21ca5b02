"""Several inspected volumes: a table, and below it refusals, notes and grids that disagree, in words."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from medattn.cli.inspect_columns import number_lines
from medattn.cli.inspect_text import counted, listed, shown
from medattn.cli.inspection import Inspected, other_grids
from medattn.volumes.find import Source
from medattn.volumes.notes import NoteKind
from medattn.volumes.summary import VolumeSummary

_MOST = 5
"""How many names, messages of one kind, or pairs of grids a terminal shows; a pipe gets them all."""

_Row = tuple[Text, Text]


def print_table(inspected: Sequence[Inspected], console: Console) -> None:
    """Print what is known about ``inspected``, one row each, and what there is to say about them."""
    overview = _Overview(inspected, console.is_terminal)
    console.print(overview.title, style="bold")
    for line in overview.lines(console.width):
        console.print(line)
    console.print()
    lists = {
        "Refused": overview.refusals(),
        "Notes (!: needs a look)": overview.notes(),
        "One shape in one folder, but different grids": overview.grids(),
    }
    for title, rows in lists.items():
        table = Table.grid(padding=(0, 1))
        for row in rows:
            table.add_row(*row)
        if table.row_count:
            console.print(_bold(title), Padding(table, (0, 0, 1, 2), expand=False))


class _Overview:
    """The rows of the table and of the lists below it."""

    def __init__(self, inspected: Sequence[Inspected], shorten: bool) -> None:
        self._inspected = inspected
        self._most = _MOST if shorten else max(_MOST, len(inspected))
        self._base = _common_folder([item.source for item in inspected])
        self._series = Counter(item.source.path for item in inspected)
        kinds = dict.fromkeys(note.kind for item in inspected if item.summary for note in item.summary.notes)
        self._marks = {kind: f"{i}{'!' * kind.is_warning}" for i, kind in enumerate(kinds, start=1)}
        self.title = shown(f"{counted(len(inspected), 'volume')} in {self._base}")

    def lines(self, width: int) -> list[Text]:
        """The table: names in the first column, or on lines of their own if that would be wider than ``width``."""
        names = [Text("volume"), *(self._titled(item) for item in self._inspected)]
        marks = [Text("notes"), *(self._marked(item) for item in self._inspected)]
        numbers = number_lines([item.summary for item in self._inspected])
        lines, titles = _beside(names, marks, numbers), 1
        if max(line.cell_len for line in lines) > width:
            above = [Text("  ").join(pair) for pair in zip(names, marks, strict=True)]
            lines, titles = [line for pair in zip(above, map(_indented, numbers), strict=True) for line in pair], 2
        for line in lines[:titles]:
            line.stylize("bold")
        return lines

    def refusals(self) -> Iterator[_Row]:
        for item in self._inspected:
            if item.summary is None:
                yield Text(""), Text.assemble((self._name(item), "red"), ": ", shown(item.reason))

    def notes(self) -> Iterator[_Row]:
        """Kind by kind, volumes with the same message together."""
        for kind, mark in self._marks.items():
            messages = self._messages(kind)
            first = Text(mark, style=_style(kind))
            for message, names in list(messages.items())[: self._most]:
                yield first, Text.assemble(shown(message), (f"  {listed(names, self._most)}", "dim"))
                first = Text("")
            if len(messages) > self._most:
                yield first, Text(f"and {len(messages) - self._most} more of this kind", style="dim")

    def grids(self) -> Iterator[_Row]:
        pairs = other_grids(self._inspected)
        for first, second, fields in pairs[: self._most]:
            beside = self._name(first).removeprefix(os.path.relpath(first.source.folder, self._base) + os.sep)
            names = Text.assemble((self._name(second), "yellow"), " is not on the grid of ", beside.strip())
            yield Text(""), names.append(f": {fields}")
        if len(pairs) > self._most:
            yield Text(""), Text(f"and {len(pairs) - self._most} more", style="dim")

    def _messages(self, kind: NoteKind) -> dict[str, list[str]]:
        messages: dict[str, list[str]] = {}
        for item in self._inspected:
            for note in item.summary.notes if item.summary else ():
                if note.kind is kind:
                    messages.setdefault(note.message, []).append(self._name(item))
        return messages

    def _name(self, item: Inspected) -> str:
        """Path from the common folder; with the UID where a folder holds several series."""
        source = item.source
        name = os.path.relpath(source.path, self._base)
        if source.series is None:
            return shown(name)
        uid = f" {source.series}" if self._series[source.path] > 1 else ""
        return shown(f"{name}{'' if name.endswith('.zip') else os.sep}{uid}")

    def _titled(self, item: Inspected) -> Text:
        if item.summary is None:
            return Text(self._name(item), style="red")
        words = [str(item.summary.metadata.get(key, "")) for key in ("modality", "series_description")]
        about = shown(" ".join(filter(None, words)))
        return Text.assemble(self._name(item), (f"  {about}" if about else "", "dim"))

    def _marked(self, item: Inspected) -> Text:
        """Its notes by their numbers, and whether it is a label map."""
        if item.summary is None:
            return Text()
        mine = {note.kind for note in item.summary.notes}
        marks = [Text(mark, style=_style(kind)) for kind, mark in self._marks.items() if kind in mine]
        return Text(" ").join([*marks, *map(Text, _labels(item.summary))])


def _labels(summary: VolumeSummary) -> list[str]:
    if summary.labels is not None:
        return [counted(len(summary.labels), "label")]
    return ["labels?"] if summary.intensities and summary.intensities.label_like else []


def _beside(names: list[Text], marks: list[Text], numbers: list[str]) -> list[Text]:
    """Names, numbers and marks of each volume on a line, in columns two spaces apart."""
    widths = [max(cell.cell_len for cell in cells) for cells in (names, map(Text, numbers))]
    lines = []
    for name, row, mark in zip(names, numbers, marks, strict=True):
        cells = [name.copy(), Text(row)]
        for cell, width in zip(cells, widths, strict=True):
            cell.pad_right(width - cell.cell_len)
        lines.append(Text("  ").join([*cells, mark]))
    return lines


def _indented(text: str) -> Text:
    return Text(f"  {text}")


def _bold(text: str) -> Text:
    return Text(text, style="bold")


def _style(kind: NoteKind) -> str:
    return "yellow" if kind.is_warning else ""


def _common_folder(sources: Sequence[Source]) -> str:
    """The deepest folder that all lie in, as given; "." if some paths are relative and others are not."""
    parents = [str(source.path.parent) for source in sources]
    return (os.path.commonpath(parents) if len({os.path.isabs(p) for p in parents}) == 1 else "") or os.curdir
