"""Example slices: image, truth and each arm's prediction, in true proportions, each structure numbered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import patheffects, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from medattn.studies.figure_style import STYLE
from medattn.studies.figures import WIDTH, wrap
from medattn.studies.study_files import Slice

# Hues that stay apart for the common kinds of colour blindness (Okabe-Ito, and Tol's wine and indigo). Light and dark tell
# the sides of a pair apart; the numbers tell everything apart.
HUES = ("#0072B2", "#D55E00", "#009E73", "#F0E442", "#E69F00", "#56B4E9", "#CC79A7", "#882255", "#332288")
COLUMNS = 4
ENOUGH_PIXELS = 6  # smaller regions get no number

Color = tuple[float, float, float]


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


def example_figure(
    classes: Sequence[Mapping[str, Any]], slices: Mapping[str, Slice | None]
) -> Figure | None:
    """Image, truth, then each arm's prediction with its title; ``None`` if no arm has a slice.

    Args:
        slices: arm title -> its slice, or ``None`` where it is missing (the panel says so).
    """
    first = next((s for s in slices.values() if s is not None), None)
    if first is None:
        return None
    panels: list[tuple[str, Slice, NDArray[np.uint8] | None]] = [("image", first, None), ("truth", first, first.truth)]
    panels += [(title, s, s.prediction) for title, s in slices.items() if s is not None]
    missing = [title for title, s in slices.items() if s is None]
    return _draw(classes, first, panels, missing)


def _draw(
    classes: Sequence[Mapping[str, Any]],
    first: Slice,
    panels: Sequence[tuple[str, Slice, NDArray[np.uint8] | None]],
    missing: Sequence[str],
) -> Figure:
    colors = class_colors(classes)
    rows = -(-(len(panels) + len(missing)) // COLUMNS)
    height = WIDTH / COLUMNS * first.image.shape[0] * first.aspect / first.image.shape[1]
    shown = set(np.unique(np.concatenate([labels.ravel() for _, _, labels in panels if labels is not None])).tolist())
    legend = [entry for entry in classes if entry["label"] in shown]
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH, rows * (height + 0.22) + 0.17 * -(-len(legend) // COLUMNS) + 0.1))
        figure.get_layout_engine().set(h_pad=0.02, w_pad=0.02, hspace=0.01, wspace=0.01)
        grid = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
        for axes, (title, example, labels) in zip(grid, panels, strict=False):
            _panel(axes, title, example, labels, colors)
        for axes, title in zip(grid[len(panels) :], missing, strict=False):
            axes.text(0.5, 0.5, "no example\n(see Failures)", ha="center", va="center", fontsize=8)
            axes.set_title(wrap(title, 24))
        for axes in grid:
            axes.set_axis_off()
        _legend(figure, legend, colors)
    return figure


def _panel(
    axes: Axes, title: str, example: Slice, labels: NDArray[np.uint8] | None, colors: Mapping[int, Color]
) -> None:
    """The image in grey, the labels over it, and each label's number in its middle."""
    axes.imshow(example.image, cmap="gray", vmin=-1, vmax=1, aspect=example.aspect, interpolation="nearest")
    axes.set_title(title)
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
    figure.legend(handles=patches, loc="outside lower left", ncols=COLUMNS, fontsize=7.5, handlelength=1, handleheight=1)
