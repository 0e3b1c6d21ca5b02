"""Resampling against SimpleITK, MONAI and TorchIO: 256 x 256 x 150 float32, 0.9 x 0.9 x 1.2 mm.

One thread each by default: pinned OpenMP threads would take SimpleITK's cores away. The peers interpolate linearly;
only our "box" and "gaussian" integrate over the new voxel, which on a turned grid takes several points a voxel.

python benchmarks/resampling.py [--csv benchmarks/resampling.csv]
"""

from __future__ import annotations

import math
from functools import partial

import SimpleITK as sitk
import torch
import torchio
from monai.data import MetaTensor
from monai.transforms import Spacing
from timing import arguments, compare, save, show

from medattn import VoxelGrid, resample

SHAPE, SPACING = (256, 256, 150), (0.9, 0.9, 1.2)


def main() -> None:
    options, rows = arguments("Resampling speed against SimpleITK, MONAI and TorchIO.", threads=1), []
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(options.threads)
    source = VoxelGrid.from_spacing(SHAPE, SPACING)
    data = torch.randn(SHAPE)
    for spacing in ((1.0, 1.0, 1.0), (1.0, 1.0, 5.0)):
        target = source.resampled(spacing)
        candidates = {"SimpleITK linear": partial(by_sitk, sitk_image(data, source), target)}
        for profile in ("none", "box", "gaussian"):
            candidates[f"medattn {profile}"] = partial(resample, data, source, target, profile=profile)
        candidates["medattn cubic"] = partial(resample, data, source, target, mode="cubic", profile="none")
        candidates["medattn, equal grid"] = partial(resample, data, source, source)
        candidates["MONAI Spacing"] = partial(Spacing(spacing), MetaTensor(data[None], affine=source.affine))
        image = torchio.ScalarImage(tensor=data[None], affine=source.affine.numpy())
        candidates["TorchIO Resample"] = partial(torchio.Resample(spacing), image)
        show(f"to {spacing} mm", compare(candidates, options.rounds), "SimpleITK linear", rows)
    for spacing in ((1.0, 1.0, 1.0), (1.0, 1.0, 5.0)):
        oblique = turned(source.resampled(spacing))
        candidates = {"SimpleITK linear": partial(by_sitk, sitk_image(data, source), oblique)}
        for profile in ("none", "box"):
            candidates[f"medattn {profile}"] = partial(resample, data, source, oblique, profile=profile)
        title = f"to {spacing} mm, turned by 20 degrees"
        show(title, compare(candidates, max(3, options.rounds // 3)), "SimpleITK linear", rows)
    save(options.csv, rows)


def turned(grid: VoxelGrid) -> VoxelGrid:
    """``grid`` turned by 20 degrees about its first axis."""
    turn = torch.eye(4, dtype=torch.float64)
    c, s = math.cos(math.radians(20)), math.sin(math.radians(20))
    turn[1:3, 1:3] = torch.tensor([[c, -s], [s, c]])
    return VoxelGrid(grid.shape, turn @ grid.affine)


def sitk_image(data: torch.Tensor, grid: VoxelGrid) -> sitk.Image:
    """The image in ITK's terms; both are told one world, so that RAS or LPS makes no difference."""
    image = sitk.GetImageFromArray(data.permute(2, 1, 0).contiguous().numpy())
    image.SetSpacing(grid.spacing_mm.tolist())
    image.SetOrigin(grid.origin_mm.tolist())
    return image


def by_sitk(image: sitk.Image, grid: VoxelGrid) -> object:
    origin, spacing, direction = grid.origin_mm.tolist(), grid.spacing_mm.tolist(), grid.direction.flatten().tolist()
    return sitk.Resample(image, grid.shape, sitk.Transform(), sitk.sitkLinear, origin, spacing, direction)


if __name__ == "__main__":
    main()
