"""A figure of the bands of an encoding over the ranges in which scans can use them."""

from __future__ import annotations

import math

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from medattn.cli.inspect_text import number
from medattn.cli.spectrum_report import AXES, Group, Report
from medattn.encodings.bands import Verdict
from medattn.encodings.spectrum import DEAD_EXTENTS
from medattn.studies.figure_style import GREY, OKABE_ITO, STYLE, render

_MOST_ROWS = 24
"""Groups of scans that are drawn; the rest is counted."""

_MARKS = {
    Verdict.ALIASED: (OKABE_ITO[1], "x"),
    Verdict.USEFUL: (OKABE_ITO[0], "|"),
    Verdict.DEAD: (GREY, "."),
}
_RANGE = "#d9e6ee"


def plot_spectrum(report: Report, ending: str) -> bytes:
    """An image, "png" or "svg": one panel for each axis, in it a row for each geometry of scans.

    A bar is the range of useful wavelengths of a scan; marks are the bands, by what they are.
    """
    groups = report.groups[:_MOST_ROWS]
    kinds = [a for a in (0, 1, 2, None) if any(band.axis == a for group in groups for band in group.bands)]
    with rc_context(STYLE):
        figure = Figure(figsize=(2.2 + 3.0 * len(kinds), 1.9 + 0.26 * len(groups)))
        panels = figure.subplots(1, len(kinds), sharex=True, sharey=True, squeeze=False)[0]
        for panel, axis in zip(panels, kinds, strict=True):
            name = "oblique" if axis is None else f"along {AXES[report.encoding.frame][axis]}"
            _draw_panel(panel, groups, axis)
            panel.set_title(name)
            panel.set_xlabel("wavelength on the scan, mm")
        _label_rows(panels[0], groups)
        _mark_recommended(panels, report)
        left_out = len(report.groups) - len(groups)
        more = f"; {left_out} more geometries are not drawn" if left_out else ""
        patch = " x ".join(map(str, report.patch_size))
        figure.suptitle(
            f"{report.encoding.name} in {report.encoding.frame}, patches of {patch} voxels{more}", x=0.01, ha="left"
        )
        figure.legend(handles=_legend(report), loc="outside lower center", ncols=2 * len(kinds) - 1)
        return render(figure, ending)


def _draw_panel(panel: Axes, groups: tuple[Group, ...], axis: int | None) -> None:
    panel.set_xscale("log")
    panel.grid(visible=False, axis="y")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    panel.xaxis.set_major_formatter(lambda value, _: number(value))
    panel.xaxis.set_minor_formatter(NullFormatter())
    for row, group in enumerate(groups):
        bands = [band for band in group.bands if band.axis == axis]
        if axis is not None and bands and bands[0].extent_mm > 0:
            first, last = 2 * bands[0].pitch_mm, DEAD_EXTENTS * bands[0].extent_mm
            panel.barh(row, last - first, left=first, height=0.72, color=_RANGE, zorder=1)
        for verdict, (color, marker) in _MARKS.items():
            lengths = [b.wavelength_mm for b in bands if b.verdict is verdict and math.isfinite(b.wavelength_mm)]
            panel.plot(lengths, [row] * len(lengths), marker, color=color, markersize=7 if marker == "|" else 4.5)


def _label_rows(panel: Axes, groups: tuple[Group, ...]) -> None:
    """Spacing and number of scans of each row, the first on top."""
    spacings = [" x ".join(number(s, 3) for s in group.grid.spacing_mm.tolist()) for group in groups]
    labels = [
        f"{spacing} mm ({len(group.scans)})" if len(group.scans) > 1 else f"{spacing} mm"
        for spacing, group in zip(spacings, groups, strict=True)
    ]
    panel.set_yticks(range(len(groups)), labels)
    panel.set_ylim(len(groups) - 0.4, -0.6)


def _mark_recommended(panels: list[Axes], report: Report) -> None:
    if report.spectrum.recommended_mm is None or report.encoding.frame.value in ("index", "fraction"):
        return  # in those frames it is another length on each scan
    for panel in panels:
        for length in report.spectrum.recommended_mm:
            panel.axvline(length, color="black", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1.5)


def _legend(report: Report) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [Patch(color=_RANGE, label="useful range of a scan")]
    for verdict, (color, marker) in _MARKS.items():
        handles.append(Line2D([], [], color=color, marker=marker, linestyle="", label=f"{verdict} band"))
    if report.spectrum.recommended_mm is not None and report.encoding.frame.value not in ("index", "fraction"):
        handles.append(Line2D([], [], color="black", linewidth=0.8, linestyle=(0, (4, 2)), label="recommended range"))
    return handles
