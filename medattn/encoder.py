"""``VolumeEncoder``: volumes with their grids in, tokens with their grids out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from medattn.attention.masks import padding_mask
from medattn.coordinates import Frame, token_coordinates
from medattn.encodings import PositionalEncoding, PositionSignal, SpacingToken, create_encoding
from medattn.encodings.registry import own_random_stream
from medattn.geometry.grid import VoxelGrid
from medattn.layers import Block, PatchEmbed

Volumes = Tensor | Sequence[Tensor]


@dataclass(frozen=True)
class TokenMap:
    """Tokens that know where they are.

    Attributes:
        tokens: (B, N, D). Row b holds the tokens of ``grids[b]`` in raster order, then padding up to N.
        grids: the token grid of each sample.
        mask: (B, N), True for real tokens.
    """

    tokens: Tensor
    grids: tuple[VoxelGrid, ...]
    mask: Tensor

    def __getitem__(self, sample: int) -> Tensor:
        """(D, I, J, K) token volume of one sample, on ``grids[sample]``."""
        shape = self.grids[sample].shape
        real = self.tokens[sample, : shape[0] * shape[1] * shape[2]]
        return real.T.reshape(-1, *shape)


class VolumeEncoder(nn.Module):
    """Transformer encoder over the patches of volumes, each with a grid of its own.

    Args:
        encoding: positional encoding; it also sets the token width, the number of heads and the frame.
        in_channels: channels of the volumes.
        patch_size: voxels per patch, one integer or three.
        depth: number of blocks.
        ffn_ratio: hidden width of the feed-forward networks over the token width.
        spacing_token: also tell the model the spacing and axis directions, by one extra token.
        reference_spacing_mm: the spacing token's zero (see ``SpacingToken``); used only with it.
        dropout, attention_dropout: see ``Block``.

    The parameters shared by two encoders that differ only in encoding or spacing token are equal if they are built
    after the same ``torch.manual_seed``: those parts draw from a random stream of their own.
    """

    def __init__(
        self,
        encoding: PositionalEncoding,
        *,
        in_channels: int = 1,
        patch_size: int | Sequence[int] = 4,
        depth: int = 4,
        ffn_ratio: float = 4.0,
        spacing_token: bool = False,
        reference_spacing_mm: float = 1.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        dim, ffn_dim = encoding.dim, round(encoding.dim * ffn_ratio)
        _check_sizes(depth=depth, ffn_dim=ffn_dim, in_channels=in_channels)
        self.encoding = encoding
        self.patch_embed = PatchEmbed(in_channels, dim, patch_size)
        self.blocks = nn.ModuleList(
            Block(dim, encoding.num_heads, ffn_dim, dropout=dropout, attention_dropout=attention_dropout)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.spacing_token = None
        if spacing_token:
            with own_random_stream():
                self.spacing_token = SpacingToken(dim, reference_spacing_mm=reference_spacing_mm)

    @property
    def patch_size(self) -> tuple[int, int, int]:
        return self.patch_embed.patch_size

    @property
    def dim(self) -> int:
        return self.encoding.dim

    @property
    def frame(self) -> Frame:
        return self.encoding.frame

    def forward(
        self,
        volumes: Volumes,
        grids: Sequence[VoxelGrid],
        *,
        references: Sequence[VoxelGrid] | None = None,
        origins_mm: Sequence[Any] | None = None,
    ) -> TokenMap:
        """Encode a batch.

        Args:
            volumes: (B, C, I, J, K), or B tensors (C, I, J, K) of any sizes; shorter ones are padded with masked
                tokens, which change nothing.
            grids: the grid of each volume.
            references: the whole volume's grid of each, where ``grids`` are crops (see ``token_coordinates``).
            origins_mm: a point per volume to measure coordinates from (see ``token_coordinates``).

        Raises:
            ValueError: if the volumes and grids do not fit; the error names the sample.
        """
        _check_batch(volumes, grids, references, origins_mm)
        tokens, lengths = self._embed(volumes)
        tokens = tokens.to(self.norm.weight.dtype)  # under autocast the residual stream stays in full precision
        coords = self._coordinates(grids, references, origins_mm)
        if self.encoding.is_translation_invariant:
            coords = coords - (coords.amin(1, keepdim=True) + coords.amax(1, keepdim=True)) / 2
        if tokens.device.type == "mps":
            coords = coords.float()  # that device has no float64
        signal = self.encoding(coords.to(tokens.device)).to(tokens.device, tokens.dtype)
        mask = padding_mask(torch.tensor(lengths, device=tokens.device), tokens.shape[1])
        tokens, prefix = signal.add_to(tokens), 0
        if self.spacing_token is not None:
            tokens = torch.cat([self.spacing_token(grids).to(tokens.dtype), tokens], dim=1)
            prefix, signal = 1, signal.with_prefix(1)
        attention_mask = None if len(set(lengths)) == 1 else nn.functional.pad(mask, (prefix, 0), value=True)
        tokens = self._transform(tokens, signal, attention_mask)[:, prefix:]
        return TokenMap(tokens, tuple(grid.patch_grid(self.patch_size) for grid in grids), mask)

    def _transform(self, tokens: Tensor, signal: PositionSignal, keys: Tensor | None) -> Tensor:
        mask = None if keys is None else keys[:, None, None, :]
        for block in self.blocks:
            tokens = block(tokens, signal, mask)
        normed: Tensor = self.norm(tokens)
        return normed

    def _embed(self, volumes: Volumes) -> tuple[Tensor, list[int]]:
        """Tokens (B, N, D), zero past each sample's own, and how many each sample has."""
        if isinstance(volumes, Tensor) or len({v.shape for v in volumes}) == 1:
            batch = volumes if isinstance(volumes, Tensor) else torch.stack(list(volumes))
            tokens: Tensor = self.patch_embed(batch)
            return tokens, [tokens.shape[1]] * tokens.shape[0]
        single = [self.patch_embed(volume[None])[0] for volume in volumes]
        return nn.utils.rnn.pad_sequence(single, batch_first=True), [len(t) for t in single]

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
                self.patch_size,
                self.frame,
                reference=None if references is None else references[b],
                origin_mm=None if origins_mm is None else origins_mm[b],
            )
            for b, grid in enumerate(grids)
        ]
        longest = max(len(coords) for coords in single)
        return torch.stack([torch.cat([c, c[-1:].expand(longest - len(c), -1)]) for c in single])


