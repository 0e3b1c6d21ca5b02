"""A made-up study folder as the runner writes it: 5 arms x 2 seeds x 7 evaluations x 2 cases x 15 classes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import save_file

ARMS = {
    "none": ("no position", "none", "index", False),
    "index": ("index", "sincos", "index", False),
    "index_token": ("index + spacing token", "sincos", "index", True),
    "mm": ("mm", "sincos", "mm", False),
    "patient_mm": ("patient mm", "sincos", "patient_mm", False),
}
EVALUATIONS = {
    "iso_4.5": ("4.5 mm isotropic", "in_range", (4.5, 4.5, 4.5)),
    "iso_8": ("8 mm isotropic", "out_of_range", (8.0, 8.0, 8.0)),
    "slices_z": ("1:3 along S (4 x 4 x 12 mm)", "anisotropic", (4.0, 4.0, 12.0)),
    "slices_x": ("3:1 along R (12 x 4 x 4 mm)", "anisotropic", (12.0, 4.0, 4.0)),
    "flipped": ("4.5 mm, array flipped", "flipped", (4.5, 4.5, 4.5)),
    "top_missing": ("4.5 mm, top third missing", "truncated", (4.5, 4.5, 4.5)),
    "wrong_header": ("4 x 4 x 12 mm told as 12 x 4 x 4", "wrong_header", (4.0, 4.0, 12.0)),
}
PAIRS = ("kidney", "hip", "gluteus_maximus", "gluteus_medius", "autochthon", "iliopsoas")
CLASSES = ["spleen", "liver", "aorta", *(f"{pair}_{side}" for pair in PAIRS for side in ("left", "right"))]
LEVELS = {  # mean merged Dice of each arm at each evaluation
    "none": (0.45, 0.36, 0.31, 0.34, 0.45, 0.38, 0.31),
    "index": (0.64, 0.52, 0.53, 0.50, 0.64, 0.54, 0.53),
    "index_token": (0.65, 0.54, 0.57, 0.53, 0.65, 0.55, 0.42),
    "mm": (0.66, 0.54, 0.61, 0.58, 0.66, 0.53, 0.30),
    "patient_mm": (0.66, 0.55, 0.61, 0.59, 0.66, 0.54, 0.34),
    "lookup": (0.21, 0.20, 0.21, 0.20, 0.21, 0.18, 0.15),
    "lookup_exact": (0.93, 0.90, 0.88, 0.89, 0.93, 0.60, 0.41),
}
SHAPE = {
    "iso_8": (42, 46),
    "slices_z": (28, 92),
    "slices_x": (84, 31),
    "top_missing": (50, 81),
    "wrong_header": (28, 92),
}
ASPECT = {"slices_z": 3.0, "slices_x": 1 / 3, "wrong_header": 3.0}


def write_study(
    folder: Path,
    *,
    seeds: Sequence[int] = (0, 1),
    arms: Sequence[str] = tuple(ARMS),
    evaluations: Sequence[str] = tuple(EVALUATIONS),
    **changes: Any,
) -> Path:
    """Write the whole study, or some arms and evaluations of it; ``changes`` replace parts of ``plan.json``."""
    plan = make_plan(seeds)
    plan["arms"] = [arm for arm in plan["arms"] if arm["name"] in arms]
    plan["evaluations"] = [entry for entry in plan["evaluations"] if entry["name"] in evaluations]
    plan["comparisons"] = [pair for pair in plan["comparisons"] if set(pair) <= set(arms)]
    plan |= changes
    rows = [row for arm in plan["arms"] for seed in seeds for row in arm_rows(arm, seed)]
    rows += [row for baseline in plan["baselines"] for row in baseline_rows(baseline["name"])]
    rows = [row for row in rows if row["evaluation"] in evaluations]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "config.yaml").write_text("study: synthetic\nseeds: [0, 1]\ntask:\n  name: reacquisition # <made up>\n")
    pd.DataFrame(rows).to_csv(folder / "results.csv", index=False)
    for arm in plan["arms"]:
        for seed in seeds:
            write_run(folder / arm["run_dirs"][str(seed)], arm, seed)
    return folder


def make_plan(seeds: Sequence[int]) -> dict[str, Any]:
    return {
        "study": "synthetic",
        "title": "Positional encodings on made-up numbers <& more>",
        "question": "Does a model that is told places in millimetres label organs better than one told indices?",
        "claim_limits": "Nothing here was measured.",
        "arms": [
            {
                "name": name,
                "title": title,
                "description": f"The {title} arm.",
                "encoding": encoding,
                "frame": frame,
                "spacing_token": token,
                "config_hash": name.encode().hex().ljust(64, "0"),
                "run_dirs": {str(seed): f"arms/{name}/seed_{seed}" for seed in seeds},
            }
            for name, (title, encoding, frame, token) in ARMS.items()
        ],
        "baselines": [
            {"name": "lookup", "title": "image-free lookup, jittered frame", "description": "Label usual at a place."},
            {"name": "lookup_exact", "title": "image-free lookup, exact frame", "description": "By memory alone."},
        ],
        "seeds": list(seeds),
        "evaluations": [
            {"name": name, "title": title, "kind": kind, "spacing_mm": list(spacing), "description": f"About {title}."}
            for name, (title, kind, spacing) in EVALUATIONS.items()
        ],
        "comparisons": [["mm", "index"], ["patient_mm", "index"], ["index_token", "index"], ["mm", "index_token"]],
        "classes": [{"label": n, "name": name, "pair": pair_of(name) or None} for n, name in enumerate(CLASSES, 1)],
        "notes": ["image.nii.gz: axes taken from sform, code 1", "licence CC BY 4.0"],
        "warnings": ["labels.nii.gz: units unknown, mm assumed"],
        "controls": {"same initial weights, seed by seed": "yes (10 runs, 2 seeds)", "same number of parameters": "no"},
        "environment": {
            "git_commit": "0123456789abcdef",
            "versions": {"torch": "2.13.0", "numpy": "2.4.6"},
            "created": "2026-01-02T03:04:05+00:00",
        },
    }


def pair_of(name: str) -> str:
    return name.rpartition("_")[0] if name.endswith(("_left", "_right")) else ""


def arm_rows(arm: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Rows of one run. Confusion is .01 for patient_mm and .4 for the rest, .95 for the rest on the flipped scan."""
    names = {key: arm[key] for key in ("encoding", "frame", "spacing_token", "config_hash")}
    rng = np.random.default_rng([seed, *arm["name"].encode()])
    bias = rng.normal(0, 0.02)
    rows = []
    for evaluation, level in zip(EVALUATIONS, LEVELS[arm["name"]], strict=True):
        confusion = 0.01 if arm["name"] == "patient_mm" else 0.45 if evaluation == "flipped" else 0.4
        run = {"study": "synthetic", "kind": "arm", "arm": arm["name"], **names, "seed": seed}
        rows += _rows(run, evaluation, level + bias + rng.normal(0, 0.012), confusion, rng)
    return rows


