"""Labelling a whole volume by windows whose coordinates lie in the whole volume's frame."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from medattn.geometry.grid import Triple, VoxelGrid, as_triple
from medattn.models.segmentation import SegmentationModel


def window_starts(size: int, window: int, stride: int) -> list[int]:
    """First voxel of each window along an axis: every ``stride``, the last one flush with the end; all is covered.

    300 voxels, window 128, stride 96 -> [0, 96, 172]. An axis shorter than the window has one window, from 0.
    """
    last = max(size - window, 0)
    return [*range(0, last, stride), last]


def windows(shape: Triple, window: Triple, stride: Triple) -> Iterator[tuple[Triple, Triple]]:
    """(start, stop) of every window over ``shape``."""
    axes = [window_starts(n, w, s) for n, w, s in zip(shape, window, stride, strict=True)]
    for start in itertools.product(*axes):
        i, j, k = (min(a + w, n) for a, w, n in zip(start, window, shape, strict=True))
        yield (start[0], start[1], start[2]), (i, j, k)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards every module is in its own mode again, whatever happened."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@torch.no_grad()
def predict_probabilities(
    model: SegmentationModel,
    volume: Tensor,
    grid: VoxelGrid,
    *,
    window: int | Triple,
    stride: int | Triple,
    origin_mm: Any = None,
    batch_size: int = 8,
) -> Tensor:
    """Mean class probabilities (num_classes, I, J, K) over overlapping windows of ``volume`` (C, I, J, K).

    Without gradients, and with the model in eval mode meanwhile.

    Args:
        grid: the whole volume's grid, as the model shall be told it.
        window: voxels per window, one integer or three; best a multiple of the patch.
        stride: voxels from one window to the next; the window's size for no overlap.
        origin_mm: point to measure coordinates from; the centre of the whole field of view by default.
        batch_size: windows encoded together.

    Raises:
        ValueError: if ``volume`` is not on ``grid`` or a size is not a positive integer.
    """
    if volume.ndim != 4 or tuple(volume.shape[1:]) != grid.shape:
        raise ValueError(f"volume must be (C, I, J, K) on a grid of shape {grid.shape}, got {tuple(volume.shape)}")
    size, step = as_triple(window, "window", minimum=1), as_triple(stride, "stride", minimum=1)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size must be a positive integer, got {batch_size!r}")
    if any(s > w for s, w in zip(step, size, strict=True)):
        raise ValueError(f"stride must not exceed the window, or voxels are missed; got {step} over {size}")
    precision = torch.promote_types(volume.dtype, torch.float32)  # sums in half precision would lose probability
    total = volume.new_zeros(model.num_classes, *grid.shape, dtype=precision)
    counts = volume.new_zeros(grid.shape, dtype=torch.int32)
    every = list(windows(grid.shape, size, step))
    with _evaluating(model):
        for places in (every[n : n + batch_size] for n in range(0, len(every), batch_size)):
            boxes = [tuple(slice(a, b) for a, b in zip(*place, strict=True)) for place in places]
            found = model(
                [volume[:, *box] for box in boxes],
                [grid.crop(*place) for place in places],
                references=[grid] * len(places),
                origins_mm=None if origin_mm is None else [origin_mm] * len(places),
            )
            for box, part in zip(boxes, found, strict=True):
                total[:, *box] += part.to(precision).softmax(0)
                counts[box] += 1
    return total / counts
