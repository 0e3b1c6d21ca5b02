"""The report's tables and lists, as plain values for the template."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from medattn.studies.config import ACQUISITION_KINDS
from medattn.studies.findings import loss_fall, signed
from medattn.studies.study_files import RunFile, Study
from medattn.studies.summary import Scores, SeedScores, reference_of

NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Cell:
    """A mean and the seeds it is the mean of, in the plan's order of seeds; a dash where there is no score."""

    mean: str
    seeds: list[str]


@dataclass(frozen=True)
class Row:
    title: str
    is_baseline: bool
    cells: list[Cell]


@dataclass(frozen=True)
class RunCost:
    """Parameters, time and the end of training of one arm; texts with a dash where nothing was recorded."""

    title: str
    parameters: str
    position: str
    steps: str
    train_seconds: str
    evaluate_seconds: str
    loss_fall: str


def number(value: float) -> str:
    """Three decimals, or a dash for NaN."""
    return NOTHING if math.isnan(value) else f"{value:.3f}"


def kind_title(evaluation: dict[str, Any]) -> str:
    return ACQUISITION_KINDS.get(evaluation["kind"], evaluation["kind"].replace("_", " "))


def score_rows(study: Study, scores: Scores) -> list[Row]:
    """Arms, then baselines; one cell per evaluation."""
    rows = []
    for entry in (*study.arms, *study.baselines):
        baseline = entry in study.baselines
        cells = []
        for evaluation in study.evaluations:
            values = scores.of(entry["name"], evaluation["name"])
            seeds = [number(values.get(seed, math.nan)) for seed in study.seeds] if values and not baseline else []
            cells.append(Cell(number(scores.mean(entry["name"], evaluation["name"])), seeds))
        rows.append(Row(entry["title"], baseline, cells))
    return rows


def cost_table(study: Study, scores: Scores) -> tuple[list[dict[str, Any]], list[Row]]:
    """What a flip, a cut or a wrong header costs each arm against the undisturbed evaluation at the same spacing.

    Returns:
        (disturbed evaluations that have such a reference, with its title as ``reference``; a row per arm).
    """
    pairs = [(e, r) for e in study.evaluations if (r := reference_of(e, study)) is not None]
    rows = []
    for arm in study.arms:
        cells = []
        for evaluation, reference in pairs:
            disturbed, normal = (scores.of(arm["name"], e["name"]) for e in (evaluation, reference))
            cells.append(_difference_cell(study, disturbed, normal))
        rows.append(Row(arm["title"], False, cells))
    return [{**e, "reference": r["title"]} for e, r in pairs], rows


def _difference_cell(study: Study, first: SeedScores, second: SeedScores) -> Cell:
    both = {seed: first[seed] - second[seed] for seed in study.seeds if seed in first and seed in second}
    if not both:
        return Cell(NOTHING, [])
    seeds = [signed(both[seed]) if seed in both else NOTHING for seed in study.seeds]
    return Cell(signed(sum(both.values()) / len(both)), seeds)


def difference_rows(study: Study, scores: Scores) -> list[dict[str, Any]]:
    """Every paired difference, its interval and exact sign-flip p."""
    rows = []
    for first, second in study.plan.get("comparisons", []):
        for evaluation in study.evaluations:
            pair = scores.difference(first, second, evaluation["name"])
            values = dict(zip(pair.seeds, pair.values, strict=True))
            interval = pair.interval
            rows.append(
                {
                    "comparison": f"{study.titles[first]} \N{MINUS SIGN} {study.titles[second]}",
                    "evaluation": evaluation["title"],
                    "seeds": [signed(values[s]) if s in values else NOTHING for s in study.seeds],
                    "mean": signed(pair.mean) if pair.seeds else NOTHING,
                    "interval": f"{signed(interval[0])} to {signed(interval[1])}" if interval else NOTHING,
                    "p": f"{pair.p:.3g}" if pair.p is not None else NOTHING,
                }
            )
    return rows


def run_costs(study: Study) -> list[RunCost]:
    """One entry per arm, over its finished runs."""
    costs = []
    for arm in study.arms:
        runs = [run for run in study.runs if run.arm == arm["name"] and run.status == "finished"]
        falls = [fall for run in runs if math.isfinite(fall := loss_fall(run))]
        costs.append(
            RunCost(
                arm["title"],
                _same(runs, "parameters", "{:,}".format),
                _same(runs, "parameters_position", "{:,}".format),
                _same(runs, "steps", "{:,}".format),
                _each(runs, "train_seconds"),
                _each(runs, "evaluate_seconds"),
                ", ".join(f"{fall:.1%}" for fall in falls) or NOTHING,
            )
        )
    return costs


def _same(runs: Sequence[RunFile], key: str, form: Callable[[Any], str]) -> str:
    """The value that all runs have, or each different one."""
    return " or ".join(dict.fromkeys(form(run.record[key]) for run in runs if key in run.record)) or NOTHING


def _each(runs: Sequence[RunFile], key: str) -> str:
    return ", ".join(f"{run.record[key]:.1f}" for run in runs if key in run.record) or NOTHING
