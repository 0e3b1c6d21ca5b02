"""Figures of scores: against the evaluations, against spacing, and paired differences. Every seed is a point."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from medattn.studies.figure_style import BASELINE_STYLES, GREY, SHADE, STYLE, ArmStyle, arm_styles, legend_above
from medattn.studies.statistics import PairedDifference, mean_of
from medattn.studies.study_files import Study
from medattn.studies.summary import Scores, is_undisturbed, spacing_of

WIDTH = 7.2  # inches
AXES = "ijk"


def score_figure(study: Study, scores: Scores, label: str) -> Figure:
    """One block per evaluation, in it one row per arm: seeds as points, mean as a bar, baselines as grey lines."""
    arms, styles = study.arms, arm_styles([arm["name"] for arm in study.arms])
    block = len(arms) + 1.2
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.9 + 0.145 * block * len(study.evaluations)))
        axes = figure.subplots()
        for row, evaluation in enumerate(study.evaluations):
            top = row * block
            if row % 2 == 0:
                axes.axhspan(top - 1.1, top + block - 1.1, color=SHADE, lw=0)
            for place, arm in enumerate(arms):
                name = arm["name"]
                values = scores.of(name, evaluation["name"])
                _points(axes, list(values.values()), top + place, styles[name], arm["title"] if row == 0 else None)
            _baselines(axes, study, scores, evaluation["name"], (top - 0.8, top + len(arms) - 0.2), row == 0)
        centres = [row * block + (len(arms) - 1) / 2 for row in range(len(study.evaluations))]
        axes.set_yticks(centres, [wrap(e["title"], 22) for e in study.evaluations])
        axes.set_ylim(len(study.evaluations) * block - 1.1, -1.1)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(label)
        axes.set_xlim(-0.02, 1.02)
        legend_above(figure, axes, columns=4)
    return figure


def _points(axes: Axes, values: Sequence[float], y: float, style: ArmStyle, label: str | None) -> None:
    """Seeds of one arm on one row; a point outside the axes keeps the arm in the legend even without a seed."""
    axes.plot(
        [-9, *values], [y] * (len(values) + 1), style.marker, color=style.color, ms=4.5, alpha=0.8, mew=0, label=label
    )
    if values:
        axes.plot([np.mean(values)], [y], "|", color=style.color, ms=10, mew=2)


def _baselines(
    axes: Axes, study: Study, scores: Scores, evaluation: str, span: tuple[float, float], first: bool
) -> None:
    for entry, dashes in zip(study.baselines, cycle(BASELINE_STYLES), strict=False):
        values = list(scores.of(entry["name"], evaluation).values()) or [-9.0]
        axes.plot(values[:1] * 2, span, color=GREY, ls=dashes, lw=1.3, label=entry["title"] if first else None)


def wrap(text: str, width: int) -> str:
    """Break ``text`` at spaces, but not inside parentheses, into lines of about ``width`` characters."""
    lines = [""]
    for word in re.split(r" (?![^(]*\))", text):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def difference_figure(study: Study, scores: Scores) -> Figure:
    """One panel per comparison, one row per evaluation: each seed's difference, their mean, 95 % interval if n >= 3."""
    comparisons = study.plan.get("comparisons", [])
    styles = arm_styles([arm["name"] for arm in study.arms])
    columns = min(2, len(comparisons))
    rows = -(-len(comparisons) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, rows * (0.55 + 0.24 * len(study.evaluations))))
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (first, second) in zip(grid.flat, comparisons, strict=False):
            for y, evaluation in enumerate(study.evaluations):
                _difference(axes, scores.difference(first, second, evaluation["name"]), y, styles[first])
            axes.axvline(0, color="black", lw=1)
            axes.set_title(f"{study.titles[first]} \N{MINUS SIGN} {study.titles[second]}", weight="bold")
            axes.tick_params(axis="y", length=0)
        grid[0, 0].set_yticks(range(len(study.evaluations)), [e["title"] for e in study.evaluations])
        grid[0, 0].set_ylim(len(study.evaluations) - 0.5, -0.5)
        for axes in list(grid.flat)[len(comparisons) :]:
            axes.set_visible(False)
        for axes in list(grid.flat)[max(0, len(comparisons) - columns) : len(comparisons)]:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("difference in merged Dice")
    return figure


