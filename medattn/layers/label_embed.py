"""Tokens of volumes whose voxels are categories: labels, or codes of a vector quantizer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medattn.geometry.grid import Triple, VoxelGrid, as_triple
from medattn.layers.patch_embed import PatchEmbedding, pad_to_patches, to_patches


class LabelEmbed(PatchEmbedding):
    """Table rows by label: what a linear patch embedding without bias makes of the one-hot volume, never built.

    With patches of one voxel a token is row ``label`` of the table; with larger ones each place in the patch has a
    table of its own, and a token is the sum of its voxels' rows. At the start the rows are normal with variance
    1 / (voxels of a patch).

    Args:
        num_labels: labels 0 to num_labels - 1.
        dim: token width.
        patch_size: voxels per patch, one integer or three.
    """

    def __init__(self, num_labels: int, dim: int, patch_size: int | Sequence[int] = 1) -> None:
        super().__init__()
        if isinstance(num_labels, bool) or not isinstance(num_labels, int) or num_labels < 1:
            raise ValueError(f"num_labels must be a positive integer, got {num_labels!r}")
        self.patch_size = as_triple(patch_size, "patch_size", minimum=1)
        self.num_labels, self.in_channels, self.dim = num_labels, 1, dim
        voxels = math.prod(self.patch_size)
        self.table = nn.Parameter(torch.randn(voxels, num_labels, dim) / math.sqrt(voxels))

    def patch_size_on(self, grid: VoxelGrid) -> Triple:
        return self.patch_size

    def blank(self, grid: VoxelGrid) -> Tensor:
        return torch.zeros(1, *grid.shape, dtype=torch.long, device=self.table.device)

    def forward(self, volume: Tensor, grid: VoxelGrid | None = None) -> Tensor:
        """Integers (B, I, J, K) or (B, 1, I, J, K) of any size -> (B, N, dim), edges continued to whole patches.

        Raises:
            ValueError: for another shape, or a label that has no row; the error names it.
            TypeError: if the labels are not integers.
        """
        labels = self._checked(volume)
        patches = to_patches(pad_to_patches(labels, self.patch_size), self.patch_size)
        rows = patches + self.num_labels * torch.arange(patches.shape[-1], device=patches.device)
        summed = F.embedding_bag(rows.flatten(0, 1), self.table.flatten(0, 1), mode="sum")
        return summed.unflatten(0, rows.shape[:2])

    def _checked(self, volume: Tensor) -> Tensor:
        if volume.ndim not in (4, 5) or (volume.ndim == 5 and volume.shape[1] != 1):
            raise ValueError(f"labels must be (B, I, J, K) or (B, 1, I, J, K), got {tuple(volume.shape)}")
        if volume.is_floating_point() or volume.is_complex() or volume.dtype == torch.bool:
            raise TypeError(f"labels must be integers, got {volume.dtype}")
        labels = volume.long()
        known = (labels >= 0) & (labels < self.num_labels)
        if torch.compiler.is_compiling():
            torch._assert_async(known.all(), f"labels must be between 0 and {self.num_labels - 1}")
        elif not bool(known.all()):
            wrong = labels[~known].unique().tolist()
            raise ValueError(
                f"labels must be between 0 and {self.num_labels - 1}, got {', '.join(map(str, wrong[:5]))}"
            )
        return labels[:, None] if labels.ndim == 4 else labels
