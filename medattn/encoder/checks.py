"""What the encoder asks of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from medattn.encoder.token_map import Volumes
from medattn.encodings import PositionSignal
from medattn.geometry.grid import VoxelGrid


def check_sizes(**sizes: Any) -> None:
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")


def check_batch(
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


def check_visible(visible: Tensor, shape: tuple[int, ...]) -> None:
    """Raises a ValueError if it is not boolean, or not (B, N)."""
    if visible.dtype != torch.bool or tuple(visible.shape) != shape:
        raise ValueError(f"visible must be boolean {shape} (B, N), got {visible.dtype} {tuple(visible.shape)}")


def check_causal(signal: PositionSignal, name: str) -> None:
    """Raises a ValueError if ``signal`` maps tokens together with others that come later."""
    if signal.mixer is not None:
        raise ValueError(f"causal_axis must be None with encoding {name!r}, which mixes tokens with those behind them")
