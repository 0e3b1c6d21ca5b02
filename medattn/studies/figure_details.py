"""Figures of detail: Dice per class as a heat map, and loss curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from medattn.studies.figure_style import STYLE, arm_styles
from medattn.studies.figures import WIDTH, wrap
from medattn.studies.study_files import RunFile, Study

LINES = ("-", "--", ":", "-.")  # one per seed, repeated


def class_figure(study: Study, dice: Mapping[tuple[str, str, str], float]) -> Figure:
    """Heat map: one row per evaluation and arm, one column per class; a dash where a class was absent throughout."""
    arms, classes = [a["name"] for a in study.arms], [c["name"] for c in study.plan["classes"]]
    blocks = [
        np.array([[dice.get((arm, e["name"], name), math.nan) for name in classes] for arm in arms])
        for e in study.evaluations
    ]
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.8 + 0.19 * (len(arms) + 0.6) * len(blocks)))
        grid = figure.subplots(len(blocks), 1, sharex=True, squeeze=False)[:, 0]
        for axes, evaluation, block in zip(grid, study.evaluations, blocks, strict=True):
            mesh = axes.imshow(np.ma.masked_invalid(block), vmin=0, vmax=1, cmap="cividis", aspect="auto")
            axes.set_yticks(range(len(arms)), [study.titles[arm] for arm in arms], fontsize=7)
            axes.tick_params(length=0)
            axes.grid(visible=False)
            axes.spines[:].set_visible(False)
            axes.annotate(
                wrap(evaluation["title"], 20),
                (1, 0.5),
                (6, 0),
                xycoords="axes fraction",
                textcoords="offset points",
                va="center",
                fontsize=7.5,
            )
            _numbers(axes, block)
        names = [name.replace("_", " ") for name in classes]
        grid[0].set_xticks(range(len(classes)), names, rotation=45, ha="left", rotation_mode="anchor", fontsize=7.5)
        grid[0].tick_params(labeltop=True, labelbottom=False)
        for axes in grid[1:]:
            axes.tick_params(labelbottom=False)
        figure.colorbar(mesh, ax=list(grid), location="bottom", shrink=0.4, aspect=40, pad=0.01, label="Dice")
    return figure


def _numbers(axes: Axes, block: NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(block):
        red, green, blue, _ = colormaps["cividis"](0.0 if math.isnan(value) else value)
        dark = math.isnan(value) or 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
        text = "\N{EN DASH}" if math.isnan(value) else f"{value:.2f}".removeprefix("0")
        axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color="black" if dark else "white")


def loss_figure(study: Study, runs: Sequence[RunFile]) -> Figure | None:
    """One small panel per arm with a line per seed; ``None`` if no run recorded its loss."""
    curves = [(run.arm, study.seeds.index(run.seed), run.record["loss"]) for run in runs if run.record.get("loss")]
    if not curves:
        return None
    styles, columns = arm_styles([arm["name"] for arm in study.arms]), min(5, len(study.arms))
    rows = -(-len(styles) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.3 + 1.5 * rows))
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        panels = dict(zip(styles, grid.flat, strict=False))
        for arm, axes in panels.items():
            axes.set_title(wrap(study.titles[arm], 20))
        for arm, seed, loss in curves:
            steps, values = zip(*loss, strict=True)
            line = LINES[seed % len(LINES)]
            panels[arm].plot(steps, values, line, color=styles[arm].color, lw=1, label=f"seed {study.seeds[seed]}")
        for axes in list(grid.flat)[len(styles) :]:
            axes.set_visible(False)
        for axes in list(grid.flat)[max(0, len(styles) - columns) : len(styles)]:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("step")
        for axes in grid[:, 0]:
            axes.set_ylabel("training loss")
        grid[0, 0].set_ylim(bottom=0)
        grid[0, 0].legend(loc="upper right", fontsize=7)
    return figure
