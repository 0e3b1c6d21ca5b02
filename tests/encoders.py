"""Small encoders and volumes on non-cubic grids, and an encoding that shows what it is given."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from medattn import PositionalEncoding, PositionSignal, TokenLayout, VolumeEncoder, VoxelGrid, create_encoder

PATCH = (2, 3, 1)
SETTINGS: dict[str, Any] = {"dim": 24, "num_heads": 2, "depth": 2, "ffn_ratio": 2.0, "patch_size": PATCH}


def small_encoder(encoding: str = "none", frame: str = "mm", *, seed: int = 0, **options: Any) -> VolumeEncoder:
    """Width 24, 2 heads, 2 blocks, patches of (2, 3, 1); equal seeds give equal weights."""
    torch.manual_seed(seed)
    return create_encoder(SETTINGS, encoding=encoding, frame=frame, **options)


def volume(shape: Sequence[int], seed: int = 0, channels: int = 1) -> Tensor:
    """(channels, I, J, K) noise."""
    return torch.randn(channels, *shape, generator=torch.Generator().manual_seed(seed))


def grid_of(shape: tuple[int, int, int] = (4, 6, 3), spacing_mm: Any = (4.0, 5.0, 6.0)) -> VoxelGrid:
    return VoxelGrid.from_spacing(shape, spacing_mm)


def close(actual: Tensor, expected: Any, atol: float = 2e-6) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=0, atol=atol)


class Probe(PositionalEncoding):
    """No position, but it keeps the coordinates of the last call."""

    coords: Tensor

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        self.coords = coords
        return super().signal(coords, layout)
