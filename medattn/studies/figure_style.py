"""Colours, markers and the saving of figures: legible without colour, in print, and by a colour-blind reader."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")  # 8 against 7 colours: 56 distinct combinations
GREY = "#6b6b6b"
SHADE = "#f3f3f0"
BASELINE_STYLES: tuple[tuple[float, tuple[float, ...]], ...] = ((0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e2e2df",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "path",  # no font is needed to read it
    "svg.hashsalt": "medattn",  # equal numbers give equal files
}


@dataclass(frozen=True)
class ArmStyle:
    color: str
    marker: str


def arm_styles(names: Sequence[str]) -> dict[str, ArmStyle]:
    """A colour and a marker for each arm, by its place in the plan."""
    pairs = zip(cycle(OKABE_ITO), cycle(MARKERS), strict=False)
    return {name: ArmStyle(*pair) for name, pair in zip(names, islice(pairs, len(names)), strict=True)}


@dataclass(frozen=True, eq=False)
class FigureFile:
    """A drawn figure with its words.

    Attributes:
        name: file name without its ending.
        image: SVG or PNG.
        ending: "svg" or "png".
        alt: what the figure shows, for who cannot see it.
    """

    name: str
    image: bytes
    ending: str
    title: str
    caption: str
    alt: str

    @property
    def uri(self) -> str:
        """The image as a data URI."""
        kind = "svg+xml" if self.ending == "svg" else self.ending
        return f"data:image/{kind};base64,{base64.b64encode(self.image).decode('ascii')}"


def render(figure: Figure, ending: str = "svg") -> bytes:
    """The figure's file. Nothing in it depends on the time of day."""
    buffer = io.BytesIO()
    with rc_context(STYLE):
        metadata = {"Date": None} if ending == "svg" else {"Software": None}
        figure.savefig(buffer, format=ending, dpi=180, metadata=metadata)
    return buffer.getvalue()


def legend_above(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend for the whole figure, above it."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, handletextpad=0.5, columnspacing=1.4)