def baseline_rows(name: str) -> list[dict[str, Any]]:
    rng = np.random.default_rng([7, *name.encode()])
    run = {"study": "synthetic", "kind": "baseline", "arm": name, "encoding": "", "frame": "patient_mm"}
    run |= {"spacing_token": False, "seed": 0, "config_hash": ""}
    rows = []
    for evaluation, level in zip(EVALUATIONS, LEVELS[name], strict=True):
        rows += _rows(run, evaluation, level, 0.02, rng)
    return rows


def _rows(
    run: dict[str, Any], evaluation: str, level: float, confusion: float, rng: np.random.Generator
) -> list[dict[str, Any]]:
    spacing = EVALUATIONS[evaluation][2]
    place = {f"spacing_{axis}_mm": value for axis, value in zip("ijk", spacing, strict=True)}
    rows = []
    for case in range(2):
        shifts = {structure: rng.normal(0, 0.01) for structure in (*PAIRS, *CLASSES[:3])}
        for n, name in enumerate(CLASSES):
            pair = pair_of(name)
            merged = float(np.clip(level * (1.15 - 0.04 * n / 2) + shifts[pair or name], 0, 1))
            truth, found = 2000 - 100 * n, 1500 - 70 * n
            row = {"truth_voxels": truth, "predicted_voxels": truth, "overlap_voxels": found}
            row |= {"dice": merged * (1 - confusion if pair else 1), "merged_dice": merged}
            row |= {
                "side_voxels": found if pair else None,
                "swapped_voxels": round(found * confusion) if pair else None,
            }
            if evaluation == "top_missing" and name == "spleen":
                row |= {"truth_voxels": 0, "predicted_voxels": 0, "overlap_voxels": 0}
                row |= {"dice": None, "merged_dice": None}
            rows.append({**run, "evaluation": evaluation, "case": case, **place, "class": name, "pair": pair, **row})
    return rows


