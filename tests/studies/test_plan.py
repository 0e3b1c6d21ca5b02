import copy

import pytest
from omegaconf.errors import MissingMandatoryValue

from medattn.studies.plan import identity, plan_runs, run_config
from tests.studies.tiny import composed, tiny_arms, tiny_run


def test_identity_changes_with_numbers_and_data_but_not_with_words():
    config = tiny_run().config
    same, other = copy.deepcopy(config), copy.deepcopy(config)
    same["evaluation"]["acquisitions"]["iso_4_5"]["title"] = "another title"
    other["train"]["steps"] += 1
    assert identity(config, "data") == identity(same, "data")
    assert identity(config, "data") != identity(other, "data")
    assert identity(config, "data") != identity(config, "other data")


def test_runs_go_seed_by_seed_in_folders_of_their_own():
    runs = plan_runs(tiny_arms(), [3, 4], "data")
    assert [(run.arm, run.seed) for run in runs] == [("none", 3), ("token", 3), ("none", 4), ("token", 4)]
    assert len({run.directory for run in runs}) == 4
    assert runs[0].directory.as_posix() == f"arms/none-{runs[0].identity[:8]}/seed_3"


@pytest.mark.parametrize("seeds", [[], [1, 1]])
def test_seeds_are_distinct_and_at_least_one(seeds):
    with pytest.raises(ValueError, match="seeds must be distinct integers, at least one"):
        plan_runs(tiny_arms(), seeds, "data")


def test_a_value_that_no_config_sets_is_named():
    with pytest.raises(MissingMandatoryValue, match="train.steps"):
        run_config(composed("train.steps=???"))
