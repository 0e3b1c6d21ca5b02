"""From a composed config to the list of runs: each arm resolved, hashed and given a directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from medattn.studies.config import RUN_KEYS, StudyConfig
from medattn.tasks.acquisitions import CACHE_VERSION

RESULTS_VERSION = 1  # raise it when a change of the code changes numbers: finished runs are then done again
_WORDS_ONLY = ("title", "description")  # keys that change no number


@dataclass(frozen=True)
class Arm:
    """One arm: its resolved run config (plain containers) and the words that introduce it."""

    name: str
    title: str
    description: str
    config: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One arm with one seed. ``identity`` decides its numbers; ``directory`` is relative to the study's."""

    arm: str
    seed: int
    config: dict[str, Any]
    identity: str

    @property
    def directory(self) -> Path:
        return Path("arms") / f"{self.arm}-{self.identity[:8]}" / f"seed_{self.seed}"

    @property
    def key(self) -> str:
        return f"{self.arm}, seed {self.seed}"


def run_config(config: DictConfig) -> dict[str, Any]:
    """The part of a study's config that decides a run, resolved to plain containers.

    Raises:
        omegaconf.errors.MissingMandatoryValue: naming a value that no config sets.
        omegaconf.errors.ConfigKeyError: naming a key that the schema does not know, also one added with ``+key=value``.
    """
    whole = study_settings(config)
    return {key: whole[key] for key in RUN_KEYS}


def study_settings(config: DictConfig) -> dict[str, Any]:
    """A study's whole config, checked against the schema, as plain containers (errors as for ``run_config``)."""
    whole = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    checked = OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(StudyConfig), whole))
    assert isinstance(checked, dict)
    return {str(key): value for key, value in checked.items()}


def compose_arms(config: DictConfig) -> list[Arm]:
    """Compose each arm: the study's config with the command line's and the arm's overrides.

    Raises:
        ValueError: if the study has no arm or an arm's overrides touch what must be equal across arms.
    """
    if not config.arms:
        raise ValueError("arms is empty: choose an experiment (experiment=demo) or add arms to the config")
    shared = {key: value for key, value in run_config(config).items() if key in ("data", "task", "train", "evaluation")}
    arms = []
    for name, arm in config.arms.items():
        overrides = [*_for_arm(HydraConfig.get().overrides.task, arm.overrides), *arm.overrides]
        resolved = run_config(compose(config_name=HydraConfig.get().job.config_name, overrides=overrides))
        differing = [key for key, value in shared.items() if resolved[key] != value]
        if differing:
            raise ValueError(f"arm {name!r} may not override {', '.join(differing)}: arms must share them")
        arms.append(Arm(str(name), arm.title, arm.description, resolved))
    return arms


def _for_arm(given: Sequence[str], own: Sequence[str]) -> list[str]:
    """The command line's overrides without those of another encoding's options, for an arm that sets its encoding."""
    if not any(override.startswith("encoding=") for override in own):
        return list(given)
    return [override for override in given if not override.lstrip("+~").startswith("encoding.")]


def identity(config: dict[str, Any], data_fingerprint: str) -> str:
    """SHA-256 of everything that decides numbers: ``config``, the data, and the versions of code and acquisitions."""
    text = json.dumps([_without_words(config), data_fingerprint, RESULTS_VERSION, CACHE_VERSION], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_words(item) for key, item in value.items() if key not in _WORDS_ONLY}
    return [_without_words(item) for item in value] if isinstance(value, list) else value


def plan_runs(arms: list[Arm], seeds: list[int], data_fingerprint: str) -> list[Run]:
    """All runs, seed by seed, so that the first results already compare all arms.

    Raises:
        ValueError: if a seed is given twice.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError(f"seeds must be distinct integers, at least one, got {list(seeds)}")
    ids = {arm.name: identity(arm.config, data_fingerprint) for arm in arms}
    return [Run(arm.name, seed, arm.config, ids[arm.name]) for seed in seeds for arm in arms]
