"""Axis-aligned resampling against SimpleITK's linear interpolation: 256 x 256 x 150 float32, 0.9 x 0.9 x 1.2 mm.

One thread each by default: pinned OpenMP threads would take SimpleITK's cores away.

python benchmarks/resampling.py [--csv benchmarks/resampling.csv]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import SimpleITK as sitk
import torch
from timing import arguments, compare, save, show

from medattn import VoxelGrid, resample

SHAPE, SPACING = (256, 256, 150), (0.9, 0.9, 1.2)


def main() -> None:
    options, rows = arguments("Resampling speed against SimpleITK.", threads=1), []
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(options.threads)
    source = VoxelGrid.from_spacing(SHAPE, SPACING)
    data = torch.randn(SHAPE)
    image = sitk.GetImageFromArray(data.permute(2, 1, 0).contiguous().numpy())
    image.SetSpacing(SPACING)
    for spacing in ((1.0, 1.0, 1.0), (1.0, 1.0, 5.0)):
        target = source.resampled(spacing)
        start = [
            (target.spacing_mm[a] * (1 - target.shape[a]) + image.GetSpacing()[a] * (SHAPE[a] - 1)) / 2
            for a in range(3)
        ]
        origin = [float(value) for value in start]
        peer = partial(sitk.Resample, image, target.shape, sitk.Transform(), sitk.sitkLinear, origin, spacing)
        candidates: dict[str, Callable[[], object]] = {"SimpleITK linear": peer}
        for profile in ("none", "box", "gaussian"):
            candidates[f"medattn {profile}"] = partial(resample, data, source, target, profile=profile)
        candidates["medattn, equal grid"] = partial(resample, data, source, source)
        show(f"to {spacing} mm", compare(candidates, options.rounds), "SimpleITK linear", rows)
    save(options.csv, rows)


if __name__ == "__main__":
    main()
