"""Typed schema of a study. Hydra checks every config against it: an unknown key or a wrong type is an error.

This module imports nothing heavy, so that ``--help`` and config errors come at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

ACQUISITION_KINDS = {
    "in_range": "spacing in the training range",
    "out_of_range": "spacing out of the training range",
    "anisotropic": "anisotropic",
    "flipped": "array flipped",
    "truncated": "field of view cut off",
    "wrong_header": "told a wrong spacing",
}
"""Kinds of evaluation acquisitions, and how the report calls them."""


@dataclass
class DataConfig:
    """A subject: ``kind`` "files" (image and labels) or "phantom"."""

    name: str = MISSING
    kind: str = MISSING
    image: str | None = None  # a path, or "fetch:NAME" for a file of the data manifest
    labels: str | None = None
    phantom_seed: int = 0
    profile: str = "box"
    classes: dict[str, int] = field(default_factory=dict)


@dataclass
class TaskConfig:
    """What training shows: grids, crops, changes of appearance, jitter of the frame."""

    name: str = MISSING
    grids: int = MISSING
    grid_seed: int = 0
    range_mm: list[float] = MISSING
    held_out_mm: list[float] = MISSING
    stretched_fraction: float = MISSING
    max_stretch: float = MISSING
    crop: int = MISSING
    foreground: float = MISSING
    flip_probability: float = MISSING
    window_hu: list[float] = MISSING
    noise_sd_hu: float = MISSING
    contrast: float = MISSING
    jitter_shift_mm: float = MISSING
    jitter_scale: float = MISSING


@dataclass
class EncodingConfig:
    """``create_encoding`` by name; options are its keyword arguments."""

    name: str = MISSING
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class FrameConfig:
    name: str = MISSING


@dataclass
class ModelConfig:
    name: str = MISSING
    dim: int = MISSING
    num_heads: int = MISSING
    depth: int = MISSING
    ffn_ratio: float = MISSING
    patch_size: list[int] = MISSING
    dropout: float = 0.0
    attention_dropout: float = 0.0
    reference_spacing_mm: float = 1.0  # zero of the spacing token


@dataclass
class TrainConfig:
    name: str = MISSING
    steps: int = MISSING
    batch_size: int = MISSING
    learning_rate: float = MISSING
    weight_decay: float = MISSING
    betas: list[float] = MISSING
    warmup_steps: int = MISSING
    final_lr_fraction: float = MISSING
    clip_norm: float = MISSING
    checkpoint_every: int = MISSING


@dataclass
class AcquisitionConfig:
    """One evaluation acquisition (see ``medattn.tasks.acquisitions.Acquisition``)."""

    title: str = MISSING
    kind: str = MISSING  # one of ACQUISITION_KINDS
    spacing_mm: list[float] = MISSING
    description: str = ""
    flip_axis: int | None = None
    drop_superior: float = 0.0
    header_order: list[int] | None = None


@dataclass
class EvaluationConfig:
    name: str = MISSING
    cases: int = MISSING
    seed: int = 0
    window: int = MISSING
    stride: int = MISSING
    lookup_draws: int = 4
    acquisitions: dict[str, AcquisitionConfig] = field(default_factory=dict)


@dataclass
class ArmConfig:
    """An arm is the study's config with these overrides, in Hydra's syntax."""

    title: str = MISSING
    description: str = ""
    overrides: list[str] = MISSING


@dataclass
class ReportConfig:
    title: str = "Comparison"
    question: str = ""
    claim_limits: str = ""
    comparisons: list[list[str]] = field(default_factory=list)


@dataclass
class RunConfig:
    """What decides a run's numbers. Its hash, with the seed, identifies the run."""

    data: DataConfig = field(default_factory=DataConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    encoding: EncodingConfig = field(default_factory=EncodingConfig)
    frame: FrameConfig = field(default_factory=FrameConfig)
    spacing_token: bool = False
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)


@dataclass
class StudyConfig(RunConfig):
    """A study: arms x seeds, where it is written and how many runs go side by side."""

    study: str = "study"
    output_dir: str = "outputs"
    workers: int = 2
    threads: int = 1  # per run; fixed, so that results do not depend on the number of workers
    seeds: list[int] = field(default_factory=lambda: [0])
    arms: dict[str, ArmConfig] = field(default_factory=dict)
    report: ReportConfig = field(default_factory=ReportConfig)


RUN_KEYS = ("data", "task", "encoding", "frame", "spacing_token", "model", "train", "evaluation")


def register_schema() -> None:
    """Make the schema known to Hydra as ``study_schema``."""
    ConfigStore.instance().store(name="study_schema", node=StudyConfig)
