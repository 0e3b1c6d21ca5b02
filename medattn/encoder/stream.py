"""A scan that arrives slab by slab, encoded as it comes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from medattn.attention.cache import KVCache
from medattn.encoder.checks import check_causal
from medattn.encoder.embedding import embed_volumes
from medattn.encoder.token_map import TokenMap
from medattn.encoder.volume_encoder import VolumeEncoder
from medattn.encodings.spacing_modulation import modulated
from medattn.geometry.grid import Triple, VoxelGrid
from medattn.layers import Block


class SlabStream:
    """Encodes one scan along an array axis, each token once: equal to the whole pass with this ``causal_axis``.

    A token sees its own layer of tokens and all before it. Keys and values are kept, so each slab costs only its own
    queries. Slabs may have any thickness; voxels wait until a layer of patches is full, or the scan is.

    Args:
        encoder: in eval mode.
        grid: of the whole scan, which a header tells before the voxels come.
        axis: array axis along which it arrives, from index 0 on; a scan that comes from its end is a flipped one.
        reference, origin_mm: see ``VolumeEncoder.forward``.

    Raises:
        ValueError: in training mode, for an axis other than 0, 1 and 2, or an encoding that maps neighbouring tokens
            together.
    """

    def __init__(
        self,
        encoder: VolumeEncoder,
        grid: VoxelGrid,
        *,
        axis: int,
        reference: VoxelGrid | None = None,
        origin_mm: Any = None,
    ) -> None:
        if encoder.training:
            raise ValueError("encoder must be in eval mode to encode slab by slab, got one in training mode")
        if axis not in (0, 1, 2):
            raise ValueError(f"axis must be 0, 1 or 2, got {axis!r}")
        self.encoder, self.grid, self.axis = encoder, grid, axis
        self.token_grid = encoder.token_grid(grid)
        self.arrived, self.encoded = 0, 0
        self._patch = encoder.patch_embed.patch_size_on(grid)[axis]
        self._waiting: Tensor | None = None
        signal = encoder.position_signal(
            [grid],
            references=None if reference is None else [reference],
            origins_mm=None if origin_mm is None else [origin_mm],
        )
        check_causal(signal, encoder.encoding.name)
        self._signal = signal.with_prefix(encoder.prefix)
        self._modulation = None if encoder.spacing_modulation is None else encoder.spacing_modulation([grid])
        self._caches = [KVCache() for _ in encoder.blocks]
        if encoder.spacing_token is not None:
            token = encoder.spacing_token([grid]).to(encoder.dtype)
            self._through_blocks(token, torch.zeros(1, dtype=torch.long, device=token.device), None)

    @property
    def is_complete(self) -> bool:
        """Whether all voxels of the scan have arrived."""
        return self.arrived == self.grid.shape[self.axis]

    def push(self, slab: Tensor) -> TokenMap | None:
        """Take in the next voxels (C, I, J, K), and encode the layers of tokens that are now full.

        Returns:
            Their tokens, on their part of ``token_grid``; None if no layer is full yet.

        Raises:
            ValueError: for a slab that does not fit what is left of the scan.
        """
        self._check(slab)
        self.arrived += slab.shape[1 + self.axis]
        self._waiting = slab if self._waiting is None else torch.cat([self._waiting, slab], dim=1 + self.axis)
        waiting = self._waiting.shape[1 + self.axis]
        ready = waiting if self.is_complete else waiting // self._patch * self._patch
        if ready == 0:
            return None
        voxels, self._waiting = self._waiting.split([ready, waiting - ready], dim=1 + self.axis)
        return self._encode(voxels)

    def _check(self, slab: Tensor) -> None:
        fits = list(self.grid.shape)
        if slab.ndim == 4:
            fits[self.axis] = slab.shape[1 + self.axis]
        left = self.grid.shape[self.axis] - self.arrived
        if slab.ndim != 4 or list(slab.shape[1:]) != fits or not 0 < fits[self.axis] <= left:
            wanted = [str(n) for n in self.grid.shape]
            wanted[self.axis] = f"1 to {left}" if left else "none, all have arrived"
            raise ValueError(
                f"slab must be (C, {', '.join(wanted)}), what is left of the scan along axis {self.axis}, "
                f"got {tuple(slab.shape)}"
            )

    def _encode(self, voxels: Tensor) -> TokenMap:
        first = [0, 0, 0]
        first[self.axis] = self.encoded * self._patch
        last = [a + n for a, n in zip(first, voxels.shape[1:], strict=True)]
        grid = self.grid.crop(first, last)
        embedded = embed_volumes(self.encoder.patch_embed, [voxels], [grid])
        mask, _ = embedded.mask()
        shape = self.encoder.token_grid(grid).shape
        places, numbers = (_layers(each, self.axis, mask.device) for each in (shape, self.token_grid.shape))
        tokens = embedded.tokens.to(self.encoder.dtype)
        outs = [
            self._through_blocks(tokens[:, rows], own + self.encoder.prefix, mask[:, rows])
            for rows, own in zip(places, numbers[self.encoded :], strict=False)
        ]
        out = torch.cat(outs, dim=1)[:, places.flatten().argsort()]
        low, high = [0, 0, 0], list(self.token_grid.shape)
        low[self.axis], high[self.axis] = self.encoded, self.encoded + shape[self.axis]
        self.encoded = high[self.axis]
        return TokenMap(out, (self.token_grid.crop(low, high),), mask, embedded.nonfinite)

    def _through_blocks(self, tokens: Tensor, numbers: Tensor, visible: Tensor | None) -> Tensor:
        """(1, n, D) -> (1, n, D) for one layer of tokens, ``numbers`` (n,) being their places on the signal."""
        signal = self._signal.at(numbers)
        tokens = signal.add_to(tokens)
        for number, (block, cache) in enumerate(zip(self.encoder.blocks, self._caches, strict=True)):
            assert isinstance(block, Block)
            if self._modulation is not None:
                tokens = modulated(tokens, self._modulation[number])
            q, k, v, bias, channels = block.attention.project(block.attention_norm(tokens), signal)
            mixed = cache.attend(q, k, v, bias=bias, numbers=numbers, channels=channels, visible=visible)
            tokens = block.after_attention(tokens, block.attention.merge(mixed))
        normed: Tensor = self.encoder.norm(tokens)
        return normed


def _layers(shape: Triple, axis: int, device: torch.device) -> Tensor:
    """(layers along ``axis``, tokens of one): the tokens' numbers in raster order on a grid of ``shape``."""
    return torch.arange(math.prod(shape), device=device).reshape(shape).movedim(axis, 0).flatten(1)
