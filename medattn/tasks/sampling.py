"""What a model is shown: random training crops and evaluation cases, each a pure function of its seed and index."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from medattn.acquisition import add_noise, change_contrast, window
from medattn.coordinates import CoordinateJitter
from medattn.geometry import VoxelGrid
from medattn.tasks.acquisitions import ToldScan
from medattn.tasks.subject import Scan


def generator_for(*key: int | str) -> torch.Generator:
    """A generator that depends on ``key`` alone: equal keys, equal draws, in any process and order."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


@dataclass(frozen=True)
class Appearance:
    """Intensity changes of every scan shown, and the window that brings HU to [-1, 1].

    Attributes:
        window_hu: (low, high).
        noise_sd_hu: each scan's noise has a sd drawn from U(0, noise_sd_hu).
        contrast: gain = exp(U(-c, c)), offset = U(-c, c), gamma = exp(U(-c, c)) on the windowed image.
    """

    window_hu: tuple[float, float]
    noise_sd_hu: float = 0.0
    contrast: float = 0.0

    def show(self, image_hu: Tensor, generator: torch.Generator) -> Tensor:
        """The image as a model sees it, in [-1, 1]."""
        noise, gain, offset, gamma = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
        noisy = add_noise(image_hu, noise * self.noise_sd_hu, generator)
        factors = [self.contrast * (2 * u - 1) for u in (gain, offset, gamma)]
        return change_contrast(
            window(noisy, *self.window_hu),
            gain=float(torch.tensor(factors[0]).exp()),
            offset=factors[1],
            gamma=float(torch.tensor(factors[2]).exp()),
        )


@dataclass(frozen=True, eq=False)
class Example:
    """One input with its truth, and what the model is told about where it is."""

    image: Tensor
    labels: Tensor
    told: VoxelGrid
    reference: VoxelGrid
    origin_mm: Tensor


@dataclass(frozen=True)
class CropSampler:
    """Random crops of random training acquisitions, with flips, noise, contrast changes and frame jitter.

    Attributes:
        crop: edge of the crop in voxels, the same on each axis; a shorter scan gives its whole axis.
        foreground: probability that a crop is centred on a voxel of a class instead of any voxel.
        flip_probability: of storing array axis 0 in reverse.
    """

    appearance: Appearance
    jitter: CoordinateJitter
    crop: int
    foreground: float = 0.5
    flip_probability: float = 0.5

    def draw(self, scans: Sequence[Scan], generator: torch.Generator) -> Example:
        """One example. The draws do not depend on the arm, so that arms see identical data."""
        which, flip, side = torch.rand(3, generator=generator).tolist()
        scan = scans[int(which * len(scans))]
        start, stop = self._box(scan, side < self.foreground, generator)
        whole, told_start, told_stop = scan.grid, start, stop
        boxed = (slice(None), *(slice(a, b) for a, b in zip(start, stop, strict=True)))
        image, labels = scan.image[boxed], scan.labels[boxed]
        if flip < self.flip_probability:
            image, labels, whole = image.flip(1), labels.flip(1), whole.flip(0)
            size = whole.shape[0]
            told_start, told_stop = [size - stop[0], *start[1:]], [size - start[0], *stop[1:]]
        reference, origin = self.jitter.draw(whole, generator)
        return Example(
            self.appearance.show(image, generator), labels, reference.crop(told_start, told_stop), reference, origin
        )

    def _box(self, scan: Scan, on_class: bool, generator: torch.Generator) -> tuple[list[int], list[int]]:
        shape = scan.grid.shape
        uniform = torch.rand(3, generator=generator, dtype=torch.float64)
        center = [int(u * n) for u, n in zip(uniform.tolist(), shape, strict=True)]
        if on_class and len(scan.class_voxels):
            center = scan.class_voxels[int(uniform[0] * len(scan.class_voxels))].tolist()
        sizes = [min(self.crop, n) for n in shape]
        start = [min(max(c - s // 2, 0), n - s) for c, s, n in zip(center, sizes, shape, strict=True)]
        return start, [a + s for a, s in zip(start, sizes, strict=True)]


def training_batch(sampler: CropSampler, scans: Sequence[Scan], size: int, *key: int | str) -> list[Example]:
    """``size`` examples; ``key`` (seed, step) alone decides them."""
    return [sampler.draw(scans, generator_for("train", *key, slot)) for slot in range(size)]


def evaluation_case(scan: ToldScan, appearance: Appearance, jitter: CoordinateJitter, *key: int | str) -> Example:
    """A whole scan with the noise, contrast and frame jitter that ``key`` (seed, acquisition, case) decides."""
    generator = generator_for("evaluate", *key)
    reference, origin = jitter.draw(scan.told, generator)
    return Example(appearance.show(scan.scan.image, generator), scan.scan.labels, reference, reference, origin)
