"""From plain config values to subjects, data and models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from medattn.coordinates import CoordinateJitter
from medattn.encoder import VolumeEncoder
from medattn.encodings import create_encoding
from medattn.geometry.grid import as_spacing_mm
from medattn.models import SegmentationModel
from medattn.phantoms import TORSO_LABELS, torso_grid, torso_scene
from medattn.tasks.acquisitions import Acquisition, ToldScan, acquire, acquire_cached, training_spacings
from medattn.tasks.sampling import Appearance, CropSampler
from medattn.tasks.subject import Scan, SceneSubject, Subject, VolumeSubject
from medattn.volumes import fetch, load_volume
from medattn.volumes.datasets.manifest import cache_dir

Config = dict[str, Any]
FETCH = "fetch:"


def build_subject(data: Config) -> tuple[Subject, list[str]]:
    """The subject that ``data`` describes, and notes on where it comes from and what its reader assumed.

    Raises:
        ValueError: for an unknown kind, or missing paths.
    """
    if data["kind"] == "phantom":
        classes = data["classes"] or TORSO_LABELS
        unknown = sorted(set(classes) - set(TORSO_LABELS))
        if unknown:
            raise ValueError(f"data.classes: the torso has no {', '.join(unknown)}; it has {', '.join(TORSO_LABELS)}")
        scene = torso_scene(data["phantom_seed"])
        labels = {name: TORSO_LABELS[name] for name in classes}
        return SceneSubject(scene, torso_grid(), labels), [f"analytic torso, seed {data['phantom_seed']}"]
    if data["kind"] != "files":
        raise ValueError(f"data.kind must be files or phantom, got {data['kind']!r}")
    image = load_volume(_path("data.image", data["image"]))
    labels_volume = load_volume(_path("data.labels", data["labels"]), labels=True)
    notes = [f"{Path(v.name).name}: {note.message}" for v in (image, labels_volume) for note in v.notes]
    for role, volume in (("image", image), ("labels", labels_volume)):
        grid = volume.grid
        shape, spacing = (" x ".join(f"{n:g}" for n in values) for values in (grid.shape, grid.spacing_mm.tolist()))
        notes.append(f"{role} {Path(volume.name).name}: {shape} voxels of {spacing} mm, axes {''.join(grid.axcodes)}")
    return VolumeSubject(image, labels_volume, data["classes"], profile=data["profile"]), notes


def _path(field: str, value: str | None) -> Path:
    if not value:
        raise ValueError(f"{field} must be a path or {FETCH}NAME for data.kind=files, got {value!r}")
    return fetch(value.removeprefix(FETCH)) if value.startswith(FETCH) else Path(value)


@dataclass(frozen=True, eq=False)
class StudyData:
    """Every acquisition of a study, in the order of its config."""

    training: list[Scan]
    evaluation: dict[str, ToldScan]
    class_names: tuple[str, ...]


def build_acquisitions(evaluation: Config) -> list[Acquisition]:
    """The evaluation acquisitions of a config."""
    acquisitions = []
    for name, item in evaluation["acquisitions"].items():
        order = item["header_order"]
        acquisitions.append(
            Acquisition(
                name,
                as_spacing_mm(item["spacing_mm"], f"evaluation.acquisitions.{name}.spacing_mm"),
                flip_axis=item["flip_axis"],
                drop_superior=item["drop_superior"],
                header_order=None if order is None else tuple(order),
            )
        )
    return acquisitions


def build_data(
    subject: Subject, config: Config, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> StudyData:
    """Acquire ``subject`` on all training and evaluation grids, or read what was acquired before from the cache."""
    task, cache = config["task"], cache_dir() / "acquisitions"
    spacings = training_spacings(
        task["grids"],
        seed=task["grid_seed"],
        range_mm=task["range_mm"],
        held_out_mm=task["held_out_mm"],
        stretched_fraction=task["stretched_fraction"],
        max_stretch=task["max_stretch"],
    )
    acquisitions = build_acquisitions(config["evaluation"])
    total = len(spacings) + len(acquisitions)
    training: list[Scan] = []
    for spacing in spacings:
        training.append(acquire_cached(subject, subject.grid.resampled(spacing), cache))
        on_progress(len(training), total)
    evaluation: dict[str, ToldScan] = {}
    for acquisition in acquisitions:
        evaluation[acquisition.name] = acquire(subject, acquisition, cache)
        on_progress(len(training) + len(evaluation), total)
    return StudyData(training, evaluation, subject.class_names)


def build_jitter(task: Config) -> CoordinateJitter:
    return CoordinateJitter(shift_mm=task["jitter_shift_mm"], scale=task["jitter_scale"])


def build_appearance(task: Config) -> Appearance:
    low, high = task["window_hu"]
    return Appearance((low, high), noise_sd_hu=task["noise_sd_hu"], contrast=task["contrast"])


def build_sampler(task: Config) -> CropSampler:
    return CropSampler(
        build_appearance(task),
        build_jitter(task),
        crop=task["crop"],
        foreground=task["foreground"],
        flip_probability=task["flip_probability"],
    )


def build_model(config: Config, num_classes: int, seed: int) -> SegmentationModel:
    """The model of an arm. Parts that arms share get the same initial weights for the same seed."""
    model = config["model"]
    torch.manual_seed(seed)
    encoding = create_encoding(
        config["encoding"]["name"],
        dim=model["dim"],
        num_heads=model["num_heads"],
        frame=config["frame"]["name"],
        **config["encoding"]["options"],
    )
    encoder = VolumeEncoder(
        encoding,
        patch_size=model["patch_size"],
        depth=model["depth"],
        ffn_ratio=model["ffn_ratio"],
        spacing_token=config["spacing_token"],
        reference_spacing_mm=model["reference_spacing_mm"],
        dropout=model["dropout"],
        attention_dropout=model["attention_dropout"],
    )
    return SegmentationModel(encoder, num_classes)
