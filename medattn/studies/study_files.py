"""Reading a study folder back: plan, results, runs, example slices. What is missing is counted, never passed over."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

NUMBERS = ("dice", "merged_dice", "side_voxels", "swapped_voxels")
COUNTS = ("seed", "case", "truth_voxels", "predicted_voxels", "overlap_voxels")
SPACINGS = ("spacing_i_mm", "spacing_j_mm", "spacing_k_mm")
WORDS = ("kind", "arm", "evaluation", "class", "pair", "config_hash")
REQUIRED = ("arms", "seeds", "evaluations", "classes")


@dataclass(frozen=True)
class RunFile:
    """What ``run.json`` says about one (arm, seed) of the plan.

    Attributes:
        status: finished, failed or missing ("missing": the plan has it, the folder has no record of it).
        record: the file's content; empty if missing.
    """

    arm: str
    seed: int
    directory: Path
    status: str
    record: dict[str, Any]


@dataclass(frozen=True)
class Slice:
    """One example: image in [-1, 1], class indices of truth and prediction, each (H, W).

    ``aspect`` is the height of a pixel over its width.
    """

    image: NDArray[np.float32]
    truth: NDArray[np.uint8]
    prediction: NDArray[np.uint8]
    aspect: float


@dataclass(frozen=True, eq=False)
class Study:
    """A study folder, read.

    Attributes:
        plan: ``plan.json``.
        results: rows of the plan's finished runs and baselines.
        runs: one per (arm, seed) of the plan, in its order.
        left_out: number of rows in ``results.csv`` that belong to no finished run of this plan.
        config_text: ``config.yaml``; empty if there is none.
    """

    folder: Path
    plan: dict[str, Any]
    results: pd.DataFrame
    runs: list[RunFile]
    left_out: int
    config_text: str

    @property
    def arms(self) -> list[dict[str, Any]]:
        return list(self.plan["arms"])

    @property
    def baselines(self) -> list[dict[str, Any]]:
        return list(self.plan.get("baselines", []))

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return list(self.plan["evaluations"])

    @property
    def seeds(self) -> list[int]:
        return list(self.plan["seeds"])

    @property
    def unfinished(self) -> list[RunFile]:
        return [run for run in self.runs if run.status != "finished"]

    @cached_property
    def titles(self) -> dict[str, str]:
        """Title of each arm and baseline by its name."""
        return {entry["name"]: entry["title"] for entry in (*self.arms, *self.baselines)}


def read_study(study_dir: Path) -> Study:
    """Read a study folder. Only ``plan.json`` must be there; everything else is reported as missing.

    Raises:
        FileNotFoundError: without ``plan.json``.
        ValueError: if a JSON file is damaged, the plan lacks a part, or ``results.csv`` lacks a column.
    """
    plan_path = study_dir / "plan.json"
    if not plan_path.is_file():
        raise FileNotFoundError(f"{study_dir} is not a study folder: it has no plan.json")
    plan = _read_json(plan_path)
    missing = [key for key in REQUIRED if key not in plan]
    if missing:
        raise ValueError(f"{plan_path} must have {', '.join(REQUIRED)}, it lacks {', '.join(missing)}")
    runs = [
        _read_run(study_dir, arm["name"], int(seed), directory)
        for arm in plan["arms"]
        for seed, directory in arm["run_dirs"].items()
    ]
    table = _read_results(study_dir / "results.csv")
    kept = _belonging(table, plan, runs)
    config = study_dir / "config.yaml"
    text = config.read_text(encoding="utf-8") if config.is_file() else ""
    return Study(study_dir, plan, kept, runs, len(table) - len(kept), text)


def read_slice(study_dir: Path, run: RunFile, evaluation: str) -> Slice | None:
    """The example of ``evaluation`` that a run kept; ``None`` if the file or a part of it is missing or damaged."""
    path = study_dir / run.directory / "examples.safetensors"
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            names = [f"{evaluation}/{part}" for part in ("image", "truth", "prediction")]
            aspect = (file.metadata() or {}).get(f"{evaluation}/aspect")
            if aspect is None or not set(names) <= set(file.keys()):
                return None
            image, truth, prediction = (file.get_tensor(name) for name in names)
    except SafetensorError:
        return None
    return Slice(image, truth, prediction, float(aspect))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error


def _read_run(study_dir: Path, arm: str, seed: int, directory: str) -> RunFile:
    path = study_dir / directory / "run.json"
    record = _read_json(path) if path.is_file() else {}
    return RunFile(arm, seed, Path(directory), record.get("status", "missing"), record)


def _read_results(path: Path) -> pd.DataFrame:
    """The table, with empty texts as "" (an arm may be called "none" or "NA") and empty numbers as NaN."""
    columns = (*WORDS, *COUNTS, *SPACINGS, *NUMBERS)
    if not path.is_file():
        return pd.DataFrame({name: pd.Series(dtype="str" if name in WORDS else "float64") for name in columns})
    table = pd.read_csv(
        path,
        dtype=dict.fromkeys(WORDS, "str"),
        keep_default_na=False,
        na_values=dict.fromkeys((*COUNTS, *SPACINGS, *NUMBERS), [""]),
    )
    missing = [name for name in columns if name not in table]
    if missing:
        raise ValueError(f"{path} must have the columns {', '.join(columns)}; it lacks {', '.join(missing)}")
    return table


def _belonging(table: pd.DataFrame, plan: dict[str, Any], runs: list[RunFile]) -> pd.DataFrame:
    """Rows of baselines of the plan and of its finished runs, by arm, seed and config hash."""
    baselines = [entry["name"] for entry in plan.get("baselines", [])]
    hashes = {arm["name"]: arm["config_hash"] for arm in plan["arms"]}
    finished = {(run.arm, run.seed, hashes[run.arm]) for run in runs if run.status == "finished"}
    keys = zip(table["arm"], table["seed"], table["config_hash"], strict=True)
    of_run = pd.Series([key in finished for key in keys], index=table.index, dtype=bool) & (table["kind"] == "arm")
    of_baseline = (table["kind"] == "baseline") & table["arm"].isin(baselines)
    known = table["evaluation"].isin([e["name"] for e in plan["evaluations"]])
    return table[(of_run | of_baseline) & known].reset_index(drop=True)
