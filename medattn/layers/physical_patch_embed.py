"""Patches of a size in millimetres: one kernel, resized to the spacing of each scan."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medattn.geometry.grid import Triple, VoxelGrid, as_spacing_mm
from medattn.layers.patch_embed import PatchEmbedding, check_volume, pad_to_patches, to_patches

SAME_SPACING = 1e-6
"""Spacings that differ by less than this fraction are the same: they come from the affine, with its rounding."""


def upsampling_matrix(nodes: int, samples: int, step: float) -> Tensor:
    """(samples, nodes) float64: linear interpolation of values at ``nodes`` places one unit apart.

    The samples are ``step`` units apart, and have the same middle; one beyond the outermost node takes its value.
    """
    places = (torch.arange(samples, dtype=torch.float64) - (samples - 1) / 2) * step + (nodes - 1) / 2
    distance = places.clamp(0, nodes - 1)[:, None] - torch.arange(nodes, dtype=torch.float64)
    return (1 - distance.abs()).clamp(min=0)


class PhysicalPatchEmbed(PatchEmbedding):
    """Linear embedding of patches of ``patch_mm``, whose kernel is resized to the spacing of the scan.

    The kernel w lives on voxels of ``reference_spacing_mm``. A scan of another spacing has round(patch_mm / spacing)
    voxels a patch, at least 1. If B samples a patch of the reference at that scan's voxels (linearly, along each
    axis), the kernel there is (B^T)^+ w: then <(B^T)^+ w, B x> = <w, x> for finer scans, so content that is the
    same in mm gives the same token; for coarser ones it is the nearest kernel (FlexiViT, Beyer et al. 2023,
    arXiv:2212.08013). At the reference spacing it is w itself, a plain ``PatchEmbed``.

    Args:
        in_channels: C of the volume.
        dim: token width.
        patch_mm: edge of a patch along each array axis, one number or three; a whole number of reference voxels.
        reference_spacing_mm: one number or three.
    """

    def __init__(self, in_channels: int, dim: int, patch_mm: Any, reference_spacing_mm: Any) -> None:
        super().__init__()
        self.patch_mm = as_spacing_mm(patch_mm, "patch_mm")
        self.reference_spacing_mm = as_spacing_mm(reference_spacing_mm, "reference_spacing_mm")
        counts = [p / s for p, s in zip(self.patch_mm, self.reference_spacing_mm, strict=True)]
        if any(round(n) < 1 or abs(n - round(n)) > 1e-3 for n in counts):
            raise ValueError(
                "patch_mm must be a whole number of reference voxels on each axis, "
                f"got patch_mm={self.patch_mm} and reference_spacing_mm={self.reference_spacing_mm}"
            )
        self.reference_patch: Triple = (round(counts[0]), round(counts[1]), round(counts[2]))
        self.in_channels, self.dim = in_channels, dim
        self.projection = nn.Linear(in_channels * math.prod(self.reference_patch), dim)

    def patch_size_on(self, grid: VoxelGrid) -> Triple:
        """round(patch_mm / spacing), at least 1, along each array axis; a half rounds up."""
        sizes = [p / s for p, s in zip(self.patch_mm, grid.spacing_mm.tolist(), strict=True)]
        i, j, k = (max(1, math.floor(n + 0.5 + SAME_SPACING)) for n in sizes)
        return i, j, k

    def batch_key(self, grid: VoxelGrid) -> Hashable:
        return self.patch_size_on(grid), self._steps(grid)

    def _steps(self, grid: VoxelGrid) -> tuple[float, ...]:
        """Spacing in reference voxels, exactly 1 if it is the reference."""
        steps = [s / r for s, r in zip(grid.spacing_mm.tolist(), self.reference_spacing_mm, strict=True)]
        return tuple(1.0 if abs(step - 1) < SAME_SPACING else step for step in steps)

    def kernel_on(self, grid: VoxelGrid) -> Tensor:
        """(dim, C p0 p1 p2): the kernel for patches of ``patch_size_on(grid)``."""
        size, steps = self.patch_size_on(grid), self._steps(grid)
        weight = self.projection.weight.unflatten(1, (self.in_channels, *self.reference_patch))
        for axis, (nodes, samples, step) in enumerate(zip(self.reference_patch, size, steps, strict=True)):
            if samples == nodes and step == 1:
                continue
            resize = torch.linalg.pinv(upsampling_matrix(nodes, samples, step).mT)
            weight = torch.tensordot(weight, resize.to(weight.device, weight.dtype), dims=([axis + 2], [1]))
            weight = weight.movedim(-1, axis + 2)
        return weight.flatten(1)

    def macs(self, grid: VoxelGrid) -> int:
        """Of the resized kernel with the patches, and of resizing it."""
        size = self.patch_size_on(grid)
        macs = math.prod(grid.patch_grid(size).shape) * self.dim * self.in_channels * math.prod(size)
        done: list[int] = list(self.reference_patch)
        for axis, (nodes, samples, step) in enumerate(zip(self.reference_patch, size, self._steps(grid), strict=True)):
            if samples != nodes or step != 1:
                macs += self.dim * self.in_channels * math.prod(done) * samples
                done[axis] = samples
        return macs

    def forward(self, volume: Tensor, grid: VoxelGrid | None = None) -> Tensor:
        """(B, C, I, J, K), all on grids of the spacing of ``grid`` -> (B, N, dim).

        Raises:
            ValueError: for another shape, or without a grid.
            TypeError: for another dtype than the weights'.
        """
        check_volume(volume, self.in_channels, self.projection.weight)
        if grid is None:
            raise ValueError("a patch embedding in mm needs the grid of the volume, got None")
        size = self.patch_size_on(grid)
        patches = to_patches(pad_to_patches(volume, size), size)
        return F.linear(patches, self.kernel_on(grid), self.projection.bias)
