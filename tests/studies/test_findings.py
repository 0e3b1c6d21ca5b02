"""The sentences that a report makes of its numbers."""

import math
from pathlib import Path

import pytest

from medattn.studies.findings import Finding, compare, loss_fall, plateau, signed, what_seeds_can_show
from medattn.studies.statistics import paired_difference
from medattn.studies.study_files import RunFile, read_study
from medattn.studies.summary import Scores
from tests.studies.synthetic import EVALUATIONS, write_study

NO_SIDES = Scores("Left/right confusion", {})


def findings(tmp_path: Path, first: str, second: str, differences: dict[str, float]):
    """Findings of a comparison whose second arm scores .5 everywhere, for one seed."""
    study = read_study(write_study(tmp_path / "study"))
    by_seed = {(first, name): {0: 0.5 + d} for name, d in differences.items()}
    by_seed |= {(second, name): {0: 0.5} for name in EVALUATIONS}
    return compare(study, Scores("Merged Dice", by_seed), NO_SIDES, first, second)


DIFFERENCES = {
    "iso_4.5": -0.01, "iso_8": 0.02, "slices_z": 0.1, "flipped": 0.0, "top_missing": 0.05, "wrong_header": -0.2,
}  # fmt: skip


def names(found: list[Finding]) -> list[str]:
    return [f.evaluation["name"] for f in found]


def test_losses_truncation_and_wrong_headers_are_told_first_whatever_their_sign(tmp_path: Path) -> None:
    found = findings(tmp_path, "mm", "index", DIFFERENCES)
    assert found.subject == "mm"
    assert names(found.against) == ["wrong_header", "iso_4.5", "flipped", "top_missing"]
    assert names(found.favour) == ["slices_z", "iso_8"]
    assert found.unpaired == ["3:1 along R (12 x 4 x 4 mm)"]


def test_the_physical_frame_is_the_subject_also_as_second_arm(tmp_path: Path) -> None:
    found = findings(tmp_path, "index", "mm", {name: -d for name, d in DIFFERENCES.items()})
    assert found.subject == "mm"
    assert set(names(found.against)) == {"wrong_header", "iso_4.5", "flipped", "top_missing"}
    assert names(found.against)[0] == "wrong_header"
    assert names(found.favour) == ["slices_z", "iso_8"]


def test_without_a_physical_frame_the_first_arm_is_the_subject(tmp_path: Path) -> None:
    assert findings(tmp_path, "index_token", "index", DIFFERENCES).subject == "index + spacing token"


def test_the_summary_counts(tmp_path: Path) -> None:
    assert findings(tmp_path, "mm", "index", DIFFERENCES).summary == (
        "mm scored lower than index in 2 of 6 evaluations; mean differences run from \N{MINUS SIGN}0.200 to +0.100, "
        "from one seed each."
    )


def test_arms_without_a_common_seed_are_said_to_have_none(tmp_path: Path) -> None:
    found = findings(tmp_path, "mm", "index", {})
    assert found.summary == "No seed finished both mm and index: nothing to compare."
    assert (found.against, found.favour, len(found.unpaired)) == ([], [], 7)


def test_a_sentence_gives_both_scores_every_seed_and_disagreement() -> None:
    pair = paired_difference({0: 0.5, 1: 0.25}, {0: 0.25, 1: 0.375})
    assert Finding({}, pair).sentence == (
        "0.375 against 0.312, +0.062 (seed 0 +0.250, seed 1 \N{MINUS SIGN}0.125; seeds disagree in sign)"
    )


def test_many_seeds_are_told_as_their_range() -> None:
    pair = paired_difference({n: 0.5 + n / 8 for n in range(6)}, dict.fromkeys(range(6), 0.625))
    assert Finding({}, pair).sentence.endswith(
        "(seeds \N{MINUS SIGN}0.125 to +0.500, 4 of 6 above zero; seeds disagree in sign)"
    )


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "+0.123"), (-0.05, "\N{MINUS SIGN}0.050"), (-0.0004, "0.000"), (0.0, "0.000")]
)
def test_signed(value: float, text: str) -> None:
    assert signed(value) == text


def test_two_seeds_test_nothing_and_say_so() -> None:
    assert what_seeds_can_show(2, 28) == (
        "With 2 seeds, an exact sign-flip test cannot give a p-value below 2/2^2 = 0.5, however large a difference is. "
        "So the numbers describe these runs and test nothing; at least 6 seeds would be needed to reach 0.05."
    )


def test_ten_seeds_are_warned_of_many_looks() -> None:
    text = what_seeds_can_show(10, 28)
    assert "2/2^10 = 0.001953" in text
    assert "28 differences are looked at" in text


def run(loss: list[list[float]], steps: int = 100) -> RunFile:
    return RunFile("mm", 0, Path("mm"), "finished", {"loss": loss, "steps": steps})


def test_fall_of_the_loss_between_the_last_two_quarters() -> None:
    # third quarter: (2 + 1) / 2 = 1.5; last: 1.2; fall: .2
    assert loss_fall(run([[0, 9.0], [49, 9.0], [50, 2.0], [74, 1.0], [75, 1.2], [99, 1.2]])) == pytest.approx(0.2)
    assert math.isnan(loss_fall(run([])))


def test_plateau_is_judged_by_the_worst_run() -> None:
    flat, falling = run([[50, 1.0], [75, 0.99]]), run([[50, 1.0], [75, 0.8]])
    assert "fell by 1.0% to 1.0%: close to a plateau" in plateau([flat])
    assert "fell by 1.0% to 20.0%: short of a plateau" in plateau([flat, falling])
    assert "unknown" in plateau([])
