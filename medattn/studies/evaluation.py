"""Evaluating one run: rows of the results table, and the slices that the report shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from medattn.coordinates import CoordinateJitter
from medattn.geometry import VoxelGrid
from medattn.models import SegmentationModel, predict_probabilities
from medattn.studies.build import Config, StudyData, build_appearance, build_jitter
from medattn.studies.plan import Run
from medattn.tasks.acquisitions import ToldScan
from medattn.tasks.lookup import PositionLookup
from medattn.tasks.sampling import Example, evaluation_case
from medattn.tasks.scores import score_classes

LOOKUP_BALANCE = 0.5  # see PositionLookup
Row = dict[str, Any]
Slices = dict[str, Tensor]


def evaluate(
    model: SegmentationModel, data: StudyData, run: Run, study: str, on_case: Callable[[], None]
) -> tuple[list[Row], Slices, dict[str, str]]:
    """(rows, slices of case 0, aspect ratios) over all acquisitions and cases; the last weights, no selection."""
    model.eval()
    evaluation, names = run.config["evaluation"], arm_columns(run, study)
    rows: list[Row] = []
    slices: Slices = {}
    aspects: dict[str, str] = {}
    for name, told in data.evaluation.items():
        for case, example in enumerate(_cases(told, run.config, name, build_jitter(run.config["task"]))):
            probabilities = predict_probabilities(
                model,
                example.image,
                example.told,
                window=evaluation["window"],
                stride=evaluation["stride"],
                origin_mm=example.origin_mm,
            )
            rows += case_rows(names, name, case, told, probabilities, data.class_names)
            if case == 0:
                slices |= _slices(name, example, probabilities, told.scan.grid)
                aspects[f"{name}/aspect"] = _aspect(told.scan.grid)
            on_case()
    return rows, slices, aspects


def _cases(told: ToldScan, config: Config, name: str, jitter: CoordinateJitter) -> list[Example]:
    evaluation, appearance = config["evaluation"], build_appearance(config["task"])
    return [evaluation_case(told, appearance, jitter, evaluation["seed"], name, c) for c in range(evaluation["cases"])]


def arm_columns(run: Run, study: str) -> Row:
    return {
        "study": study,
        "kind": "arm",
        "arm": run.arm,
        "encoding": run.config["encoding"]["name"],
        "frame": run.config["frame"]["name"],
        "spacing_token": run.config["spacing_token"],
        "seed": run.seed,
        "config_hash": run.identity,
    }


def case_rows(
    names: Row, evaluation: str, case: int, told: ToldScan, probabilities: Tensor, class_names: tuple[str, ...]
) -> list[Row]:
    """One row per class. The spacing is the true one, whatever the header says."""
    spacing = told.scan.grid.spacing_mm.tolist()
    place = {"evaluation": evaluation, "case": case}
    place |= {f"spacing_{axis}_mm": round(value, 6) for axis, value in zip("ijk", spacing, strict=True)}
    rows = []
    for score in score_classes(told.scan.labels[0], probabilities, class_names):
        values = asdict(score)
        rows.append({**names, **place, "class": values.pop("name"), **values})
    return rows


def lookup_rows(data: StudyData, config: Config, study: str) -> list[Row]:
    """Rows of the image-free baselines: with the frame jittered as it was for the arms, and with the exact frame."""
    rows: list[Row] = []
    kinds = {"lookup": (build_jitter(config["task"]), LOOKUP_BALANCE), "lookup_exact": (CoordinateJitter(), 0.0)}
    for name, (jitter, balance) in kinds.items():
        atlas = PositionLookup(
            data.training,
            len(data.class_names) + 1,
            jitter,
            draws=config["evaluation"]["lookup_draws"],
            balance=balance,
        )
        arm = {"study": study, "kind": "baseline", "arm": name, "encoding": "", "frame": "patient_mm"}
        names = {**arm, "spacing_token": False, "seed": 0, "config_hash": ""}
        for evaluation, told in data.evaluation.items():
            for case, example in enumerate(_cases(told, config, evaluation, jitter)):
                votes = atlas.predict(example.told, example.origin_mm)
                rows += case_rows(names, evaluation, case, told, votes, data.class_names)
    return rows


def _slices(name: str, example: Example, probabilities: Tensor, grid: VoxelGrid) -> Slices:
    """Middle coronal slice of image, truth and prediction for display: superior up, the patient's right at the left."""
    axes, flips = grid.orientation_to("LAI")

    def coronal(volume: Tensor) -> Tensor:
        ordered = volume[0].permute(axes).flip(flips) if flips else volume[0].permute(axes)
        return ordered[:, ordered.shape[1] // 2].T.contiguous()

    return {
        f"{name}/image": coronal(example.image).float(),
        f"{name}/truth": coronal(example.labels).to(torch.uint8),
        f"{name}/prediction": coronal(probabilities.argmax(0, keepdim=True)).to(torch.uint8),
    }


def _aspect(grid: VoxelGrid) -> str:
    """Height over width of a displayed pixel."""
    spacing = grid.reoriented("LAI").spacing_mm.tolist()
    return repr(spacing[2] / spacing[0])
