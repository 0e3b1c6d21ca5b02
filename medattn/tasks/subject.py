"""One subject whose anatomy is known and who can be acquired again on any grid: what "controlled" means here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from medattn.geometry import VoxelGrid, resample, resample_labels
from medattn.geometry.weights import Profile
from medattn.phantoms import Scene
from medattn.volumes import Volume, check_same_grid


@dataclass(frozen=True, eq=False)
class Scan:
    """An image (1, I, J, K) and its class indices (1, I, J, K) on one grid; 0 is background."""

    image: Tensor
    labels: Tensor
    grid: VoxelGrid

    @cached_property
    def class_voxels(self) -> Tensor:
        """(V, 3) indices of the voxels that are not background."""
        return self.labels[0].nonzero()


class Subject(Protocol):
    """Anatomy with named classes. ``fingerprint`` changes whenever what ``acquire`` returns would."""

    @property
    def grid(self) -> VoxelGrid: ...
    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def fingerprint(self) -> str: ...
    def acquire(self, target: VoxelGrid) -> Scan: ...


class VolumeSubject:
    """A labelled volume, acquired again by integrating it over each new voxel's slice profile.

    The volume is first brought to RAS axes by permuting and flipping. Labels that no class names become background.

    Args:
        image: one channel.
        labels: one channel of integers on the same grid.
        classes: name -> label value, in the order of the class indices 1, 2, ...
        profile: slice profile (see ``resample``).

    Raises:
        ValueError: if the grids differ, there are several channels, or a class's label is nowhere in ``labels``.
    """

    def __init__(self, image: Volume, labels: Volume, classes: Mapping[str, int], *, profile: Profile = "box") -> None:
        check_same_grid(image, labels)
        for name, volume in (("image", image), ("labels", labels)):
            if volume.data.shape[0] != 1:
                raise ValueError(f"{name} must have one channel, got {volume.data.shape[0]} ({volume.name})")
        if not bool(torch.isfinite(image.data).all()):
            raise ValueError(f"image must be finite; mask or fill its NaN voxels first ({image.name})")
        self.class_names, self.profile = tuple(classes), profile
        labels = replace(labels, grid=image.grid)  # equal to rounding, which must not turn them differently
        image, labels = image.reoriented("RAS"), labels.reoriented("RAS")
        self.grid, self._image = image.grid, image.data.float()
        self._labels = _class_indices(labels, classes)
        self.fingerprint = _digest(self._image, self._labels, self.grid.affine, text=f"{self.class_names}{profile}")

    def acquire(self, target: VoxelGrid) -> Scan:
        """The scan on ``target``, whose axes must be parallel to the subject's."""
        image = resample(self._image, self.grid, target, profile=self.profile)
        labels = resample_labels(self._labels, self.grid, target, profile=self.profile)
        return Scan(image, labels, target)


class SceneSubject:
    """A continuous phantom: rendered on every grid anew, so nothing is ever interpolated.

    Args:
        scene: the phantom.
        grid: its nominal field of view.
        classes: name -> label in the scene, in the order of the class indices 1, 2, ...
    """

    def __init__(self, scene: Scene, grid: VoxelGrid, classes: Mapping[str, int]) -> None:
        self.scene, self.grid, self.class_names = scene, grid, tuple(classes)
        self._values = _lookup(classes)
        self.fingerprint = _digest(grid.affine, text=f"{scene!r}{grid.shape}{tuple(classes.items())}")

    def acquire(self, target: VoxelGrid) -> Scan:
        """The phantom rendered on ``target``."""
        image, labels = self.scene.render(target)
        known = labels.clamp(0, len(self._values) - 1)
        return Scan(image, torch.where(labels == known, self._values[known], 0), target)


def _lookup(classes: Mapping[str, int]) -> Tensor:
    """(max label + 1,): class index of each label value, 0 where no class names it."""
    if not classes or len(set(classes.values())) != len(classes) or min(classes.values()) < 1:
        raise ValueError(f"classes must map names to distinct label values >= 1, got {dict(classes)}")
    values = torch.zeros(max(classes.values()) + 1, dtype=torch.int64)
    for index, label in enumerate(classes.values(), start=1):
        values[label] = index
    return values


def _class_indices(labels: Volume, classes: Mapping[str, int]) -> Tensor:
    values, present = _lookup(classes), torch.unique(labels.data).tolist()
    missing = {name: label for name, label in classes.items() if label not in present}
    if missing:
        raise ValueError(f"labels of {labels.name} have no voxel of {missing}; they hold {present}")
    known = labels.data.clamp(0, len(values) - 1)
    return torch.where(labels.data == known, values[known], 0)


def _digest(*tensors: Tensor, text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def paired_classes(class_names: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Structure -> class indices (left, right), for names ``<structure>_left`` and ``<structure>_right``."""
    index = {name: n for n, name in enumerate(class_names, start=1)}
    return {
        name.removesuffix("_left"): (n, index[name.removesuffix("_left") + "_right"])
        for name, n in index.items()
        if name.endswith("_left") and name.removesuffix("_left") + "_right" in index
    }
