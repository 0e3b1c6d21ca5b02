"""Every config composes, and what it names can be built."""

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError

from medattn.coordinates import Frame
from medattn.encodings import list_encodings
from medattn.encodings.registry import encoding_class
from medattn.studies.build import build_acquisitions, build_model
from medattn.studies.config import register_schema
from medattn.studies.plan import run_config
from tests.studies.paths import CONFIGS

GROUPS = ("data", "task", "encoding", "frame", "model", "train", "evaluation", "experiment")
CHOICES = [f"{group}={path.stem}" for group in GROUPS for path in sorted((CONFIGS / group).glob("*.yaml"))]


def composed(*overrides):
    register_schema()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("compare", overrides=list(overrides))


@pytest.mark.parametrize("choice", CHOICES)
def test_every_config_composes_and_its_model_and_acquisitions_can_be_built(choice):
    group, name = choice.split("=")
    frames = list(encoding_class(name).defined_frames) if group == "encoding" else [Frame.MM]
    frame = Frame.MM if Frame.MM in frames else frames[0]
    config = run_config(composed(choice, f"frame={frame.value}") if group != "frame" else composed(choice))
    assert sum(p.numel() for p in build_model(config, 16, 0).parameters()) > 0
    assert build_acquisitions(config["evaluation"])


@pytest.mark.parametrize("experiment", sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml")))
def test_every_arm_of_every_experiment_composes(experiment):
    config = composed(f"experiment={experiment}")
    for arm in config.arms.values():
        run_config(composed(f"experiment={experiment}", *arm.overrides))
    names = set(config.arms)
    assert all(set(pair) <= names for pair in config.report.comparisons)


def test_every_encoding_and_frame_has_a_config():
    assert {path.stem for path in (CONFIGS / "encoding").glob("*.yaml")} == set(list_encodings())
    assert {path.stem for path in (CONFIGS / "frame").glob("*.yaml")} == {frame.value for frame in Frame}


def test_demo_arms_are_the_issue_of_the_comparison():
    arms = composed("experiment=demo").arms
    assert list(arms) == ["none", "index", "index_token", "mm", "patient_mm"]


def test_demo_model_has_the_stated_size():
    config = run_config(composed("experiment=demo"))
    assert sum(p.numel() for p in build_model(config, 16, 0).parameters()) == 330_112
    with_token = {**config, "spacing_token": True}
    assert sum(p.numel() for p in build_model(with_token, 16, 0).parameters()) == 340_672


def test_demo_twins_are_calibrated_at_the_held_out_spacing():
    options = composed("encoding=sincos").encoding.options
    assert OmegaConf.to_container(options) == {"wavelengths_mm": [16.0, 500.0], "reference_spacing_mm": 4.5}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.stepz=3", "stepz"),
        ("train.steps=many", "train.steps"),
        ("frame=inches", "inches"),
        ("seeds=[zero]", "seeds"),
    ],
)
def test_unknown_keys_and_wrong_types_are_errors_that_name_them(override, message):
    with pytest.raises((ConfigCompositionException, MissingConfigException)) as caught:
        composed(override)
    assert message in str(caught.value) + str(caught.value.__cause__)


def test_a_key_added_with_a_plus_is_no_way_around_the_schema():
    with pytest.raises(ConfigKeyError, match="colour"):
        run_config(composed("+data.colour=red"))
