"""The gallery figure: each encoding's kernel in an index and a mm frame, for thin and thick slices."""

from __future__ import annotations

import inspect
import io
import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from medattn.catalogue.entry import EXAMPLES
from medattn.catalogue.kernels import EXTENT_MM, LINE_TOKENS, frame_of_column, kernel
from medattn.coordinates import Frame
from medattn.encodings import create_encoding, list_encodings
from medattn.encodings.base import PositionalEncoding
from medattn.studies.figure_style import GREY, OKABE_ITO, STYLE, render

DIM, HEADS = 72, 2
"""Small, so that a mean over all contents is quick; 18 pairs of channels a head."""

SPACINGS_MM = (1.0, 5.0)
_PAIRS_ACROSS = 3
_STYLES = ({"color": OKABE_ITO[0], "linewidth": 1.2}, {"color": OKABE_ITO[1], "marker": "o", "markersize": 2.8})


def draw_gallery(names: Sequence[str] | None = None) -> bytes:
    """PNG of all encodings, or of these ``names``: two panels for each, "index" and "mm"."""
    names = [name for name in list_encodings() if name != "none"] if names is None else names
    rows = math.ceil(len(names) / _PAIRS_ACROSS)
    with rc_context({**STYLE, "font.size": 6.5, "axes.titlesize": 6.5, "legend.fontsize": 7.5}):
        figure = Figure(figsize=(3.1 * _PAIRS_ACROSS, 1.25 * rows + 0.5), dpi=130)
        figure.get_layout_engine().set(wspace=0.03, hspace=0.05)  # type: ignore[union-attr, call-arg]
        panels = figure.subplots(rows, 2 * _PAIRS_ACROSS, sharex=True, squeeze=False).flatten().tolist()
        pairs = list(zip(panels[::2], panels[1::2], strict=True))
        for name, pair in zip(names, pairs, strict=False):
            _draw_pair(name, pair)
        for panel in panels[2 * len(names) :]:
            panel.set_axis_off()
        for panel in panels[-2 * _PAIRS_ACROSS :]:
            panel.set_xlabel("displacement, mm")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2)
        return _small(render(figure, "png"))


def _small(png: bytes) -> bytes:
    """The same in 64 colours, a third of the size."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(64).save(buffer, "png", optimize=True)
    return buffer.getvalue()


def _draw_pair(name: str, pair: tuple[Axes, Axes]) -> None:
    low, high = math.inf, -math.inf
    for panel, wanted in zip(pair, (Frame.INDEX, Frame.MM), strict=True):
        encoding = _built(name, wanted)
        if encoding is None:
            panel.text(0.5, 0.5, f"not defined in {wanted}", transform=panel.transAxes, ha="center", color=GREY)
            panel.set_title(f"{name}, {wanted}" if wanted is Frame.INDEX else wanted.value)
            panel.set_yticks([])
            continue
        panel.set_title(f"{name}, {encoding.frame}" if wanted is Frame.INDEX else encoding.frame.value)
        for spacing_mm, style in zip(SPACINGS_MM, _STYLES, strict=True):
            displacements, logits = kernel(encoding, spacing_mm)
            mean = logits.mean(0)
            panel.plot(displacements, mean, label=f"slices of {spacing_mm:g} mm", **style)  # type: ignore[arg-type]
            low, high = min(low, float(mean.min())), max(high, float(mean.max()))
    margin = 0.08 * (high - low) if high - low > 1e-9 else 1.0
    for panel in pair:
        panel.set_ylim(low - margin, high + margin)
        panel.set_xlim(-EXTENT_MM / 2, EXTENT_MM / 2)
        panel.set_xticks([-100, 0, 100])
        panel.locator_params(axis="y", nbins=3)
        if low < 0 < high and panel.lines:
            panel.axhline(0, color=GREY, linewidth=0.5, zorder=0)
    pair[1].set_yticklabels([])


def _built(name: str, wanted: Frame) -> PositionalEncoding | None:
    """With the reference at 1 mm and this field of view, after a fixed seed; None where it is undefined."""
    options: dict[str, Any] = dict(EXAMPLES.get(name, {}))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        frames = _frames(name, options)
        frame = frame_of_column(frames, wanted)
        if frame is None:
            return None
        build = create_encoding(name, dim=DIM, num_heads=HEADS, frame=frame, **options)
        known = inspect.signature(type(build).__init__).parameters
        sizes = {"reference_spacing_mm": 1.0, "reference_extent_mm": EXTENT_MM, "max_shape": (1, 1, LINE_TOKENS)}
        options |= {key: value for key, value in sizes.items() if key in known}
        torch.manual_seed(0)
        return create_encoding(name, dim=DIM, num_heads=HEADS, frame=frame, **options)


def _frames(name: str, options: dict[str, Any]) -> tuple[Frame, ...]:
    found = []
    for frame in Frame:
        try:
            create_encoding(name, dim=DIM, num_heads=HEADS, frame=frame, **options)
        except ValueError:
            continue
        found.append(frame)
    return tuple(found)
