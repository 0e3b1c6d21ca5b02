"""Telling a model the spacing by scaling and shifting the channels of all its tokens."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from medattn.encodings.spacing_token import NUM_FEATURES, checked_reference_mm, spacing_features
from medattn.geometry.grid import VoxelGrid


class SpacingModulation(nn.Module):
    """Before each block, tokens become tokens x (1 + scale) + shift, with scale and shift from the volume's grid.

    FiLM (Perez et al. 2018, arXiv:1709.07871). A perceptron of the features that ``SpacingToken`` has gives one scale
    and one shift a channel and block. Its last layer is zero at the start: then it changes nothing.

    Args:
        dim: token width.
        depth: blocks.
        reference_spacing_mm: the spacing whose three log features are 0.
        hidden_dim: width of the perceptron's hidden layer.
    """

    def __init__(self, dim: int, depth: int, *, reference_spacing_mm: float = 1.0, hidden_dim: int = 64) -> None:
        super().__init__()
        self.dim, self.depth = dim, depth
        self.reference_spacing_mm = checked_reference_mm(reference_spacing_mm)
        last = nn.Linear(hidden_dim, 2 * depth * dim)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.mlp = nn.Sequential(nn.Linear(NUM_FEATURES, hidden_dim), nn.GELU(), last)

    def forward(self, grids: Sequence[VoxelGrid]) -> Tensor:
        """(depth, 2, B, 1, dim): scale and shift for each block and grid."""
        weight = next(self.mlp.parameters())
        features = spacing_features(grids, self.reference_spacing_mm).to(weight.device, weight.dtype)
        out: Tensor = self.mlp(features).unflatten(-1, (self.depth, 2, 1, self.dim))
        return out.permute(1, 2, 0, 3, 4)


def modulated(tokens: Tensor, scale_and_shift: Tensor) -> Tensor:
    """``tokens`` (B, N, D) x (1 + scale) + shift, for (2, B, 1, D); the 1 is not rounded into the scale."""
    scale, shift = scale_and_shift.to(tokens.dtype)
    return tokens + (tokens * scale + shift)
