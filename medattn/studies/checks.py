"""What a schema of types cannot say: ranges and names that must fit, checked before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from medattn.geometry.weights import PROFILES
from medattn.studies.config import ACQUISITION_KINDS

AT_LEAST_1 = (
    "workers",
    "threads",
    "task.grids",
    "task.crop",
    "train.steps",
    "train.batch_size",
    "train.checkpoint_every",
    "evaluation.cases",
    "evaluation.window",
    "evaluation.stride",
    "evaluation.lookup_draws",
)
POSITIVE = ("model.ffn_ratio", "model.reference_spacing_mm", "train.learning_rate", "train.clip_norm")
NOT_NEGATIVE = (
    "data.phantom_seed",
    "task.noise_sd_hu",
    "task.contrast",
    "task.jitter_shift_mm",
    "task.jitter_scale",
    "train.weight_decay",
    "train.warmup_steps",
)
FRACTIONS = ("task.foreground", "task.flip_probability", "task.stretched_fraction", "train.final_lr_fraction")


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check a study's plain config.

    Raises:
        ValueError: naming the field, the requirement and the value.
    """
    for fields, wanted, holds in (
        (AT_LEAST_1, "at least 1", lambda value: value >= 1),
        (POSITIVE, "positive", lambda value: value > 0),
        (NOT_NEGATIVE, "0 or more", lambda value: value >= 0),
        (FRACTIONS, "between 0 and 1", lambda value: 0 <= value <= 1),
    ):
        for field in fields:
            value = _value(settings, field)
            if not (math.isfinite(value) and holds(value)):
                raise ValueError(f"{field} must be {wanted}, got {value}")
    _check_lists(settings)
    _check_names(settings)


def _check_lists(settings: Mapping[str, Any]) -> None:
    low_high = settings["task"]["window_hu"]
    if len(low_high) != 2 or not low_high[0] < low_high[1]:
        raise ValueError(f"task.window_hu must be two numbers (low, high) with low < high, got {low_high}")
    betas = settings["train"]["betas"]
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"train.betas must be two numbers in [0, 1), got {betas}")
    window, stride = settings["evaluation"]["window"], settings["evaluation"]["stride"]
    if stride > window:
        raise ValueError(f"evaluation.stride must not exceed evaluation.window, {window}, got {stride}")
    if not settings["evaluation"]["acquisitions"]:
        raise ValueError("evaluation.acquisitions must name at least one acquisition")


def _check_names(settings: Mapping[str, Any]) -> None:
    study, arms = settings["study"], settings["arms"]
    for field, name in (("study", study), *(("arms", arm) for arm in arms)):
        if not name or any(mark in name for mark in "/\\") or name.startswith("."):
            raise ValueError(
                f"{field}: a name becomes a folder, so it must not be empty, hold / or start with ., got {name!r}"
            )
    for name, item in settings["evaluation"]["acquisitions"].items():
        if item["kind"] not in ACQUISITION_KINDS:
            field = f"evaluation.acquisitions.{name}.kind"
            raise ValueError(f"{field} must be one of {', '.join(ACQUISITION_KINDS)}, got {item['kind']!r}")
    if settings["data"]["profile"] not in PROFILES:
        raise ValueError(f"data.profile must be one of {', '.join(PROFILES)}, got {settings['data']['profile']!r}")
    for pair in settings["report"]["comparisons"]:
        if len(pair) != 2 or any(name not in arms for name in pair):
            raise ValueError(f"report.comparisons must be pairs of {', '.join(arms)}, got {pair}")


def _value(settings: Mapping[str, Any], field: str) -> Any:
    value: Any = settings
    for key in field.split("."):
        value = value[key]
    return value
