"""How a study was made, in sentences for the report, all from its config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def describe_design(settings: Mapping[str, Any]) -> list[str]:
    """What was trained on what, what was disturbed, and what makes the arms comparable."""
    task, train, evaluation = settings["task"], settings["train"], settings["evaluation"]
    options = settings["encoding"]["options"]
    name, jitter = settings["data"]["name"], task["jitter_shift_mm"]
    sentences = [
        f"The subject ({name}) was acquired on {task['grids']} training grids: isotropic {_range(task['range_mm'])} "
        f"mm with {_range(task['held_out_mm'])} held out, {task['stretched_fraction']:.0%} of them with one random "
        f"axis stretched up to {task['max_stretch']:g} times.",
        f"Each run trained {train['steps']} steps of {train['batch_size']} crops of {task['crop']} voxels a side, "
        "whose coordinates lie in the whole volume's frame. The last weights were evaluated; nothing was selected.",
        f"Array axis 0 was flipped with probability {task['flip_probability']:g} (the affine follows), noise of up to "
        f"{task['noise_sd_hu']:g} HU was added and contrast changed by up to {task['contrast']:.0%}.",
        f"In training and evaluation the frame's origin was moved by up to {jitter:g} mm along each axis and the told "
        f"spacing changed by up to {task['jitter_scale']:.0%}: one subject in one frame would be an atlas.",
        f"Each evaluation has {evaluation['cases']} cases, which differ in noise, contrast and jitter and are the same "
        "for every arm and seed.",
    ]
    if "reference_spacing_mm" in options:
        sentences.append(
            f"Index and mm arms are calibrated: on a grid of {options['reference_spacing_mm']} mm they compute the "
            f"same function from the same parameters (wavelengths {_range(options.get('wavelengths_mm', []))} mm)."
        )
    return sentences


def _range(values: Any) -> str:
    return " to ".join(f"{value:g}" for value in values)
