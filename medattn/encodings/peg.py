"""Convolutional positional encoding: each token looks at its neighbours once, before the first block."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medattn.coordinates import Frame
from medattn.encodings.base import About, PositionalEncoding
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal, TokenMixer
from medattn.geometry.grid import Triple


@dataclass(frozen=True)
class NeighbourMixer(TokenMixer):
    """Adds to each token a weighted sum of its 3 x 3 x 3 neighbourhood on its own grid, zero outside of it.

    Attributes:
        weight: (D, 1, 3, 3, 3).
        bias: (D,).
        shapes: token grid of each sample; what lies past a sample's own tokens is left alone.
        prefix: tokens in front that are no part of the grid.
    """

    weight: Tensor
    bias: Tensor
    shapes: tuple[Triple, ...]
    prefix: int = 0

    def __call__(self, tokens: Tensor) -> Tensor:
        placed = tokens[:, self.prefix :]
        if len(set(self.shapes)) == 1:
            update = self._update(placed, self.shapes[0])
        else:
            update = torch.cat([self._update(placed[b : b + 1], shape) for b, shape in enumerate(self.shapes)])
        return tokens + F.pad(update, (0, 0, self.prefix, 0))

    def _update(self, tokens: Tensor, shape: Triple) -> Tensor:
        """(B, N, D), zero past the tokens of ``shape``."""
        count, weight, bias = math.prod(shape), self.weight.to(tokens.dtype), self.bias.to(tokens.dtype)
        volume = tokens[:, :count].mT.unflatten(-1, shape)
        mixed = F.conv3d(volume, weight, bias, padding=1, groups=len(weight))
        return F.pad(mixed.flatten(2).mT, (0, 0, 0, tokens.shape[1] - count))

    def with_prefix(self, count: int) -> NeighbourMixer:
        return replace(self, prefix=self.prefix + count)


@register("peg")
class PEGEncoding(PositionalEncoding):
    """A depthwise 3 x 3 x 3 convolution with zero padding over the tokens of each grid, added to them.

    Dim x 28 parameters, at the start those of any convolution layer. Neighbours are neighbours in the array, whatever
    lies between them in mm.
    """

    about = About(
        formula=r"z_n \mathrel{+}= b + \sum_{o \in \{-1, 0, 1\}^3} w_o \odot z_{n + o}, \quad z = 0 \text{ outside}",
        source="Chu et al. 2021 (CPVT), arXiv:2102.10882, in three dimensions",
        when="For any grid without interpolation. Zero padding also tells absolute place, within reach of the borders "
        "of the volume: a crop is another volume to it. Inner tokens of equal surroundings look alike.",
    )
    defined_frames = (Frame.INDEX,)
    why_undefined = (
        "a convolution sees which tokens are neighbours and no distances; in mm, "
        "use 'rotary_axial' or a bias by distance"
    )
    needs_layout = True
    tells_tokens_apart = False

    def __init__(self, *, dim: int, num_heads: int, frame: Frame | str) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        self.convolution = nn.Conv3d(dim, dim, 3, padding=1, groups=dim)

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """A mixer of the tokens."""
        assert layout is not None and self.convolution.bias is not None
        mixer = NeighbourMixer(self.convolution.weight, self.convolution.bias, layout.shapes)
        return PositionSignal(mixer=mixer)

    def signal_macs(self, shape: Triple) -> int:
        return 27 * math.prod(shape) * self.dim