def write_run(folder: Path, arm: dict[str, Any], seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    steps = np.arange(0, 400, 4)
    loss = 0.6 + 3 * np.exp(-steps / 60) + rng.normal(0, 0.05, len(steps)) - 0.1 * steps / 400
    record = {
        "arm": arm["name"],
        "seed": seed,
        "config_hash": arm["config_hash"],
        "status": "finished",
        "parameters": 330112 + (1792 if arm["spacing_token"] else 0),
        "parameters_position": 1792 if arm["spacing_token"] else 0,
        "steps": 400,
        "train_seconds": 61.5 + seed,
        "evaluate_seconds": 4.6,
        "loss": [[int(step), float(value)] for step, value in zip(steps, loss, strict=True)],
        "warnings": [],
        "failure": None,
        "failure_file": None,
    }
    (folder / "run.json").write_text(json.dumps(record))
    write_examples(folder / "examples.safetensors", 0.1 if arm["name"] == "none" else 0.03, rng)


def fail_run(folder: Path, arm: str, seed: int, failure: str) -> None:
    """Turn one run of a study into a failed one, as the runner leaves it: no results, no examples."""
    run = folder / "arms" / arm / f"seed_{seed}"
    record = {"arm": arm, "seed": seed, "status": "failed", "failure": failure}
    (run / "run.json").write_text(json.dumps({**record, "failure_file": f"arms/{arm}/seed_{seed}/failure.txt"}))
    (run / "examples.safetensors").unlink()
    table = pd.read_csv(folder / "results.csv", keep_default_na=False)
    table[~((table["arm"] == arm) & (table["seed"] == seed))].to_csv(folder / "results.csv", index=False)


def write_examples(path: Path, noise: float, rng: np.random.Generator) -> None:
    tensors, notes = {}, {}
    for name in EVALUATIONS:
        shape, aspect = SHAPE.get(name, (75, 81)), ASPECT.get(name, 1.0)
        truth = _torso(shape, 0.0, rng)
        image = np.where(truth > 0, truth / 15 - 0.2, _body(shape) - 1).astype(np.float32)
        tensors[f"{name}/image"] = image + rng.normal(0, 0.05, shape).astype(np.float32)
        tensors[f"{name}/truth"] = truth
        tensors[f"{name}/prediction"] = _torso(shape, noise, rng)
        notes[f"{name}/aspect"] = repr(aspect)
    save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, path, metadata=notes)


# class index -> centre (column, row) and half axes, in fractions of the slice; column 0 is the patient's right
ORGANS = {
    1: (0.72, 0.15, 0.09, 0.10),
    2: (0.32, 0.16, 0.17, 0.12),
    3: (0.52, 0.32, 0.02, 0.2),
    4: (0.66, 0.38, 0.06, 0.09),
    5: (0.36, 0.38, 0.06, 0.09),
    6: (0.72, 0.72, 0.08, 0.10),
    7: (0.28, 0.72, 0.08, 0.10),
    8: (0.86, 0.85, 0.08, 0.10),
    9: (0.14, 0.85, 0.08, 0.10),
    10: (0.87, 0.67, 0.06, 0.07),
    11: (0.13, 0.67, 0.06, 0.07),
    12: (0.58, 0.55, 0.03, 0.14),
    13: (0.46, 0.55, 0.03, 0.14),
    14: (0.63, 0.66, 0.04, 0.10),
    15: (0.40, 0.66, 0.04, 0.10),
}


def _fractions(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    return (columns + 0.5) / shape[1], (rows + 0.5) / shape[0]


def _body(shape: tuple[int, int]) -> np.ndarray:
    x, y = _fractions(shape)
    return (np.abs((x - 0.5) / 0.48) ** 4 + np.abs((y - 0.5) / 0.6) ** 4 < 1) * 0.5


def _torso(shape: tuple[int, int], noise: float, rng: np.random.Generator) -> np.ndarray:
    x, y = _fractions(shape)
    labels = np.zeros(shape, np.uint8)
    for label, (cx, cy, rx, ry) in ORGANS.items():
        dx, dy = rng.normal(0, noise, 2)
        labels[((x - cx - dx) / rx) ** 2 + ((y - cy - dy) / ry) ** 2 < 1] = label
    return labels
