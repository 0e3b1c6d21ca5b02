"""A voxel-labelling model: encoder plus a linear head per patch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from medattn.encoder import VolumeEncoder, Volumes
from medattn.geometry.grid import VoxelGrid
from medattn.layers.patch_embed import from_patches


class SegmentationModel(nn.Module):
    """Each token is mapped linearly to the class scores of its patch's voxels.

    Args:
        encoder: any ``VolumeEncoder``.
        num_classes: classes, the background included.
    """

    def __init__(self, encoder: VolumeEncoder, num_classes: int) -> None:
        super().__init__()
        if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 2:
            raise ValueError(f"num_classes must be an integer >= 2, got {num_classes!r}")
        self.encoder, self.num_classes = encoder, num_classes
        voxels = encoder.patch_size[0] * encoder.patch_size[1] * encoder.patch_size[2]
        self.head = nn.Linear(encoder.dim, num_classes * voxels)

    def forward(
        self,
        volumes: Volumes,
        grids: Sequence[VoxelGrid],
        *,
        references: Sequence[VoxelGrid] | None = None,
        origins_mm: Sequence[Any] | None = None,
    ) -> list[Tensor]:
        """Class scores of each volume, a list of (num_classes, I, J, K); arguments as for ``VolumeEncoder``."""
        encoded = self.encoder(volumes, grids, references=references, origins_mm=origins_mm)
        scores = self.head(encoded.tokens).unbind()  # not indexed one by one: each index's gradient fills a whole batch
        return [self._decode(*sample) for sample in zip(scores, encoded.grids, grids, strict=True)]

    def _decode(self, scores: Tensor, tokens: VoxelGrid, grid: VoxelGrid) -> Tensor:
        """(N, classes x patch voxels) of one sample -> (classes, I, J, K) without what was padding."""
        (i, j, k), (x, y, z) = tokens.shape, grid.shape
        own = scores if len(scores) == i * j * k else scores[: i * j * k]
        return from_patches(own[None], tokens.shape, self.encoder.patch_size).squeeze(0)[:, :x, :y, :z]
