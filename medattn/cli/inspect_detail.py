"""One inspected volume: every field on a line, and the notes in words."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from medattn.cli.inspect_text import counted, listed, number, product, shown
from medattn.cli.inspection import Inspected
from medattn.volumes.notes import Note
from medattn.volumes.summary import VolumeSummary, obliquity_deg

_MOST_LABELS = 20
_ENDS = {"R": "right", "L": "left", "A": "anterior", "P": "posterior", "S": "superior", "I": "inferior"}

_Line = tuple[str, str]


def print_detail(item: Inspected, console: Console) -> None:
    """Print all that is known about one volume."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in _lines(item):
        table.add_row(Text(label, style="dim"), Text(shown(text)))
    for note in item.summary.notes if item.summary else ():
        table.add_row(Text(_note_label(note), style="yellow" if note.is_warning else "dim"), Text(shown(note.message)))
    if item.summary is None:
        table.add_row(Text("refused", style="red"), Text(shown(item.reason)))
    console.print(Text(shown(item.source.path), style="bold"), table)


def _lines(item: Inspected) -> Iterator[_Line]:
    if item.source.series is not None:
        files = f" ({counted(len(item.source.files), 'file')})" if item.source.files else ""
        yield "series", f"{item.source.series or 'without UID'}{files}"
    if item.summary:
        yield from _header(item.summary)
        yield from _geometry(item.summary)
        yield from _values(item.summary)


def _header(summary: VolumeSummary) -> Iterator[_Line]:
    for key, label in (("modality", "modality"), ("series_description", "description")):
        if summary.metadata.get(key):
            yield label, str(summary.metadata[key])


def _geometry(summary: VolumeSummary) -> Iterator[_Line]:
    grid = summary.grid
    codes = "".join(grid.axcodes)
    directions = ", ".join(f"{axis} to {_ENDS[code]}" for axis, code in zip("ijk", codes, strict=True))
    yield "shape", f"{product(grid.shape)} voxels, {counted(summary.channels, 'channel')}"
    yield "spacing", f"{product(grid.spacing_mm.tolist())} mm"
    yield "extent", f"{product(grid.extent_mm.tolist())} mm"
    yield "axes", f"{codes} ({directions})" if summary.orientation_known else f"unknown, taken as {codes}"
    angles = ", ".join(f"{angle:.1f}" for angle in obliquity_deg(grid).tolist())
    yield "obliquity", f"{angles} degrees; axes {'' if grid.is_orthogonal else 'not '}at right angles"
    yield "origin", _point(grid.origin_mm.tolist())
    yield "centre", _point(grid.fov_center_mm.tolist())
    for label, row in zip(("affine", "", ""), grid.affine.tolist(), strict=False):
        yield label, " ".join(f"{round(value, 4) + 0.0:10.4f}" for value in row)


def _point(position_mm: list[float]) -> str:
    return f"{', '.join(f'{round(value, 2) + 0.0:.2f}' for value in position_mm)} mm (RAS)"


def _values(summary: VolumeSummary) -> Iterator[_Line]:
    if summary.labels is not None:
        yield "labels", f"{len(summary.labels)}: {listed(summary.labels, _MOST_LABELS)}"
    found = summary.intensities
    if found is None:
        return
    yield "intensities", f"{number(found.min)} to {number(found.max)}, mean {number(found.mean)}"
    yield "percentiles", f"1st {number(found.percentile_1)}, 99th {number(found.percentile_99)}"
    if found.label_like:
        yield "labels?", f"looks like a label map (--labels): {found.label_like} distinct integers"


def _note_label(note: Note) -> str:
    return "warning" if note.is_warning else "assumed" if note.is_assumption else "note"