def _difference(axes: Axes, pair: PairedDifference, y: int, style: ArmStyle) -> None:
    if pair.interval is not None:
        axes.plot(pair.interval, [y, y], "-", color=style.color, lw=1.2)
    axes.plot(pair.values, [y] * len(pair.values), style.marker, color=style.color, ms=4.5, alpha=0.8, mew=0)
    if pair.seeds:
        axes.plot([pair.mean], [y], "|", color=style.color, ms=12, mew=2)


def spacing_figure(study: Study, scores: Scores) -> Figure | None:
    """Score against spacing over the undisturbed evaluations: isotropic ones, then one panel per stretched axis.

    A panel of a stretched axis starts from the isotropic evaluation whose voxel volume is nearest. ``None`` if there
    are fewer than two undisturbed evaluations.
    """
    usable = [e for e in study.evaluations if is_undisturbed(e)]
    if len(usable) < 2:
        return None
    panels = _panels(usable)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.2))
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, label, members) in zip(grid, panels.values(), strict=True):
            _spacing_panel(axes, study, scores, members)
            axes.set_title(title)
            axes.set_xlabel(label)
        grid[0].set_ylabel("merged Dice")
        grid[0].set_ylim(bottom=0)
        legend_above(figure, grid[0], columns=5)
    return figure


Panel = tuple[str, str, dict[float, list[Mapping[str, Any]]]]


def _panels(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Panel]:
    """Key -> (title, x label, evaluations by x)."""
    isotropic = [e for e in evaluations if anisotropy(e)[0] == 1]
    panels: dict[str, Panel] = {}
    if isotropic:
        panels["iso"] = ("isotropic", "spacing (mm)", {geometric_mean(e): [e] for e in isotropic})
    for evaluation in (e for e in evaluations if anisotropy(e)[0] != 1):
        ratio, axis = anisotropy(evaluation)
        new: Panel = (f"axis {axis} stretched", "largest / smallest spacing", {})
        members = panels.setdefault(axis, new)[2]
        if not members and isotropic:
            members[1.0] = [min(isotropic, key=lambda e: abs(np.log(geometric_mean(e) / geometric_mean(evaluation))))]
        members.setdefault(ratio, []).append(evaluation)
    return panels


def _spacing_panel(
    axes: Axes, study: Study, scores: Scores, members: Mapping[float, Sequence[Mapping[str, Any]]]
) -> None:
    places = sorted(members)
    for n, (name, style) in enumerate(arm_styles([arm["name"] for arm in study.arms]).items()):
        shift = (n - (len(study.arms) - 1) / 2) * 0.04
        points = [
            (x, value)
            for x, place in enumerate(places)
            for evaluation in members[place]
            for value in scores.of(name, evaluation["name"]).values()
        ]
        means = [mean_of([scores.mean(name, e["name"]) for e in members[place]]) for place in places]
        look: dict[str, Any] = {"color": style.color, "ms": 4.5, "mew": 0}
        axes.plot([x + shift for x, _ in points], [v for _, v in points], style.marker, alpha=0.8, **look)
        axes.plot(np.arange(len(places)) + shift, means, "-", color=style.color, lw=1.2)
        axes.plot([], [], "-", marker=style.marker, lw=1.2, label=study.titles[name], **look)
    axes.set_xticks(range(len(places)), [f"{place:.3g}" for place in places])
    axes.set_xlim(-0.4, len(places) - 0.6)


def geometric_mean(evaluation: Mapping[str, Any]) -> float:
    """Cube root of the voxel's volume, mm."""
    return float(np.prod(spacing_of(evaluation)) ** (1 / 3))


def anisotropy(evaluation: Mapping[str, Any]) -> tuple[float, str]:
    """(largest over smallest spacing to 3 digits, names of the voxel axes with the largest)."""
    spacing = spacing_of(evaluation)
    longest = [
        axis for axis, value in zip(AXES, spacing, strict=True) if math.isclose(value, max(spacing), rel_tol=1e-3)
    ]
    return round(max(spacing) / min(spacing), 3), " and ".join(longest)
