"""The kernel of an encoding: the mean logit of two tokens against how far apart they are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from medattn.coordinates import Frame, token_coordinates, token_steps
from medattn.encodings import PositionSignal, TokenLayout
from medattn.encodings.base import PositionalEncoding
from medattn.geometry import VoxelGrid

EXTENT_MM, PATCH, LINE_TOKENS = 260.0, 4, 65
"""Length of the line of tokens, voxels from one to the next, and how many there are with slices of 1 mm (13 with 5)."""


class Kernel(NamedTuple):
    """Displacements (N,) in mm, memory minus query, and the mean logit (H, N) of each head."""

    displacements_mm: Tensor
    logits: Tensor


def kernel(encoding: PositionalEncoding, spacing_mm: float) -> Kernel:
    """Of the token in the middle of a line along axis k, with slices of ``spacing_mm``.

    The mean is over contents t of covariance 1 that are the same at both places, with identity projections, less what
    it is without positions: p(x) . p(y) / sqrt(d) for codes that are added, tr(R(x)^T R(y) - 1) / sqrt(d) for turns,
    the bias itself for a bias.
    """
    grid = VoxelGrid.from_spacing((PATCH, PATCH, round(EXTENT_MM / spacing_mm)), (1.0, 1.0, spacing_mm))
    tokens = grid.patch_grid(PATCH)
    coords = token_coordinates(grid, PATCH, encoding.frame)[None]
    layout = TokenLayout((tokens.shape,), token_steps(grid, PATCH, encoding.frame)[None])
    middle = tokens.shape[2] // 2
    encoding = encoding.eval()
    with torch.no_grad():
        logits = mean_logits(encoding(coords, layout).to(coords.device, torch.float64), encoding, coords.shape[1])
    displacements = (torch.arange(tokens.shape[2]) - middle) * float(tokens.spacing_mm[2])
    return Kernel(displacements, logits[:, middle])


def mean_logits(signal: PositionSignal, encoding: PositionalEncoding, num_tokens: int) -> Tensor:
    """(H, N, N) float64: see ``kernel``. The contents plus and minus sqrt(D) e_c have the moments that are needed."""
    dim, heads = encoding.dim, encoding.num_heads
    contents = torch.eye(dim, dtype=torch.float64) * dim**0.5
    total = torch.zeros(heads, num_tokens, num_tokens, dtype=torch.float64)
    bias = torch.zeros_like(total)
    for content in (*contents, *-contents):
        tokens = signal.add_to(content.expand(1, num_tokens, dim))
        q = k = tokens.unflatten(-1, (heads, -1)).transpose(1, 2)
        total += (signal.rotate(q) @ signal.rotate(k).mT)[0] / encoding.head_dim**0.5
        if signal.channels is not None:
            bias += (signal.channels.queries(q) @ signal.channels.keys(q.dtype).mT)[0]
    mean = (total + bias) / (2 * dim) - encoding.head_dim**0.5
    return mean if signal.bias is None else mean + signal.bias.dense()[0]


def frame_of_column(encoding_frames: tuple[Frame, ...], wanted: Frame) -> Frame | None:
    """``wanted`` if the encoding is defined there, else its nearest relative; None if it has none."""
    relatives = {Frame.INDEX: (Frame.INDEX, Frame.FRACTION), Frame.MM: (Frame.MM, Frame.PATIENT_MM)}[wanted]
    return next((frame for frame in relatives if frame in encoding_frames), None)
