"""Carrying out one run from start to end, in this process."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from medattn.models import SegmentationModel
from medattn.studies import store
from medattn.studies.build import StudyData, build_data, build_model, build_sampler, build_subject
from medattn.studies.evaluation import evaluate
from medattn.studies.plan import Run
from medattn.studies.training import Progress, train

CASE_STEPS = 8  # one evaluation case counts as this many training steps in the progress display

OnProgress = Callable[[str, int, str], None]  # (run key, units done, what is going on)


def total_units(run: Run) -> int:
    """Length of a run in the progress display."""
    evaluation = run.config["evaluation"]
    return int(run.config["train"]["steps"] + CASE_STEPS * evaluation["cases"] * len(evaluation["acquisitions"]))


def execute(study_dir: Path, study: str, run: Run, threads: int, on_progress: OnProgress) -> None:
    """Train (or continue), evaluate and store ``run``."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # denormals in softmax tails triple the time on a CPU
    folder = store.begin_run(study_dir, run)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        data = _data(json.dumps({part: run.config[part] for part in ("data", "task", "evaluation")}))
        model = build_model(run.config, len(data.class_names) + 1, run.seed)
        record = _describe(run, model)
        progress = _train(model, data, run, folder, on_progress)
        rows, slices, aspects, seconds = _evaluate(model, data, run, study, on_progress)
    record["warnings"] = own_warnings(caught)
    record |= {"steps": progress.step, "train_seconds": progress.seconds, "evaluate_seconds": seconds}
    record |= {"loss": progress.loss, "data_digest": progress.data_digest}
    store.save_tensors(folder / "weights.safetensors", model.state_dict())
    store.finish_run(folder, record, rows, slices, aspects)


def _train(model: SegmentationModel, data: StudyData, run: Run, folder: Path, on_progress: OnProgress) -> Progress:
    def on_step(step: int, loss: float) -> None:
        on_progress(run.key, step, f"step {step}, loss {loss:.3f}")

    sampler = build_sampler(run.config["task"])
    return train(model, sampler, data.training, run.config, run.seed, folder / store.CHECKPOINT, on_step)


def _evaluate(model: SegmentationModel, data: StudyData, run: Run, study: str, on_progress: OnProgress) -> Any:
    started, units = time.perf_counter(), run.config["train"]["steps"]

    def on_case() -> None:
        nonlocal units
        units += CASE_STEPS
        on_progress(run.key, units, "evaluating")

    return *evaluate(model, data, run, study, on_case), time.perf_counter() - started


def _describe(run: Run, model: SegmentationModel) -> dict[str, Any]:
    position = [*model.encoder.encoding.parameters()]
    if model.encoder.spacing_token is not None:
        position += model.encoder.spacing_token.parameters()
    return {
        "arm": run.arm,
        "seed": run.seed,
        "config_hash": run.identity,
        "parameters": sum(p.numel() for p in model.parameters()),
        "parameters_position": sum(p.numel() for p in position),
        "initial_weights": initial_weights_digest(model),
        **store.environment(),
    }


def initial_weights_digest(model: SegmentationModel) -> str:
    """SHA-256 of the parameters that all arms have: those of neither the encoding nor the spacing token."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        if not name.startswith(("encoder.encoding.", "encoder.spacing_token.")):
            digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


def own_warnings(caught: list[warnings.WarningMessage]) -> list[str]:
    """Messages of the warnings that this project raised, each once, in order."""
    ours = [str(w.message) for w in caught if w.category.__module__.startswith("medattn")]
    return list(dict.fromkeys(ours))


@lru_cache(maxsize=1)
def _data(config: str) -> StudyData:
    """The data of a config given as JSON: the runs of a study share one set."""
    values = json.loads(config)
    subject, _ = build_subject(values["data"])
    return build_data(subject, values)
