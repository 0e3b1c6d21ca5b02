"""Scores of a labelling, from class probabilities: Dice, Dice with sides merged, left/right confusion.

Sides are merged before the label is chosen: a voxel whose probability is split evenly between left and right kidney is
a kidney, not background. Merging chosen labels instead would punish an arm that cannot tell sides for a structure that
it found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from medattn.tasks.subject import paired_classes


@dataclass(frozen=True)
class ClassScore:
    """Scores of one class in one case. Dice is NaN where the truth has no such structure.

    Attributes:
        pair: the structure that this is one side of, or "".
        predicted_voxels, overlap_voxels: of the most probable class.
        merged_dice: Dice of left and right taken as one structure before the label is chosen.
        side_voxels: true voxels of this class whose most probable structure is right; None without a side.
        swapped_voxels: those of them whose more probable side is wrong.
    """

    name: str
    pair: str
    truth_voxels: int
    predicted_voxels: int
    overlap_voxels: int
    dice: float
    merged_dice: float
    side_voxels: int | None = None
    swapped_voxels: int | None = None


def dice(truth: Tensor, prediction: Tensor) -> float:
    """2 |A and B| / (|A| + |B|) of two boolean masks; NaN if the truth is empty: an absent structure has no Dice."""
    if not bool(truth.any()):
        return math.nan
    return 2 * int((truth & prediction).sum()) / (int(truth.sum()) + int(prediction.sum()))


def merge_sides(probabilities: Tensor, class_names: tuple[str, ...]) -> Tensor:
    """Add each pair's two probabilities (classes, ...) at its left index, leaving 0 at its right."""
    merged = probabilities.clone()
    for left, right in paired_classes(class_names).values():
        merged[left] += merged[right]
        merged[right] = 0
    return merged


def score_classes(truth: Tensor, probabilities: Tensor, class_names: tuple[str, ...]) -> list[ClassScore]:
    """Scores of every class (index 1, 2, ... = ``class_names``); background is 0 and not scored.

    Args:
        truth: (I, J, K) class indices.
        probabilities: (classes + 1, I, J, K); any positive scale will do.
    """
    if probabilities.shape != (len(class_names) + 1, *truth.shape):
        wanted = (len(class_names) + 1, *truth.shape)
        raise ValueError(f"probabilities must be {wanted} for this truth, got {tuple(probabilities.shape)}")
    chosen, structure = probabilities.argmax(0), merge_sides(probabilities, class_names).argmax(0)
    sides = {n: (name, pair) for name, pair in paired_classes(class_names).items() for n in pair}
    scores = []
    for n, name in enumerate(class_names, start=1):
        own, found = truth == n, chosen == n
        pair_name, pair = sides.get(n, ("", (n, n)))
        in_structure = structure == pair[0]
        merged = dice(torch.isin(truth, torch.tensor(pair)), in_structure)
        sided = _sided(own & in_structure, probabilities, n, sum(pair) - n) if pair_name else ()
        voxels = (int(own.sum()), int(found.sum()), int((own & found).sum()))
        scores.append(ClassScore(name, pair_name, *voxels, dice(own, found), merged, *sided))
    return scores


def _sided(seen: Tensor, probabilities: Tensor, own: int, other: int) -> tuple[int, int]:
    """(voxels whose structure was found, those of them given the other side)."""
    return int(seen.sum()), int((seen & (probabilities[other] > probabilities[own])).sum())
