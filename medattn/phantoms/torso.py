"""A torso made of ellipsoids: CT-like, with organs that come in left and right twins of equal intensity."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.phantoms.anatomy import PARTS, Part
from medattn.phantoms.ellipsoid import Ellipsoid, Point, Rotation
from medattn.phantoms.scene import Scene

TORSO_LABELS: dict[str, int] = {
    "spleen": 1,
    "liver": 2,
    "aorta": 3,
    "kidney_left": 4,
    "kidney_right": 5,
    "lung_left": 6,
    "lung_right": 7,
    "hip_left": 8,
    "hip_right": 9,
    "gluteus_left": 10,
    "gluteus_right": 11,
    "iliopsoas_left": 12,
    "iliopsoas_right": 13,
    "autochthon_left": 14,
    "autochthon_right": 15,
}
"""Organ -> label. Left is the patient's left, where R is negative."""

BODY_SCALE = 0.04  # of the whole body
ORGAN_SCALE = 0.05  # of each organ's radii
ORGAN_SHIFT_MM = 3.0
TWIN_SHIFT_MM = 1.0  # of one side against its mirror image
AIR_HU = -1000.0


def torso_grid() -> VoxelGrid:
    """The nominal field of view: 360 x 300 x 330 mm at 3 mm, RAS axes, centred on 0."""
    return VoxelGrid.from_spacing((120, 100, 110), 3.0)


def torso_scene(seed: int = 0) -> Scene:
    """A torso in HU, about 310 x 220 mm across and cut by the field of view above and below, like a scan.

    ``seed`` draws the body's size (+-4 %), and each organ's size (+-5 %) and place (+-3 mm). Left and right
    twins share these but for 1 mm, and have the same intensity: place and surroundings alone tell them apart.
    """
    generator = torch.Generator().manual_seed(seed)
    scale = 1 + BODY_SCALE * float(_uniform(generator, 1))
    organs = {organ: _Jitter.draw(generator) for organ in dict.fromkeys(part.organ for part in PARTS)}
    ellipsoids = [e for part in PARTS for e in _ellipsoids(part, organs[part.organ], scale)]
    return Scene(AIR_HU, tuple(ellipsoids))


def _uniform(generator: torch.Generator, count: int) -> Tensor:
    """Uniform on (-1, 1), float64."""
    return 2 * torch.rand(count, generator=generator, dtype=torch.float64) - 1


@dataclass(frozen=True, eq=False)
class _Jitter:
    """Relative size (3,) of an organ, its shift (3,) mm, and what its left side's mirror image is off by (3,) mm."""

    scale: Tensor
    shift_mm: Tensor
    twin_mm: Tensor

    @classmethod
    def draw(cls, generator: torch.Generator) -> _Jitter:
        draws = _uniform(generator, 9)
        return cls(1 + ORGAN_SCALE * draws[:3], ORGAN_SHIFT_MM * draws[3:6], TWIN_SHIFT_MM * draws[6:])


def _ellipsoids(part: Part, jitter: _Jitter, scale: float) -> Iterator[Ellipsoid]:
    center = scale * torch.tensor(part.center_mm, dtype=torch.float64) + jitter.shift_mm
    radii = _point(scale * jitter.scale * torch.tensor(part.radii_mm, dtype=torch.float64))
    rotation = rotation_matrix(part.tilt_deg)
    if not part.paired:
        label = TORSO_LABELS[part.organ] if part.labelled else 0
        yield Ellipsoid(_point(center), radii, part.hu, label, _rows(rotation))
        return
    mirror = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    left = center * mirror + jitter.twin_mm
    for side, place, turn in (("right", center, rotation), ("left", left, mirror[:, None] * rotation * mirror)):
        label = TORSO_LABELS[f"{part.organ}_{side}"] if part.labelled else 0
        yield Ellipsoid(_point(place), radii, part.hu, label, _rows(turn))


def rotation_matrix(tilt_deg: tuple[float, float, float]) -> Tensor:
    """(3, 3) right-handed rotation about R, then A, then S, in degrees."""
    result = torch.eye(3, dtype=torch.float64)
    for axis, angle in enumerate(math.radians(degrees) for degrees in tilt_deg):
        turn = torch.eye(3, dtype=torch.float64)
        first, second = (axis + 1) % 3, (axis + 2) % 3
        turn[first, first] = turn[second, second] = math.cos(angle)
        turn[second, first] = math.sin(angle)
        turn[first, second] = -math.sin(angle)
        result = turn @ result
    return result


def _point(values: Tensor) -> Point:
    x, y, z = values.tolist()
    return x, y, z


def _rows(rotation: Tensor) -> Rotation:
    return _point(rotation[0]), _point(rotation[1]), _point(rotation[2])
