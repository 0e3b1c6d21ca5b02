"""From a batch of volumes of any sizes to a batch of tokens."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from medattn.attention.masks import padding_mask
from medattn.encoder.token_map import Volumes
from medattn.geometry.grid import VoxelGrid
from medattn.layers import PatchEmbedding
from medattn.layers.finite_voxels import finite_volume


class Embedded(NamedTuple):
    """Tokens (B, N, D), zero past each sample's own.

    Attributes:
        lengths: how many tokens each sample has.
        seen: (B, N), False for patches without a finite voxel; None if there are none.
        nonfinite: (B,), values that were not finite.
    """

    tokens: Tensor
    lengths: list[int]
    seen: Tensor | None
    nonfinite: Tensor

    def mask(self) -> tuple[Tensor, bool]:
        """(real tokens (B, N), whether any are not); warns of voxels that are not finite."""
        lengths = torch.tensor(self.lengths, device=self.tokens.device)
        mask = padding_mask(lengths, self.tokens.shape[1])
        if self.seen is None:
            return mask, len(set(self.lengths)) > 1
        if not torch.compiler.is_compiling() and bool((self.nonfinite > 0).any()):
            counts = self.nonfinite.tolist()
            warnings.warn(f"voxels that are not finite count as 0, patches of them are masked: {counts}", stacklevel=4)
        return mask & self.seen, True


def embed_volumes(patch_embed: PatchEmbedding, volumes: Volumes, grids: Sequence[VoxelGrid]) -> Embedded:
    """In one call if all have the same patches, otherwise one by one and padded."""
    keys = {(tuple(v.shape), patch_embed.batch_key(g)) for v, g in zip(volumes, grids, strict=True)}
    if len(keys) == 1:
        batch = volumes if isinstance(volumes, Tensor) else torch.stack(list(volumes))
        return _embed_alike(patch_embed, batch, grids[0])
    parts = [_embed_alike(patch_embed, v[None], g) for v, g in zip(volumes, grids, strict=True)]
    tokens = nn.utils.rnn.pad_sequence([part.tokens[0] for part in parts], batch_first=True)
    seen = None
    if any(part.seen is not None for part in parts):
        rows = [tokens.new_ones(len(p.tokens[0]), dtype=torch.bool) if p.seen is None else p.seen[0] for p in parts]
        seen = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return Embedded(tokens, [n for p in parts for n in p.lengths], seen, torch.cat([p.nonfinite for p in parts]))


def _embed_alike(patch_embed: PatchEmbedding, volume: Tensor, grid: VoxelGrid) -> Embedded:
    """A batch (B, C, I, J, K) of volumes that have the patches of ``grid``."""
    finite = finite_volume(volume, patch_embed.patch_size_on(grid))
    tokens: Tensor = patch_embed(volume if finite is None else finite.volume, grid)
    lengths = [tokens.shape[1]] * tokens.shape[0]
    if finite is None:
        return Embedded(tokens, lengths, None, torch.zeros(len(tokens), dtype=torch.long, device=tokens.device))
    return Embedded(tokens, lengths, finite.seen, finite.nonfinite)
