"""Example slices: image, truth and each arm's prediction, in true proportions, each structure numbered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import patheffects, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from numpy.typing import NDArray

from medattn.studies.figure_style import STYLE
from medattn.studies.figures import WIDTH, wrap
from medattn.studies.study_files import Slice

# Hues that stay apart for the common kinds of colour blindness (Okabe-Ito, and Tol's wine and indigo). Light and dark
# tell the sides of a pair apart; the numbers tell everything apart.
HUES = ("#0072B2", "#D55E00", "#009E73", "#F0E442", "#E69F00", "#56B4E9", "#CC79A7", "#882255", "#332288")
COLUMNS = 4
ENOUGH_PIXELS = 6  # smaller regions get no number

Color = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Panel:
    """One picture of an example figure."""

    title: str
    example: Slice | None
    labels: NDArray[np.uint8] | None = None


def class_colors(classes: Sequence[Mapping[str, Any]]) -> dict[int, Color]:
    """Label -> colour. One hue per structure; of a pair, the first class is light and the second dark."""
    structures = list(dict.fromkeys(entry["pair"] or entry["name"] for entry in classes))
    colors, seen = {}, set()
    for entry in classes:
        structure = entry["pair"] or entry["name"]
        hue = to_rgb(HUES[structures.index(structure) % len(HUES)])
        if entry["pair"]:
            hue = _mix(hue, 0.0, 0.35) if structure in seen else _mix(hue, 1.0, 0.5)
        seen.add(structure)
        colors[int(entry["label"])] = hue
    return colors


def _mix(color: Color, towards: float, share: float) -> Color:
    red, green, blue = (value * (1 - share) + towards * share for value in color)
    return red, green, blue


def example_figure(classes: Sequence[Mapping[str, Any]], slices: Mapping[str, Slice | None]) -> Figure | None:
    """Image, truth, then each arm's prediction with its title; ``None`` if no arm has a slice.

    Args:
        slices: arm title -> its slice, or ``None`` where it is missing (the panel says so).
    """
    first = next((s for s in slices.values() if s is not None), None)
    if first is None:
        return None
    panels = [Panel("image", first), Panel("truth", first, first.truth)]
    panels += [Panel(title, s, s.prediction if s is not None else None) for title, s in slices.items()]
    return _draw(classes, first, panels)


def _draw(
    classes: Sequence[Mapping[str, Any]],
    first: Slice,
    panels: Sequence[Panel],
) -> Figure:
    colors = class_colors(classes)
    rows = -(-len(panels) // COLUMNS)
    height = WIDTH / COLUMNS * first.image.shape[0] * first.aspect / first.image.shape[1]
    shown = {int(label) for panel in panels if panel.labels is not None for label in np.unique(panel.labels)}
    legend = [entry for entry in classes if entry["label"] in shown]
    with rc_context(STYLE):
        size = (WIDTH, rows * (height + 0.27) + 0.17 * -(-len(legend) // COLUMNS) + 0.1)
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.05, w_pad=0.02, hspace=0.01, wspace=0.01))
        grid = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
        for axes in grid:
            axes.set_axis_off()
        for axes, panel in zip(grid, panels, strict=False):
            axes.set_title(wrap(panel.title, 24))
            _panel(axes, panel.example, panel.labels, colors)
        _legend(figure, legend, colors)
    return figure


def _panel(axes: Axes, example: Slice | None, labels: NDArray[np.uint8] | None, colors: Mapping[int, Color]) -> None:
    """The image in grey, the labels over it, and each label's number in its middle; words if there is no example."""
    if example is None:
        axes.text(0.5, 0.5, "no example\n(see Failures)", ha="center", va="center", fontsize=8)
        return
    axes.imshow(example.image, cmap="gray", vmin=-1, vmax=1, aspect=example.aspect, interpolation="nearest")
    if labels is None:
        return
    overlay = np.zeros((*labels.shape, 4))
    for label, color in colors.items():
        overlay[labels == label] = (*color, 0.85)
    axes.imshow(overlay, aspect=example.aspect, interpolation="nearest")
    for label in colors:
        places = np.argwhere(labels == label)
        if len(places) >= ENOUGH_PIXELS:
            row, column = places[np.abs(places - np.median(places, axis=0)).sum(1).argmin()]
            outline = [patheffects.withStroke(linewidth=1.4, foreground="white")]
            axes.text(column, row, str(label), fontsize=6, ha="center", va="center", path_effects=outline)


def _legend(figure: Figure, classes: Sequence[Mapping[str, Any]], colors: Mapping[int, Color]) -> None:
    patches = [
        Patch(facecolor=colors[entry["label"]], label=f"{entry['label']} {entry['name'].replace('_', ' ')}")
        for entry in classes
    ]
    figure.legend(
        handles=patches, loc="outside lower left", ncols=COLUMNS, fontsize=7.5, handlelength=1, handleheight=1
    )
