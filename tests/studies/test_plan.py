import copy

import pytest
from omegaconf.errors import MissingMandatoryValue

from medattn.studies import store
from medattn.studies.plan import _for_arm, identity, plan_runs, run_config
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


def test_an_arm_with_an_encoding_of_its_own_does_not_take_the_options_of_another():
    given = ["train.steps=3", "encoding.options.wavelengths_mm=[20,400]", "+encoding.options.base=2", "frame=mm"]
    assert _for_arm(given, ["encoding=none", "frame=index"]) == ["train.steps=3", "frame=mm"]
    assert _for_arm(given, ["frame=index"]) == given


def test_only_a_finished_record_of_the_same_identity_is_this_run(tmp_path):
    run = tiny_run()
    for status, identity_, finished in (
        ("finished", run.identity, True),
        ("finished", "another", False),
        ("failed", run.identity, False),
    ):
        store.write_json(tmp_path / run.directory / "run.json", {"status": status, "config_hash": identity_})
        assert store.is_finished(tmp_path, run) is finished
    assert not store.is_finished(tmp_path / "elsewhere", run)
