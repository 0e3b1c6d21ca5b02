"""The averaging rule, on numbers worked by hand."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from medattn.studies.study_files import Study, read_study
from medattn.studies.summary import absences, class_dice, merged_dice, reference_of, side_confusion
from tests.studies.synthetic import EVALUATIONS, write_study


def row(name: str, case: int = 0, seed: int = 0, **values: Any) -> dict[str, Any]:
    pair = name.rpartition("_")[0] if name.endswith(("_left", "_right")) else ""
    place = {"arm": "mm", "seed": seed, "evaluation": "iso", "case": case, "class": name, "pair": pair}
    scores = {"dice": math.nan, "merged_dice": math.nan, "side_voxels": math.nan, "swapped_voxels": math.nan}
    return {**place, **scores, **values}


def test_a_pair_counts_once_and_an_absent_structure_not_at_all() -> None:
    rows = [
        row("kidney_left", merged_dice=0.75),
        row("kidney_right", merged_dice=0.75),
        row("liver", merged_dice=0.25),
        row("spleen"),
    ]
    assert merged_dice(pd.DataFrame(rows)).of("mm", "iso") == {0: 0.5}


def test_structures_are_averaged_before_cases_and_cases_before_seeds() -> None:
    rows = [
        row("liver", case=0, merged_dice=0.0),
        row("spleen", case=0, merged_dice=0.5),  # case 0: .25
        row("liver", case=1, merged_dice=0.75),  # case 1: .75, seed 0: .5
        row("liver", case=0, seed=1, merged_dice=1.0),  # seed 1: 1
    ]
    scores = merged_dice(pd.DataFrame(rows))
    assert scores.of("mm", "iso") == {0: 0.5, 1: 1.0}
    assert scores.mean("mm", "iso") == 0.75


def test_a_seed_without_any_dice_has_no_score() -> None:
    scores = merged_dice(pd.DataFrame([row("liver"), row("liver", seed=1, merged_dice=0.5)]))
    assert scores.of("mm", "iso") == {1: 0.5}
    assert scores.of("mm", "elsewhere") == {}
    assert math.isnan(scores.mean("index", "iso"))


def test_confusion_sums_over_pairs_within_a_case_and_averages_cases() -> None:
    rows = [
        row("kidney_left", side_voxels=10, swapped_voxels=1),
        row("kidney_right", side_voxels=30, swapped_voxels=9),  # case 0: 10 / 40
        row("liver"),
        row("hip_left", case=1, side_voxels=4, swapped_voxels=3),  # case 1: 3 / 4
        row("hip_left", case=2, side_voxels=0, swapped_voxels=0),  # found nowhere: no rate
    ]
    assert side_confusion(pd.DataFrame(rows)).of("mm", "iso") == {0: 0.5}


def test_confusion_is_undefined_without_pairs() -> None:
    assert side_confusion(pd.DataFrame([row("liver", merged_dice=1.0)])).by_seed == {}


def test_class_dice_averages_cases_then_seeds() -> None:
    rows = [
        row("liver", dice=0.25),
        row("liver", case=1, dice=0.75),
        row("liver", seed=1, dice=1.0),
        row("spleen"),
    ]
    dice = class_dice(pd.DataFrame(rows))
    assert dice["mm", "iso", "liver"] == 0.75
    assert math.isnan(dice["mm", "iso", "spleen"])


def test_differences_are_paired_by_seed() -> None:
    index = {"arm": "index"}
    rows = [
        row("liver", merged_dice=0.75),
        row("liver", seed=1, merged_dice=0.5),
        row("liver", seed=1, merged_dice=0.75) | index,
        row("liver", seed=2, merged_dice=0.0) | index,
    ]
    pair = merged_dice(pd.DataFrame(rows)).difference("mm", "index", "iso")
    assert (pair.seeds, pair.values) == ((1,), (-0.25,))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return read_study(write_study(tmp_path_factory.mktemp("summary") / "study"))


def test_absent_structures_are_counted(study: Study) -> None:
    (found,) = absences(study)
    assert (found.class_name, found.evaluation) == ("spleen", "top_missing")
    assert (found.no_dice, found.invented, found.rows) == (20, 0, 20)  # 5 arms x 2 seeds x 2 cases


def test_a_structure_that_is_predicted_but_not_there_is_counted(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study")
    table = pd.read_csv(folder / "results.csv", keep_default_na=False)
    here = (table["arm"] == "mm") & (table["class"] == "aorta") & (table["evaluation"] == "iso_8")
    table.loc[here, "truth_voxels"] = 0
    table.to_csv(folder / "results.csv", index=False)
    found = [a for a in absences(read_study(folder)) if a.class_name == "aorta"]
    assert [(a.evaluation, a.no_dice, a.invented) for a in found] == [("iso_8", 0, 4)]  # 2 seeds x 2 cases


@pytest.mark.parametrize(
    ("name", "reference"),
    [("flipped", "iso_4.5"), ("top_missing", "iso_4.5"), ("wrong_header", "slices_z"), ("iso_8", None)],
)
def test_a_disturbed_scan_is_held_against_the_undisturbed_one_of_its_spacing(
    study: Study, name: str, reference: str | None
) -> None:
    evaluation = study.evaluations[list(EVALUATIONS).index(name)]
    found = reference_of(evaluation, study)
    assert (found["name"] if found else None) == reference
