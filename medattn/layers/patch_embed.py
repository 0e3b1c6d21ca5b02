"""Patches to tokens and back."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medattn.geometry.grid import Triple, VoxelGrid, as_triple


def pad_to_patches(volume: Tensor, patch_size: Triple) -> Tensor:
    """Continue ``volume`` (B, C, I, J, K) with its edge values until each axis is a multiple of the patch."""
    after = [-n % p for n, p in zip(volume.shape[-3:], patch_size, strict=True)]
    if not any(after):
        return volume
    if volume.is_floating_point():
        return F.pad(volume, (0, after[2], 0, after[1], 0, after[0]), mode="replicate")
    for axis, count in zip((-3, -2, -1), after, strict=True):  # that mode takes no integers
        edge = volume.narrow(axis, -1, 1)
        volume = torch.cat([volume, *[edge] * count], dim=axis)
    return volume


def to_patches(volume: Tensor, patch_size: Triple) -> Tensor:
    """(B, C, I, J, K) -> (B, N, C p0 p1 p2): tokens in raster order, voxels of a patch in (c, i, j, k) order."""
    (b, c, i, j, k), (p, q, r) = volume.shape, patch_size
    blocks = volume.reshape(b, c, i // p, p, j // q, q, k // r, r)
    return blocks.permute(0, 2, 4, 6, 1, 3, 5, 7).reshape(b, -1, c * p * q * r)


def from_patches(patches: Tensor, token_shape: Triple, patch_size: Triple) -> Tensor:
    """The inverse of ``to_patches``: (B, N, C p0 p1 p2) -> (B, C, I, J, K)."""
    (i, j, k), (p, q, r) = token_shape, patch_size
    blocks = patches.reshape(patches.shape[0], i, j, k, -1, p, q, r)
    return blocks.permute(0, 4, 1, 5, 2, 6, 3, 7).reshape(patches.shape[0], -1, i * p, j * q, k * r)


class PatchEmbedding(nn.Module):
    """What makes tokens of volumes: a vector for each patch of a size that may depend on the volume's grid.

    Attributes:
        dim: token width.
        in_channels: C of the volumes.
    """

    dim: int
    in_channels: int

    @abstractmethod
    def patch_size_on(self, grid: VoxelGrid) -> Triple:
        """Voxels per patch of a volume on ``grid``."""

    def batch_key(self, grid: VoxelGrid) -> Hashable:
        """Volumes of one shape whose grids have equal keys can be embedded in one call."""
        return None

    def macs(self, grid: VoxelGrid) -> int:
        """Multiply-accumulates for one volume on ``grid``."""
        return 0

    def blank(self, grid: VoxelGrid) -> Tensor:
        """A volume (C, I, J, K) of zeros that it takes."""
        weight = next(self.parameters())
        return weight.new_zeros(self.in_channels, *grid.shape)

    @abstractmethod
    def forward(self, volume: Tensor, grid: VoxelGrid | None = None) -> Tensor:
        """(B, C, I, J, K) of any size, all on grids like ``grid`` -> (B, N, dim), tokens in raster order."""


def check_volume(volume: Tensor, in_channels: int, weight: Tensor) -> None:
    """Raises a ValueError for another shape than (B, C, I, J, K), a TypeError for a dtype that does not fit."""
    if volume.ndim != 5 or volume.shape[1] != in_channels:
        raise ValueError(f"volume must be (B, {in_channels}, I, J, K), got {tuple(volume.shape)}")
    if volume.dtype != weight.dtype and not torch.is_autocast_enabled(volume.device.type):
        raise TypeError(f"volume must be {weight.dtype} like the model's weights, got {volume.dtype}")


class PatchEmbed(PatchEmbedding):
    """Linear embedding of non-overlapping voxel patches (the same map as a strided convolution).

    Args:
        in_channels: C of the volume.
        dim: token width.
        patch_size: voxels per patch, one integer or three.
    """

    def __init__(self, in_channels: int, dim: int, patch_size: int | Sequence[int]) -> None:
        super().__init__()
        self.patch_size = as_triple(patch_size, "patch_size", minimum=1)
        self.in_channels, self.dim = in_channels, dim
        self.projection = nn.Linear(in_channels * self.patch_size[0] * self.patch_size[1] * self.patch_size[2], dim)

    def patch_size_on(self, grid: VoxelGrid) -> Triple:
        return self.patch_size

    def macs(self, grid: VoxelGrid) -> int:
        return math.prod(grid.patch_grid(self.patch_size).shape) * self.projection.weight.numel()

    def forward(self, volume: Tensor, grid: VoxelGrid | None = None) -> Tensor:
        """(B, C, I, J, K) of any size -> (B, N, dim), N = ceil(I/p0) ceil(J/p1) ceil(K/p2)."""
        check_volume(volume, self.in_channels, self.projection.weight)
        tokens: Tensor = self.projection(to_patches(pad_to_patches(volume, self.patch_size), self.patch_size))
        return tokens
