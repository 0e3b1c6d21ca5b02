"""``VolumeEncoder``: volumes with their grids in, tokens with their grids out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame, token_coordinates, token_steps
from medattn.encoder.checks import check_batch, check_causal, check_sizes, check_visible
from medattn.encoder.embedding import embed_volumes
from medattn.encoder.masks import causal_token_mask, keys_mask
from medattn.encoder.token_map import TokenMap, Volumes
from medattn.encodings import PositionalEncoding, PositionSignal, SpacingToken, TokenLayout
from medattn.encodings.registry import own_random_stream
from medattn.encodings.spacing_modulation import SpacingModulation, modulated
from medattn.geometry.grid import Triple, VoxelGrid
from medattn.layers import Block, PatchEmbedding, as_patch_embed


class VolumeEncoder(nn.Module):
    """Transformer encoder over the patches of volumes, each with a grid of its own.

    Args:
        encoding: positional encoding; it also sets the token width, the number of heads and the frame.
        in_channels: channels of the volumes, 1 unless given; a patch embedding knows its own.
        patch_size: voxels per patch, one integer or three; or another patch embedding, such as ``PhysicalPatchEmbed``
            or ``LabelEmbed``.
        depth: number of blocks.
        ffn_ratio: hidden width of the feed-forward networks over the token width.
        spacing_token: also tell the model the spacing and axis directions, by one extra token.
        spacing_modulation: also tell them by a scale and shift of the channels before each block, which change nothing
            at the start (see ``SpacingModulation``).
        reference_spacing_mm: the zero of the spacing's features (see ``SpacingToken``); used only with one of these.
        dropout, attention_dropout: see ``Block``.

    The parameters shared by two encoders that differ only in encoding or in how they are told the spacing are equal if
    they are built after the same ``torch.manual_seed``: those parts draw from a random stream of their own.

    Raises:
        ValueError: for sizes out of range, or a patch embedding of another width or number of channels.
    """

    def __init__(
        self,
        encoding: PositionalEncoding,
        *,
        in_channels: int | None = None,
        patch_size: int | Sequence[int] | PatchEmbedding = 4,
        depth: int = 4,
        ffn_ratio: float = 4.0,
        spacing_token: bool = False,
        spacing_modulation: bool = False,
        reference_spacing_mm: float = 1.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        dim, ffn_dim = encoding.dim, round(encoding.dim * ffn_ratio)
        check_sizes(depth=depth, ffn_dim=ffn_dim)
        self.encoding, self.ffn_dim = encoding, ffn_dim
        self.patch_embed = as_patch_embed(patch_size, in_channels, dim)
        self.blocks = nn.ModuleList(
            Block(dim, encoding.num_heads, ffn_dim, dropout=dropout, attention_dropout=attention_dropout)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.spacing_token = None
        if spacing_token:
            with own_random_stream():
                self.spacing_token = SpacingToken(dim, reference_spacing_mm=reference_spacing_mm)
        self.spacing_modulation = None
        if spacing_modulation:
            with own_random_stream():
                self.spacing_modulation = SpacingModulation(dim, depth, reference_spacing_mm=reference_spacing_mm)

    @property
    def patch_size(self) -> Triple:
        """Voxels per patch, where it is the same for all scans.

        Raises:
            ValueError: if it depends on the scan; ``patch_embed.patch_size_on(grid)`` tells it.
        """
        size = getattr(self.patch_embed, "patch_size", None)
        if size is None:
            kind = type(self.patch_embed).__name__
            raise ValueError(f"the patch size of {kind} depends on the scan: ask patch_embed.patch_size_on(grid)")
        return (size[0], size[1], size[2])

    @property
    def dim(self) -> int:
        return self.encoding.dim

    @property
    def frame(self) -> Frame:
        return self.encoding.frame

    @property
    def prefix(self) -> int:
        """How many tokens without a place come before those of the patches."""
        return 0 if self.spacing_token is None else 1

    def token_grid(self, grid: VoxelGrid) -> VoxelGrid:
        """The grid of the tokens of a volume on ``grid``: a voxel of it is a patch."""
        return grid.patch_grid(self.patch_embed.patch_size_on(grid))

    def forward(
        self,
        volumes: Volumes,
        grids: Sequence[VoxelGrid],
        *,
        references: Sequence[VoxelGrid] | None = None,
        origins_mm: Sequence[Any] | None = None,
        visible: Tensor | None = None,
        causal_axis: int | None = None,
    ) -> TokenMap:
        """Encode a batch.

        Args:
            volumes: (B, C, I, J, K), or B tensors (C, I, J, K) of any sizes; shorter ones are padded with masked
                tokens, which change nothing.
            grids: the grid of each volume.
            references: the whole volume's grid of each, where ``grids`` are crops (see ``token_coordinates``).
            origins_mm: a point per volume to measure coordinates from (see ``token_coordinates``).
            visible: boolean (B, N) for the tokens of the patches, False for those that no other may attend to.
            causal_axis: array axis along which a token sees its own layer of tokens and those before it, as if the
                scan arrived slab by slab; None lets all see all. Takes a mask of N x N bytes, ``SlabStream`` none.

        Raises:
            ValueError: if the volumes and grids do not fit; the error names the sample. For an encoding that maps
                neighbouring tokens together, if ``causal_axis`` is given.
        """
        check_batch(volumes, grids, references, origins_mm)
        embedded = embed_volumes(self.patch_embed, volumes, grids)
        tokens = embedded.tokens.to(self.dtype)  # under autocast the residual stream stays in full precision
        signal = self.position_signal(grids, references=references, origins_mm=origins_mm)
        mask, hides = embedded.mask()
        if visible is not None:
            check_visible(visible, tuple(mask.shape))
            mask, hides = mask & visible, True
        token_grids = tuple(map(self.token_grid, grids))
        allowed = keys_mask(mask, self.prefix) if hides else None
        if causal_axis is not None:
            check_causal(signal, self.encoding.name)
            shapes = [grid.shape for grid in token_grids]
            causal = causal_token_mask(shapes, causal_axis, mask.shape[1], self.prefix, mask.device)
            allowed = causal if allowed is None else allowed & causal
        tokens = signal.add_to(tokens)
        if self.spacing_token is not None:
            tokens = torch.cat([self.spacing_token(grids).to(tokens.dtype), tokens], dim=1)
            signal = signal.with_prefix(1)
        modulation = None if self.spacing_modulation is None else self.spacing_modulation(grids)
        tokens = self._transform(tokens, signal, allowed, modulation)[:, self.prefix :]
        return TokenMap(tokens, token_grids, mask, embedded.nonfinite)

    @property
    def dtype(self) -> torch.dtype:
        """Of the tokens between the blocks."""
        return self.norm.weight.dtype

    def position_signal(
        self,
        grids: Sequence[VoxelGrid],
        *,
        references: Sequence[VoxelGrid] | None = None,
        origins_mm: Sequence[Any] | None = None,
    ) -> PositionSignal:
        """What positions do to the tokens of ``grids``, in each layer alike; see ``forward``."""
        coords = self._coordinates(grids, references, origins_mm)
        if self.encoding.is_translation_invariant:
            coords = coords - (coords.amin(1, keepdim=True) + coords.amax(1, keepdim=True)) / 2
        device = self.norm.weight.device
        if device.type == "mps":
            coords = coords.float()  # that device has no float64
        signal: PositionSignal = self.encoding(coords.to(device), self._layout(grids, references))
        return signal.to(device, self.dtype)

    def _transform(
        self, tokens: Tensor, signal: PositionSignal, mask: Tensor | None, modulation: Tensor | None
    ) -> Tensor:
        for number, block in enumerate(self.blocks):
            tokens = block(tokens if modulation is None else modulated(tokens, modulation[number]), signal, mask)
        normed: Tensor = self.norm(tokens)
        return normed

    def _coordinates(
        self,
        grids: Sequence[VoxelGrid],
        references: Sequence[VoxelGrid] | None,
        origins_mm: Sequence[Any] | None,
    ) -> Tensor:
        """(B, N, 3 or 1) float64 on the CPU; past each sample's own tokens its last one again, so ranges stay true."""
        single = [
            token_coordinates(
                grid,
                self.patch_embed.patch_size_on(grid),
                self.frame,
                reference=None if references is None else references[b],
                origin_mm=None if origins_mm is None else origins_mm[b],
            )
            for b, grid in enumerate(grids)
        ]
        longest = max(len(coords) for coords in single)
        return torch.stack([torch.cat([c, c[-1:].expand(longest - len(c), -1)]) for c in single])

    def _layout(self, grids: Sequence[VoxelGrid], references: Sequence[VoxelGrid] | None) -> TokenLayout:
        wholes = grids if references is None else references
        sizes = [self.patch_embed.patch_size_on(grid) for grid in grids]
        steps = [
            token_steps(grid, size, self.frame, reference=whole)
            for grid, size, whole in zip(grids, sizes, wholes, strict=True)
        ]
        return TokenLayout(tuple(self.token_grid(grid).shape for grid in grids), torch.stack(steps))
