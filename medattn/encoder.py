"""``VolumeEncoder``: volumes with their grids in, tokens with their grids out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from medattn.attention.masks import padding_mask
from medattn.coordinates import Frame, token_coordinates, token_steps
from medattn.encodings import PositionalEncoding, PositionSignal, SpacingToken, TokenLayout, create_encoding
from medattn.encodings.registry import own_random_stream
from medattn.encodings.spacing_modulation import SpacingModulation, modulated
from medattn.geometry.grid import Triple, VoxelGrid
from medattn.layers import Block, PatchEmbed, PatchEmbedding, create_patch_embed
from medattn.layers.finite_voxels import finite_volume

Volumes = Tensor | Sequence[Tensor]


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
        _check_sizes(depth=depth, ffn_dim=ffn_dim)
        self.encoding = encoding
        self.patch_embed = _patch_embed(patch_size, in_channels, dim)
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
        embedded = self._embed(volumes, grids)
        tokens = embedded.tokens.to(
            self.norm.weight.dtype
        )  # under autocast the residual stream stays in full precision
        coords = self._coordinates(grids, references, origins_mm)
        layout = self._layout(grids, references)
        if self.encoding.is_translation_invariant:
            coords = coords - (coords.amin(1, keepdim=True) + coords.amax(1, keepdim=True)) / 2
        if tokens.device.type == "mps":
            coords = coords.float()  # that device has no float64
        signal = self.encoding(coords.to(tokens.device), layout).to(tokens.device, tokens.dtype)
        mask, hides = self._mask(embedded)
        tokens, prefix = signal.add_to(tokens), 0
        if self.spacing_token is not None:
            tokens = torch.cat([self.spacing_token(grids).to(tokens.dtype), tokens], dim=1)
            prefix, signal = 1, signal.with_prefix(1)
        attention_mask = nn.functional.pad(mask, (prefix, 0), value=True) if hides else None
        modulation = None if self.spacing_modulation is None else self.spacing_modulation(grids)
        tokens = self._transform(tokens, signal, attention_mask, modulation)[:, prefix:]
        token_grids = tuple(grid.patch_grid(self.patch_embed.patch_size_on(grid)) for grid in grids)
        return TokenMap(tokens, token_grids, mask, embedded.nonfinite)

    def _transform(
        self, tokens: Tensor, signal: PositionSignal, keys: Tensor | None, modulation: Tensor | None
    ) -> Tensor:
        mask = None if keys is None else keys[:, None, None, :]
        for number, block in enumerate(self.blocks):
            tokens = block(tokens if modulation is None else modulated(tokens, modulation[number]), signal, mask)
        normed: Tensor = self.norm(tokens)
        return normed

    def _embed(self, volumes: Volumes, grids: Sequence[VoxelGrid]) -> Embedded:
        keys = {(tuple(v.shape), self.patch_embed.batch_key(g)) for v, g in zip(volumes, grids, strict=True)}
        if len(keys) == 1:
            batch = volumes if isinstance(volumes, Tensor) else torch.stack(list(volumes))
            return self._embed_alike(batch, grids[0])
        parts = [self._embed_alike(v[None], g) for v, g in zip(volumes, grids, strict=True)]
        tokens = nn.utils.rnn.pad_sequence([part.tokens[0] for part in parts], batch_first=True)
        seen = None
        if any(part.seen is not None for part in parts):
            rows = [tokens.new_ones(len(p.tokens[0]), dtype=torch.bool) if p.seen is None else p.seen[0] for p in parts]
            seen = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return Embedded(tokens, [n for p in parts for n in p.lengths], seen, torch.cat([p.nonfinite for p in parts]))

    def _embed_alike(self, volume: Tensor, grid: VoxelGrid) -> Embedded:
        """A batch (B, C, I, J, K) of volumes that have the patches of ``grid``."""
        finite = finite_volume(volume, self.patch_embed.patch_size_on(grid))
        tokens: Tensor = self.patch_embed(volume if finite is None else finite.volume, grid)
        lengths = [tokens.shape[1]] * tokens.shape[0]
        if finite is None:
            return Embedded(tokens, lengths, None, torch.zeros(len(tokens), dtype=torch.long, device=tokens.device))
        return Embedded(tokens, lengths, finite.seen, finite.nonfinite)

    def _mask(self, embedded: Embedded) -> tuple[Tensor, bool]:
        """(real tokens (B, N), whether any are not); warns of voxels that are not finite."""
        lengths = torch.tensor(embedded.lengths, device=embedded.tokens.device)
        mask, seen = padding_mask(lengths, embedded.tokens.shape[1]), embedded.seen
        if seen is None:
            return mask, len(set(embedded.lengths)) > 1
        if not torch.compiler.is_compiling() and bool((embedded.nonfinite > 0).any()):
            counts = embedded.nonfinite.tolist()
            warnings.warn(f"voxels that are not finite count as 0, patches of them are masked: {counts}", stacklevel=3)
        return mask & seen, True

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
        shapes = tuple(grid.patch_grid(size).shape for grid, size in zip(grids, sizes, strict=True))
        return TokenLayout(shapes, torch.stack(steps))


def _patch_embed(patch: int | Sequence[int] | PatchEmbedding, in_channels: int | None, dim: int) -> PatchEmbedding:
    if not isinstance(patch, PatchEmbedding):
        channels = 1 if in_channels is None else in_channels
        _check_sizes(in_channels=channels)
        return PatchEmbed(channels, dim, patch)
    if patch.dim != dim:
        raise ValueError(f"the patch embedding must have the encoding's width dim={dim}, got {patch.dim}")
    if in_channels not in (None, patch.in_channels):
        raise ValueError(
            f"in_channels must be left to the patch embedding, which has {patch.in_channels}, got {in_channels!r}"
        )
    return patch


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
    ``dim``, ``num_heads``, ``patch_embed`` instead of ``patch_size`` and ``in_channels`` (a ``PatchEmbedding``, or a
    mapping with ``name`` and options, see ``create_patch_embed``), and the arguments of ``VolumeEncoder``.

    Raises:
        ValueError: for an unknown preset (the presets are listed), a mapping without ``dim`` or ``num_heads``, or
            ``patch_embed`` beside what it replaces.
    """
    if isinstance(config, str):
        if config not in PRESETS:
            raise ValueError(f"encoder preset must be one of {', '.join(PRESETS)}, got {config!r}")
        config = PRESETS[config]
    if "patch_embed" in overrides:
        config = {key: value for key, value in config.items() if key not in ("patch_size", "in_channels")}
    settings = {**config, **overrides}
    missing = [key for key in ("dim", "num_heads") if key not in settings]
    if missing:
        raise ValueError(f"an encoder's config must have {' and '.join(missing)}, got only {', '.join(settings)}")
    embed = settings.pop("patch_embed", None)
    if embed is not None and (clash := [key for key in ("patch_size", "in_channels") if key in settings]):
        raise ValueError(f"patch_embed must come without {' and '.join(clash)}, got both")
    dim = settings.pop("dim")
    encoding = create_encoding(
        settings.pop("encoding", "rotary_axial"),
        dim=dim,
        num_heads=settings.pop("num_heads"),
        frame=settings.pop("frame", Frame.MM),
        **settings.pop("encoding_options", {}),
    )
    if embed is not None:
        settings["patch_size"] = create_patch_embed(dim=dim, **embed) if isinstance(embed, Mapping) else embed
    return VolumeEncoder(encoding, **settings)
