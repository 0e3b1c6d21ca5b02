"""The way back: whatever was predicted on a processed grid, on the grid that the file has."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from medattn.geometry import VoxelGrid, resample, resample_labels
from medattn.geometry.resample import field_of_view
from medattn.geometry.separable import alignment
from medattn.volumes.volume import Volume, check_is_volume

_ROUNDING_SLACK = 0.26
"""A grid made by ``VoxelGrid.resampled`` ends up to this many of its voxels short of the original."""


def to_original(prediction: Volume | Tensor, volume: Volume, *, outside: float = 0) -> Volume:
    """``prediction`` on the grid of the file that ``volume`` came from (``volume.source_grid``).

    Undoes cropping, padding, flips, permutations and resampling, in any order and number: the grids alone say what has
    to be done. Voxels are moved where that is enough. Otherwise integers are taken for labels (each voxel gets the
    label that fills most of it) and real numbers for probabilities (linear, averaged where the file is coarser).

    Args:
        prediction: a Volume, or a tensor (C, I, J, K) on ``volume.grid``.
        volume: the volume as it was read, or anything that its methods made of it.
        outside: value where the prediction has no field of view, such as what a crop cut off.

    Returns:
        Volume of the prediction's type on ``volume.source_grid``, with the volume's name, notes and metadata.

    Raises:
        ValueError: if a tensor does not have the shape of ``volume.grid``, or ``prediction`` lies wholly outside.
        TypeError: if ``volume`` is no Volume, or ``prediction`` neither a Volume nor a tensor.
    """
    check_is_volume(volume)
    if isinstance(prediction, Tensor):
        prediction = replace(volume, data=prediction)
    check_is_volume(prediction, "prediction")
    source, target = prediction.grid, volume.source_grid
    data = _moved(prediction, source, target)
    inside = field_of_view(source, target, slack=_ROUNDING_SLACK).to(data.device)
    return replace(volume, data=data.masked_fill(~inside, outside), grid=target)


def _moved(prediction: Volume, source: VoxelGrid, target: VoxelGrid) -> Tensor:
    if _whole_voxels(source, target):
        return resample(prediction.data, source, target, mode="nearest")
    return (resample_labels if prediction.is_label_map else resample)(prediction.data, source, target)


def _whole_voxels(source: VoxelGrid, target: VoxelGrid) -> bool:
    """True if the voxels of both grids coincide wherever they overlap (to 1e-3 voxel)."""
    along = alignment(source, target)
    if along is None:
        return False
    steps = torch.tensor([abs(s) - 1 for s in along.scale]) * torch.tensor(target.shape)
    starts = torch.tensor(along.offset, dtype=torch.float64)
    return bool((steps.abs() < 1e-3).all() and ((starts - starts.round()).abs() < 1e-3).all())