def _check_sizes(**sizes: Any) -> None:
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")


def _check_batch(
    volumes: Volumes,
    grids: Sequence[VoxelGrid],
    references: Sequence[VoxelGrid] | None,
    origins_mm: Sequence[Any] | None,
) -> None:
    count = len(volumes)
    if count == 0:
        raise ValueError("volumes must hold at least one volume, got none")
    for name, items in (("grids", grids), ("references", references), ("origins_mm", origins_mm)):
        if isinstance(items, VoxelGrid) or (items is not None and len(items) != count):
            got = "a single VoxelGrid" if isinstance(items, VoxelGrid) else len(items)
            raise ValueError(f"{name} must be a sequence with one entry per volume, {count}, got {got}")
    for sample, (volume, grid) in enumerate(zip(volumes, grids, strict=True)):
        if volume.ndim != 4 or tuple(volume.shape[1:]) != grid.shape:
            raise ValueError(
                f"volume {sample} must be (C, I, J, K) on its grid of shape {grid.shape}, got {tuple(volume.shape)}"
            )


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 96, "num_heads": 4, "depth": 3, "ffn_ratio": 2.0, "patch_size": 4},
    "small": {"dim": 384, "num_heads": 6, "depth": 6, "patch_size": 8},
    "base": {"dim": 768, "num_heads": 12, "depth": 12, "patch_size": 16},
}


def create_encoder(config: str | Mapping[str, Any] = "tiny", **overrides: Any) -> VolumeEncoder:
    """Build an encoder from a preset name or a mapping, with single values overridden.

    Keys: ``encoding`` (name, "rotary_axial" by default), ``encoding_options`` (mapping), ``frame`` ("mm" by default),
    ``dim``, ``num_heads``, and the arguments of ``VolumeEncoder``.

    Raises:
        ValueError: for an unknown preset (the presets are listed), or a mapping without ``dim`` or ``num_heads``.
    """
    if isinstance(config, str):
        if config not in PRESETS:
            raise ValueError(f"encoder preset must be one of {', '.join(PRESETS)}, got {config!r}")
        config = PRESETS[config]
    settings = {**config, **overrides}
    missing = [key for key in ("dim", "num_heads") if key not in settings]
    if missing:
        raise ValueError(f"an encoder's config must have {' and '.join(missing)}, got only {', '.join(settings)}")
    encoding = create_encoding(
        settings.pop("encoding", "rotary_axial"),
        dim=settings.pop("dim"),
        num_heads=settings.pop("num_heads"),
        frame=settings.pop("frame", Frame.MM),
        **settings.pop("encoding_options", {}),
    )
    return VolumeEncoder(encoding, **settings)
