"""The study folder: what is finished, what is half done, and every file in it written atomically."""

from __future__ import annotations

import json
import subprocess
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from safetensors.torch import save_file
from torch import Tensor

from medattn.files import replacing, write_text
from medattn.studies.plan import Run

VERBATIM: Any = {"keep_default_na": False, "na_values": [""]}  # an arm may be called "none" or "NA"
CHECKPOINT = "checkpoint.pt"
PACKAGES = ("medattn", "torch", "monai", "nibabel", "numpy", "hydra-core", "pandas", "safetensors")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_yaml(path: Path, value: Any) -> None:
    write_text(path, yaml.safe_dump(value, sort_keys=False))


def read_run(folder: Path) -> dict[str, Any]:
    """``run.json`` of a run's folder; empty if there is none yet."""
    path = folder / "run.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def is_finished(study_dir: Path, run: Run) -> bool:
    """True if this very run (same identity) is complete."""
    record = read_run(study_dir / run.directory)
    return record.get("status") == "finished" and record.get("config_hash") == run.identity


def begin_run(study_dir: Path, run: Run) -> Path:
    """Make the run's folder and put its resolved config there."""
    folder = study_dir / run.directory
    config = {"arm": run.arm, "seed": run.seed, "config_hash": run.identity, **run.config}
    write_yaml(folder / "config.yaml", config)
    return folder


def finish_run(
    folder: Path, record: dict[str, Any], rows: list[dict[str, Any]], slices: dict[str, Tensor], aspects: dict[str, str]
) -> None:
    """Write results, slices and last the record that says "finished"; then the checkpoint is no longer needed."""
    write_table(folder / "results.csv", pd.DataFrame(rows))
    save_tensors(folder / "examples.safetensors", slices, aspects)
    write_json(folder / "run.json", {**record, "status": "finished", "failure": None, "failure_file": None})
    (folder / CHECKPOINT).unlink(missing_ok=True)
    (folder / "failure.txt").unlink(missing_ok=True)


def fail_run(study_dir: Path, run: Run, error: BaseException) -> dict[str, Any]:
    """Record a failure with its traceback; the run is tried again, from its checkpoint, when the study is."""
    folder = study_dir / run.directory
    write_text(folder / "failure.txt", "".join(traceback.format_exception(error)))
    last = f"{type(error).__name__}: {error}"
    record = {"arm": run.arm, "seed": run.seed, "config_hash": run.identity, "status": "failed", "failure": last}
    record["failure_file"] = str(run.directory / "failure.txt")
    write_json(folder / "run.json", record)
    return record


def save_tensors(path: Path, tensors: dict[str, Tensor], notes: dict[str, str] | None = None) -> None:
    with replacing(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, metadata=notes)


def write_table(path: Path, table: pd.DataFrame) -> None:
    with replacing(path) as temporary:
        table.to_csv(temporary, index=False)


def collect_results(study_dir: Path, runs: list[Run], baseline_rows: list[dict[str, Any]]) -> pd.DataFrame:
    """One table of the finished runs of this plan and the baselines, also written to ``results.csv``."""
    finished = [run for run in runs if is_finished(study_dir, run)]
    tables = [pd.read_csv(study_dir / run.directory / "results.csv", **VERBATIM) for run in finished]
    table = pd.concat([*tables, pd.DataFrame(baseline_rows)], ignore_index=True)
    write_table(study_dir / "results.csv", table)
    return table


def environment() -> dict[str, Any]:
    """Versions of the packages that decide numbers, and the git commit of the code ("+changes" if it was edited)."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {"git_commit": git_commit(Path(__file__).parent), "versions": versions}


def git_commit(folder: Path) -> str:
    """Commit of the checkout that ``folder`` is in; "unknown" outside one."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
