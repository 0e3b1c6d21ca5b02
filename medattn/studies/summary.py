"""From rows to scores. The averaging rule: structures within a case, then cases, then seeds.

Left and right of a pair are one structure and count once. A structure that the truth lacks gives no Dice and is
left out of its case's mean, for all arms alike (and counted, see ``absences``, with how often it was predicted).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from medattn.studies.statistics import PairedDifference, mean_of, paired_difference
from medattn.studies.study_files import Study

UNDISTURBED = ("in_range", "out_of_range", "anisotropic")  # complete, unflipped, told the truth
RUN = ["arm", "seed", "evaluation"]

SeedScores = Mapping[int, float]


@dataclass(frozen=True)
class Scores:
    """One measure: ``by_seed[arm or baseline, evaluation]`` maps seeds to scores; seeds without one are not in it."""

    title: str
    by_seed: Mapping[tuple[str, str], SeedScores]

    def of(self, arm: str, evaluation: str) -> SeedScores:
        return self.by_seed.get((arm, evaluation), {})

    def mean(self, arm: str, evaluation: str) -> float:
        """Mean over the seeds that have a score; NaN if none has."""
        return mean_of(list(self.of(arm, evaluation).values()))

    def difference(self, first: str, second: str, evaluation: str) -> PairedDifference:
        return paired_difference(self.of(first, evaluation), self.of(second, evaluation))


def merged_dice(results: pd.DataFrame) -> Scores:
    """Mean Dice with left and right merged, for each arm, evaluation and seed."""
    structure = results["pair"].where(results["pair"] != "", results["class"])
    by_structure = results.groupby([*RUN, "case", structure.rename("structure")])["merged_dice"].mean()
    return _over_cases("Merged Dice", by_structure.groupby(level=[*RUN, "case"]).mean())


def side_confusion(results: pd.DataFrame) -> Scores:
    """Of the voxels of paired structures that were found, the share given the other side; per case, then over cases."""
    sums = results.groupby([*RUN, "case"])[["side_voxels", "swapped_voxels"]].sum(min_count=1)
    rate = (sums["swapped_voxels"] / sums["side_voxels"]).where(sums["side_voxels"] > 0)
    return _over_cases("Left/right confusion", rate)


def _over_cases(title: str, by_case: pd.Series) -> Scores:
    means = by_case.groupby(level=RUN).mean().dropna()
    scores: dict[tuple[str, str], dict[int, float]] = {}
    for row in means.reset_index(name="score").to_dict("records"):
        scores.setdefault((row["arm"], row["evaluation"]), {})[int(row["seed"])] = float(row["score"])
    return Scores(title, scores)


def class_dice(results: pd.DataFrame) -> dict[tuple[str, str, str], float]:
    """(arm, evaluation, class) -> Dice of that side alone, mean over cases and then seeds; NaN if absent throughout."""
    by_seed = results.groupby([*RUN, "class"])["dice"].mean()
    means = by_seed.groupby(level=["arm", "evaluation", "class"]).mean()
    rows = means.reset_index(name="dice").to_dict("records")
    return {(row["arm"], row["evaluation"], row["class"]): float(row["dice"]) for row in rows}


@dataclass(frozen=True)
class Absence:
    """How often a class was not there, over the arms' rows of one evaluation.

    Attributes:
        rows: arms x seeds x cases.
        no_dice: absent from truth and prediction.
        invented: absent from the truth only, so Dice is 0.
    """

    class_name: str
    evaluation: str
    evaluation_title: str
    rows: int
    no_dice: int
    invented: int


def absences(study: Study) -> list[Absence]:
    """Classes that were absent somewhere, in the plan's order of evaluations and classes."""
    rows = study.results[study.results["kind"] == "arm"]
    found = []
    for evaluation in study.evaluations:
        for entry in study.plan["classes"]:
            part = rows[(rows["evaluation"] == evaluation["name"]) & (rows["class"] == entry["name"])]
            invented = int(((part["truth_voxels"] == 0) & (part["predicted_voxels"] > 0)).sum())
            no_dice = int(part["dice"].isna().sum())
            if no_dice or invented:
                name, title = evaluation["name"], evaluation["title"]
                found.append(Absence(entry["name"], name, title, len(part), no_dice, invented))
    return found


def spacing_of(evaluation: Mapping[str, Any]) -> tuple[float, float, float]:
    """True spacing in mm."""
    i, j, k = (float(value) for value in evaluation["spacing_mm"])
    return i, j, k


def is_undisturbed(evaluation: Mapping[str, Any]) -> bool:
    return evaluation["kind"] in UNDISTURBED


def reference_of(evaluation: Mapping[str, Any], study: Study) -> dict[str, Any] | None:
    """The undisturbed evaluation at the same spacing as a flipped, truncated or wrongly told one."""
    if is_undisturbed(evaluation):
        return None
    same = [e for e in study.evaluations if is_undisturbed(e) and _same_spacing(spacing_of(e), spacing_of(evaluation))]
    return same[0] if same else None


def _same_spacing(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return all(math.isclose(x, y, rel_tol=1e-3) for x, y in zip(a, b, strict=True))
