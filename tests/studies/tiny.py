"""A study small enough for a test: coarse phantom, two arms, a few steps."""

import io
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rich.console import Console

from medattn.studies.config import register_schema
from medattn.studies.plan import Arm, Run, plan_runs, run_config
from tests.studies.paths import CONFIGS

TINY = [
    "experiment=demo_phantom",
    "task.grids=3",
    "task.range_mm=[11,14]",
    "task.held_out_mm=[12,12.5]",
    "task.crop=16",
    "model.dim=24",
    "model.num_heads=2",
    "model.depth=1",
    "train.steps=6",
    "train.batch_size=2",
    "train.warmup_steps=2",
    "train.checkpoint_every=2",
    "evaluation.cases=1",
    "evaluation.window=16",
    "evaluation.lookup_draws=1",
    "seeds=[0]",
    "workers=1",
]


def composed(*overrides: str) -> Any:
    register_schema()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("compare", overrides=[*TINY, *overrides])


def shrink(config: dict[str, Any]) -> dict[str, Any]:
    """Keep two evaluation acquisitions, both coarse."""
    config["evaluation"]["acquisitions"] = {
        name: {**config["evaluation"]["acquisitions"][name], "spacing_mm": spacing}
        for name, spacing in {"iso_4_5": [12.0, 12.0, 12.0], "wrong_header": [12.0, 12.0, 24.0]}.items()
    }
    return config


def tiny_settings(output_dir: Any, *overrides: str) -> dict[str, Any]:
    settings = OmegaConf.to_container(composed(*overrides), resolve=True)
    assert isinstance(settings, dict)
    return shrink({**settings, "output_dir": str(output_dir), "study": "tiny"})


def tiny_arms(*overrides: str) -> list[Arm]:
    kinds = {"none": ["encoding=none", "frame=index"], "token": ["frame=mm", "spacing_token=true"]}
    return [Arm(name, name, "", shrink(run_config(composed(*overrides, *own)))) for name, own in kinds.items()]


def tiny_run(*overrides: str, seed: int = 0) -> Run:
    return plan_runs(tiny_arms(*overrides)[1:], [seed], "data")[0]


def quiet() -> Console:
    return Console(file=io.StringIO(), width=120)
