"""Positions on grids, and what a ``PositionSignal`` makes of the logits: what the contract compares."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch
from torch import Tensor

from medattn import PositionSignal, TokenLayout, VoxelGrid, create_encoding
from medattn.coordinates import Frame, token_coordinates, token_steps
from tests.geometry.grids import random_grid

DIM, HEADS, PATCH = 34, 2, (2, 1, 3)
"""Head width 17: 8 channel pairs over 3 axes and one channel left over."""

SHAPE = (5, 4, 7)
"""Voxels; 3 x 4 x 3 = 36 tokens of ``PATCH``."""


def defined_frames(name: str, **options: object) -> list[Frame]:
    """Frames in which ``name`` can be built."""
    frames = []
    for frame in Frame:
        with contextlib.suppress(ValueError):
            create_encoding(name, dim=DIM, num_heads=HEADS, frame=frame, **options)
            frames.append(frame)
    assert frames, f"{name} can be built in no frame"
    return frames


def two_grids(shape: tuple[int, int, int] = SHAPE) -> list[VoxelGrid]:
    """One shape, two unrelated oblique geometries within 300 mm of the scanner's origin."""
    return [VoxelGrid(shape, random_grid(seed).affine) for seed in (1, 2)]


def coordinates(frame: Frame, grids: Sequence[VoxelGrid], dtype: torch.dtype = torch.float64) -> Tensor:
    """(B, N, A) of grids with equally many tokens."""
    return torch.stack([token_coordinates(grid, PATCH, frame) for grid in grids]).to(dtype)


def layout_of(frame: Frame, grids: Sequence[VoxelGrid]) -> TokenLayout:
    """The tokens' grids."""
    shapes = tuple(grid.patch_grid(PATCH).shape for grid in grids)
    return TokenLayout(shapes, torch.stack([token_steps(grid, PATCH, frame) for grid in grids]))


def random_tokens(batch: int, count: int, seed: int = 0) -> Tensor:
    """(B, N, DIM) float64."""
    return torch.randn(batch, count, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def equal_tokens(batch: int, count: int) -> Tensor:
    """Tokens of one content: what differs between their logits is position."""
    return random_tokens(1, 1).expand(batch, count, DIM)


def logits_of(signal: PositionSignal, tokens: Tensor) -> Tensor:
    """(B, H, N, N) float64: what attention with random fixed projections makes of ``tokens`` (B, N, DIM)."""
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(2, DIM, DIM, generator=generator, dtype=torch.float64) / DIM**0.5
    signal = signal.to(tokens.device, torch.float64)
    q, k = (signal.add_to(tokens) @ weight[:, None]).unflatten(-1, (HEADS, -1)).transpose(-3, -2)
    logits = signal.rotate(q) @ signal.rotate(k).mT / q.shape[-1] ** 0.5
    if signal.bias is not None:
        logits = logits + signal.bias.dense()
    if signal.channels is not None:
        logits = logits + signal.channels.queries(q) @ signal.channels.keys(q.dtype).mT
    return logits


def raster_order(shape: Sequence[int], *, flip: int | None = None, permute: Sequence[int] = (0, 1, 2)) -> Tensor:
    """Which token of a grid of ``shape`` lies at each place once an axis is reversed, or the axes are exchanged."""
    numbers = torch.arange(shape[0] * shape[1] * shape[2]).reshape(*shape)
    if flip is not None:
        numbers = numbers.flip(flip)
    return numbers.permute(*permute).flatten()
