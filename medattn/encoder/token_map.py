"""What the encoder takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from medattn.geometry.grid import VoxelGrid

Volumes = Tensor | Sequence[Tensor]
"""(B, C, I, J, K), or B of (C, I, J, K)."""


@dataclass(frozen=True)
class TokenMap:
    """Tokens that know where they are.

    Attributes:
        tokens: (B, N, D). Row b holds the tokens of ``grids[b]`` in raster order, then padding up to N.
        grids: the token grid of each sample.
        mask: (B, N), True for real tokens; False for padding, and for patches without a finite voxel.
        nonfinite_voxels: (B,), how many values of each volume were not finite, and counted as 0; None for labels.
    """

    tokens: Tensor
    grids: tuple[VoxelGrid, ...]
    mask: Tensor
    nonfinite_voxels: Tensor | None = None

    def __getitem__(self, sample: int) -> Tensor:
        """(D, I, J, K) token volume of one sample, on ``grids[sample]``."""
        shape = self.grids[sample].shape
        real = self.tokens[sample, : shape[0] * shape[1] * shape[2]]
        return real.T.reshape(-1, *shape)
