"""Voxels that are not finite, as some scanners and resamplers write outside of the field of view."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from medattn.geometry.grid import Triple
from medattn.layers.patch_embed import pad_to_patches, to_patches


class FiniteVolume(NamedTuple):
    """``volume`` with 0 where not finite, which tokens (B, N) had a finite voxel, and how many voxels (B,) not."""

    volume: Tensor
    seen: Tensor
    nonfinite: Tensor


def finite_volume(volume: Tensor, patch_size: Triple) -> FiniteVolume | None:
    """What remains of ``volume`` (B, C, I, J, K) without the voxels that are not finite; None if all are.

    A compiled graph may not branch on values, so there nothing is None that could have been otherwise. Elsewhere one
    sum, which is not finite if a voxel is not, settles the usual case.
    """
    if not volume.is_floating_point():
        return None
    if not torch.compiler.is_compiling() and bool(volume.detach().sum().isfinite()):
        return None
    finite = volume.isfinite()
    seen = to_patches(pad_to_patches(finite, patch_size), patch_size).any(-1)
    return FiniteVolume(torch.where(finite, volume, 0.0), seen, (~finite).flatten(1).sum(1))
