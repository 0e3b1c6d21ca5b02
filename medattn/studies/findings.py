"""What came out, in sentences computed from the scores. What speaks against physical frames comes first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medattn.studies.statistics import PairedDifference, mean_of, seeds_needed, smallest_attainable_p
from medattn.studies.study_files import RunFile, Study
from medattn.studies.summary import Scores

PHYSICAL_FRAMES = ("mm", "patient_mm", "scanner_mm")
STRESSES = ("truncated", "wrong_header")  # what can hurt a frame in mm; always told with what speaks against it
LEVEL = 0.05
FEW = 4  # up to so many seeds are listed one by one in a sentence
STILL_FALLING = 0.02  # relative fall of the loss per quarter of training


@dataclass(frozen=True)
class Finding:
    """One comparison at one evaluation."""

    evaluation: Mapping[str, Any]
    difference: PairedDifference

    @property
    def sentence(self) -> str:
        d = self.difference
        doubt = "" if d.agrees else "; seeds disagree in sign"
        return f"{mean_of(d.first):.3f} against {mean_of(d.second):.3f}, {signed(d.mean)} ({_seeds(d)}{doubt})"


def _seeds(difference: PairedDifference) -> str:
    """Each seed's difference, or for many seeds their range and how many are above zero."""
    values, n = difference.values, len(difference.seeds)
    if n > FEW:
        above = sum(value > 0 for value in values)
        return f"seeds {signed(min(values))} to {signed(max(values))}, {above} of {n} above zero"
    return ", ".join(f"seed {s} {signed(v)}" for s, v in zip(difference.seeds, values, strict=True))


@dataclass(frozen=True)
class ComparisonFindings:
    """What one comparison gave.

    Attributes:
        first, second: titles of the arms.
        subject: title of the arm that ``against`` and ``favour`` speak of: the one with the physical frame, else the
            first.
        against: differences at or below zero for ``subject``, and every truncated or wrongly told evaluation; worst
            first.
        favour: the other differences, best first.
        unpaired: titles of the evaluations without a seed that both arms finished.
    """

    first: str
    second: str
    subject: str
    summary: str
    sides: str
    against: list[Finding]
    favour: list[Finding]
    unpaired: list[str]


def signed(value: float) -> str:
    """Three decimals with a sign, a true minus; what rounds to zero has no sign."""
    text = f"{value:+.3f}"
    return "0.000" if text[1:] == "0.000" else text.replace("-", "\N{MINUS SIGN}")


def is_physical(arm: Mapping[str, Any]) -> bool:
    return arm["frame"] in PHYSICAL_FRAMES and arm["encoding"] != "none"


def compare(study: Study, scores: Scores, sides: Scores, first: str, second: str) -> ComparisonFindings:
    """Findings of first minus second over all evaluations."""
    arms = {arm["name"]: arm for arm in study.arms}
    reverse = is_physical(arms[second]) and not is_physical(arms[first])
    found = [Finding(e, scores.difference(first, second, e["name"])) for e in study.evaluations]
    paired = sorted((f for f in found if f.difference.seeds), key=lambda f: f.difference.mean, reverse=reverse)
    sign = -1 if reverse else 1
    against = [f for f in paired if sign * f.difference.mean <= 0 or f.evaluation["kind"] in STRESSES]
    return ComparisonFindings(
        study.titles[first],
        study.titles[second],
        study.titles[second if reverse else first],
        _summary(study.titles[first], study.titles[second], [f.difference for f in paired]),
        _sides(study, sides, first, second),
        against,
        [f for f in reversed(paired) if f not in against],
        [f.evaluation["title"] for f in found if not f.difference.seeds],
    )


def _summary(first: str, second: str, differences: Sequence[PairedDifference]) -> str:
    if not differences:
        return f"No seed finished both {first} and {second}: nothing to compare."
    lower, n = sum(d.mean < 0 for d in differences), len(differences)
    means = [d.mean for d in differences]
    text = f"{first} scored lower than {second} in {lower} of {n} evaluations; mean differences run from "
    text += f"{signed(min(means))} to {signed(max(means))}"
    repeated = [d for d in differences if len(d.seeds) > 1]
    if not repeated:
        return text + ", from one seed each."
    return text + f"; all seeds have the same sign in {sum(d.agrees for d in repeated)} of {len(repeated)}."


def _sides(study: Study, sides: Scores, first: str, second: str) -> str:
    """Range of each arm's left/right confusion over the evaluations."""
    ranges = []
    for arm in (first, second):
        means = [m for e in study.evaluations if math.isfinite(m := sides.mean(arm, e["name"]))]
        if not means:
            return ""
        ranges.append(f"{study.titles[arm]} {min(means):.3f} to {max(means):.3f}")
    return f"Left/right confusion over the evaluations: {', '.join(ranges)}."


def what_seeds_can_show(n: int, comparisons: int) -> str:
    """How little ``n`` seeds can show, for ``comparisons`` differences that are looked at together."""
    floor = f"With {n} seed{'s' if n != 1 else ''}, an exact sign-flip test cannot give a p-value below 2/2^{n} = "
    floor += f"{smallest_attainable_p(n):.4g}, however large a difference is"
    if smallest_attainable_p(n) > LEVEL:
        return (
            f"{floor}. So the numbers describe these runs and test nothing; at least {seeds_needed(LEVEL)} seeds "
            f"would be needed to reach {LEVEL:g}."
        )
    return (
        f"{floor}. {comparisons} differences are looked at here and no p-value is corrected for that, so they describe "
        "these runs; a claim needs a hypothesis registered before the runs."
    )


def loss_fall(run: RunFile) -> float:
    """Relative fall of the mean loss from the third to the last quarter of training; NaN without a loss in both."""
    points = run.record.get("loss", [])
    steps = run.record.get("steps", 0)
    third = mean_of([value for step, value in points if steps / 2 <= step < steps * 3 / 4])
    last = mean_of([value for step, value in points if step >= steps * 3 / 4])
    return 1 - last / third if math.isfinite(third) and third > 0 else math.nan


def plateau(runs: Sequence[RunFile]) -> str:
    """Has training reached a plateau?"""
    falls = [fall for run in runs if math.isfinite(fall := loss_fall(run))]
    if not falls:
        return "No run recorded its loss, so it is unknown whether training reached a plateau."
    span = f"From the third to the last quarter of training the mean loss fell by {min(falls):.1%} to {max(falls):.1%}"
    if max(falls) <= STILL_FALLING:
        return f"{span}: close to a plateau under this schedule."
    return f"{span}: short of a plateau, so part of each gap between arms may be speed of learning."
