"""Encoder against a plainly written pre-norm block stack and MONAI's ViT, forward + backward and inference.

python benchmarks/encoder.py [--csv benchmarks/encoder.csv]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from monai.networks.nets import ViT
from timing import arguments, compare, pinned, save, show
from torch import Tensor, nn
from torch.nn import functional as F

from medattn import VolumeEncoder, VoxelGrid, create_encoding

SIZES = {  # name: (volume edge, patch, dim, depth, heads, batch)
    "512 tokens, width 192, depth 6, batch 4": (64, 8, 192, 6, 6, 4),
    "216 tokens, width 768, depth 12, batch 2": (96, 16, 768, 12, 12, 2),
}


class PlainBlock(nn.Module):
    """The yardstick: pre-norm block on scaled_dot_product_attention, nothing else."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.ffn(self.norm2(x))


def plain(patch: int, dim: int, depth: int, heads: int) -> nn.Module:
    embed = nn.Conv3d(1, dim, patch, stride=patch)
    blocks = [PlainBlock(dim, heads) for _ in range(depth)]
    return nn.Sequential(embed, nn.Flatten(2), Transposed(), *blocks, nn.LayerNorm(dim))


class Transposed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


def tokens_of(encoder: VolumeEncoder, volumes: Tensor, grids: list[VoxelGrid]) -> Tensor:
    return encoder(volumes, grids).tokens


def forwards(edge: int, patch: int, dim: int, depth: int, heads: int, batch: int) -> dict[str, Callable[[], Tensor]]:
    """Name -> a forward pass of that candidate on one fixed batch."""
    torch.manual_seed(0)
    x = torch.randn(batch, 1, edge, edge, edge)
    grids = [VoxelGrid.from_spacing((edge,) * 3, (1.0, 1.0, 1.0 + 0.1 * n)) for n in range(batch)]
    reference = plain(patch, dim, depth, heads)
    monai = ViT(1, edge, patch, hidden_size=dim, mlp_dim=4 * dim, num_layers=depth, num_heads=heads)
    candidates: dict[str, Callable[[], Tensor]] = {"plain": lambda: reference(x)}
    for name, frame in (("none", "mm"), ("sincos", "mm"), ("rotary_axial", "mm")):
        encoding = create_encoding(name, dim=dim, num_heads=heads, frame=frame)
        encoder = VolumeEncoder(encoding, patch_size=patch, depth=depth)
        candidates[f"medattn {name}"] = partial(tokens_of, encoder, x, grids)
    candidates["MONAI ViT (default)"] = lambda: monai(x)[0]
    return candidates


def trained(forward: Callable[[], Tensor]) -> Callable[[], None]:
    return lambda: forward().square().mean().backward()


def inferred(forward: Callable[[], Tensor]) -> Callable[[], Tensor]:
    return torch.no_grad()(forward)


def main() -> None:
    pinned()
    options, rows = arguments("Encoder speed against peers."), []
    for size, numbers in SIZES.items():
        candidates = forwards(*numbers)
        for mode, wrap in (("forward + backward", trained), ("inference", inferred)):
            medians = compare({name: wrap(forward) for name, forward in candidates.items()}, options.rounds)
            show(f"{size}: {mode}", medians, "plain", rows)
    save(options.csv, rows)


if __name__ == "__main__":
    main()
