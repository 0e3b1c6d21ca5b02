"""The numbers of several volumes in columns: right-aligned, with the same decimals in every row."""

from __future__ import annotations

from collections.abc import Sequence

from medattn.cli.inspect_text import number
from medattn.volumes.summary import VolumeSummary, obliquity_deg

_OBLIQUE_DEG = 0.05
"""Smaller angles would be shown as 0.0."""

_Rows = Sequence[VolumeSummary | None]


def number_lines(summaries: _Rows) -> list[str]:
    """A title, and a line for each summary; "refused" where there is none."""
    known = [summary for summary in summaries if summary]
    columns = [
        _column("shape", _joined([list(map(str, s.grid.shape)) for s in known])),
        _column("ch", [str(s.channels) for s in known]) if any(s.channels > 1 for s in known) else None,
        _column("spacing mm", _lengths([s.grid.spacing_mm.tolist() for s in known], digits=3)),
        _column("axes", [_axes(s) for s in known]),
        _column("deg", [_angle(s) for s in known]),
        _column("extent mm", _lengths([s.grid.extent_mm.tolist() for s in known], digits=2)),
        *(_column(title, [_value(s, title) for s in known]) for title in ("min", "max")),
    ]
    title, *lines = ["  ".join(cells) for cells in zip(*filter(None, columns), strict=True)]
    rows = iter(lines)
    return [title, *(next(rows) if summary else "refused" for summary in summaries)]


def _column(title: str, cells: list[str]) -> list[str]:
    width = max(map(len, (title, *cells)))
    return [cell.rjust(width) for cell in (title, *cells)]


def _joined(rows: list[list[str]]) -> list[str]:
    """The cells of each row as one, each right-aligned among those below it."""
    columns = [_column("", list(cells))[1:] for cells in zip(*rows, strict=True)]
    return [" ".join(cells) for cells in zip(*columns, strict=True)]


def _lengths(rows: list[list[float]], digits: int) -> list[str]:
    """Rows of three, with as many decimals as the one that needs most to show so many significant digits."""
    texts = [number(length, digits) for row in rows for length in row]
    decimals = max((len(text.partition(".")[2]) for text in texts if "e" not in text), default=0)
    return _joined([[f"{length:.{decimals}f}" for length in row] for row in rows])


def _axes(summary: VolumeSummary) -> str:
    return "".join(summary.grid.axcodes) + (" " if summary.orientation_known else "?")


def _angle(summary: VolumeSummary) -> str:
    largest = float(obliquity_deg(summary.grid).max())
    return f"{largest:.1f}" if largest >= _OBLIQUE_DEG else "-"


def _value(summary: VolumeSummary, which: str) -> str:
    """The smallest or largest value, "min" or "max"; "-" if none is finite."""
    if summary.labels is not None:
        return str(summary.labels[0 if which == "min" else -1])
    return number(getattr(summary.intensities, which)) if summary.intensities else "-"
