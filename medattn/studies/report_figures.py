"""The report's figures: drawn, described in words, and written to the study's ``figures/`` folder."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from medattn.files import replacing
from medattn.studies.figure_details import class_figure, loss_figure
from medattn.studies.figure_examples import example_figure
from medattn.studies.figure_style import FigureFile, render
from medattn.studies.figures import difference_figure, score_figure, spacing_figure
from medattn.studies.report_problems import example_seed
from medattn.studies.statistics import MIN_INTERVAL, mean_of
from medattn.studies.study_files import Study, read_slice
from medattn.studies.summary import Scores

EXAMPLE = "example_"
Drawn = tuple[str, Figure | None, str, str, str]  # name, figure, title, caption, alt


def make_figures(
    study: Study, dice: Scores, sides: Scores, classes: Mapping[tuple[str, str, str], float]
) -> dict[str, FigureFile]:
    """Draw everything that the study has data for, by name, and write it to ``figures/``."""
    drawn = [*_score_figures(study, dice, sides), *_detail_figures(study, classes), *_example_figures(study)]
    files = {}
    for name, figure, title, caption, alt in drawn:
        if figure is not None:
            ending = "png" if name.startswith(EXAMPLE) else "svg"  # slices are pixels anyway
            stem = re.sub(r"[^\w.-]", "_", name)  # an evaluation may have any name, a file may not
            files[name] = FigureFile(stem, render(figure, ending), ending, title, caption, alt)
    for file in files.values():
        _write(study.folder / "figures" / f"{file.name}.{file.ending}", file.image)
    return files


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _score_figures(study: Study, dice: Scores, sides: Scores) -> Iterator[Drawn]:
    arms, evaluations = len(study.arms), len(study.evaluations)
    every_seed = "Each point is one seed, the bar is their mean; grey lines are image-free lookups."
    yield (
        "scores",
        score_figure(study, dice, "merged Dice (1 is perfect)"),
        "Merged Dice of every arm at every evaluation",
        every_seed,
        f"Dot plot of merged Dice: {evaluations} evaluations by {arms} arms, one point per seed. "
        "The table of scores holds every value.",
    )
    yield (
        "spacing",
        spacing_figure(study, dice),
        "Merged Dice against spacing",
        "Complete, unflipped scans with a true header. A panel of a stretched axis starts from the isotropic scan of "
        "the nearest voxel volume. Points are seeds, lines join means.",
        "Line plots of merged Dice against spacing and against anisotropy, one line per arm, one point per seed. "
        "The table of scores holds every value.",
    )
    if study.plan.get("comparisons"):
        yield (
            "differences",
            difference_figure(study, dice),
            "Paired differences",
            _interval_note(study),
            _alt(study, dice),
        )
    yield (
        "sides",
        score_figure(study, sides, "left/right confusion (0 is perfect, 0.5 is guessing)"),
        "Left/right confusion of every arm at every evaluation",
        every_seed,
        f"Dot plot of left/right confusion: {evaluations} evaluations by {arms} arms, one point per seed. "
        "The table of left/right confusion holds every value.",
    )


def _interval_note(study: Study) -> str:
    points = "Each point is one seed's difference, first arm minus second; the bar is their mean. "
    if len(study.seeds) < MIN_INTERVAL:
        return (
            points
            + f"No interval is drawn: {len(study.seeds)} seeds are too few for one ({MIN_INTERVAL} are the least)."
        )
    return points + "Lines are 95 % Student-t intervals of the mean over seeds, where an arm pair has at least 3."


def _alt(study: Study, dice: Scores) -> str:
    parts = []
    for first, second in study.plan["comparisons"]:
        means = [dice.difference(first, second, e["name"]).mean for e in study.evaluations]
        finite = [m for m in means if math.isfinite(m)]
        if finite:
            span = f"{min(finite):+.2f} to {max(finite):+.2f}"
            parts.append(f"{study.titles[first]} minus {study.titles[second]} {span}")
    return f"Dot plot of paired differences in merged Dice; ranges of the means: {'; '.join(parts)}."


def _detail_figures(study: Study, classes: Mapping[tuple[str, str, str], float]) -> Iterator[Drawn]:
    names = [entry["name"] for entry in study.plan["classes"]]
    arms = {arm["name"] for arm in study.arms}
    means = {n: mean_of([v for (arm, _, c), v in classes.items() if c == n and arm in arms]) for n in names}
    known = {name: mean for name, mean in means.items() if math.isfinite(mean)}
    if known:
        best, worst = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
        yield (
            "classes",
            class_figure(study, classes),
            "Dice per class",
            "Sides are not merged here: an arm that mixes up left and right loses on both. Mean over cases and seeds; "
            "a dash where the class was neither there nor predicted.",
            f"Heat map of Dice, evaluations and arms by classes. Over everything {best.replace('_', ' ')} scores best "
            f"({known[best]:.2f}) and {worst.replace('_', ' ')} worst ({known[worst]:.2f}).",
        )
    yield (
        "loss",
        loss_figure(study, study.runs),
        "Training loss",
        "One line per seed.",
        "Line plots of training loss against step, one panel per arm, one line per seed.",
    )


def _example_figures(study: Study) -> Iterator[Drawn]:
    shown = [run for run in study.runs if run.seed == example_seed(study)]
    for evaluation in study.evaluations:
        name = evaluation["name"]
        slices = {study.titles[run.arm]: read_slice(study.folder, run, name) for run in shown}
        yield (
            f"{EXAMPLE}{name}",
            example_figure(study.plan["classes"], slices),
            evaluation["title"],
            evaluation.get("description", ""),
            f"Image, true labels and the prediction of {len(slices)} arms for one slice: {evaluation['title']}.",
        )
