"""Patches to tokens and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medattn.geometry.grid import Triple, as_triple


def pad_to_patches(volume: Tensor, patch_size: Triple) -> Tensor:
    """Continue ``volume`` (B, C, I, J, K) with its edge values until each axis is a multiple of the patch."""
    after = [-n % p for n, p in zip(volume.shape[-3:], patch_size, strict=True)]
    if not any(after):
        return volume
    return F.pad(volume, (0, after[2], 0, after[1], 0, after[0]), mode="replicate")


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


class PatchEmbed(nn.Module):
    """Linear embedding of non-overlapping voxel patches (the same map as a strided convolution).

    Args:
        in_channels: C of the volume.
        dim: token width.
        patch_size: voxels per patch, one integer or three.
    """

    def __init__(self, in_channels: int, dim: int, patch_size: int | Sequence[int]) -> None:
        super().__init__()
        self.patch_size = as_triple(patch_size, "patch_size", minimum=1)
        self.in_channels = in_channels
        self.projection = nn.Linear(in_channels * self.patch_size[0] * self.patch_size[1] * self.patch_size[2], dim)

    def forward(self, volume: Tensor) -> Tensor:
        """(B, C, I, J, K) of any size -> (B, N, dim), N = ceil(I/p0) ceil(J/p1) ceil(K/p2)."""
        if volume.ndim != 5 or volume.shape[1] != self.in_channels:
            raise ValueError(f"volume must be (B, {self.in_channels}, I, J, K), got {tuple(volume.shape)}")
        wanted = self.projection.weight.dtype
        if volume.dtype != wanted and not torch.is_autocast_enabled(volume.device.type):
            raise TypeError(f"volume must be {wanted} like the model's weights, got {volume.dtype}")
        tokens: Tensor = self.projection(to_patches(pad_to_patches(volume, self.patch_size), self.patch_size))
        return tokens
