"""A solid ellipsoid in millimetres: the one shape that scenes are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Point = tuple[float, float, float]
Rotation = tuple[Point, Point, Point]

SURFACE = 1.0 + 1e-9
"""Points of the unit sphere have squared distance up to this: rounding in an affine must not decide who is inside."""


@dataclass(frozen=True)
class Ellipsoid:
    """A solid ellipsoid of one intensity and one label; points on its surface belong to it.

    Attributes:
        center_mm: RAS+ mm.
        radii_mm: semi-axes, mm.
        intensity: in the scene's unit (HU for CT).
        label: >= 0; 0 is unlabelled tissue.
        rotation: (3, 3) orthonormal; column a is the direction, in RAS, of the semi-axis ``radii_mm[a]``.
            None: the semi-axes lie along R, A and S.

    Raises:
        ValueError: naming the field, if a value is not finite, a radius not positive, the label negative or no
            integer, or the rotation not orthonormal (1e-6).
    """

    center_mm: Point
    radii_mm: Point
    intensity: float
    label: int = 0
    rotation: Rotation | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "center_mm", _point("center_mm", self.center_mm))
        object.__setattr__(self, "radii_mm", _point("radii_mm", self.radii_mm))
        object.__setattr__(self, "intensity", finite("intensity", self.intensity))
        if min(self.radii_mm) <= 0:
            raise ValueError(f"radii_mm must be positive, got {self.radii_mm}")
        if isinstance(self.label, bool) or not hasattr(self.label, "__index__") or int(self.label) < 0:
            raise ValueError(f"label must be an integer >= 0, got {self.label!r}")
        object.__setattr__(self, "label", int(self.label))
        if self.rotation is not None:
            object.__setattr__(self, "rotation", _rotation(self.rotation))

    def to_unit_sphere(self) -> Tensor:
        """(3, 3) float64 W: a point p is inside where |W (p - center_mm)| <= 1."""
        inverse = 1 / torch.tensor(self.radii_mm, dtype=torch.float64)
        if self.rotation is None:
            return torch.diag(inverse)
        return inverse[:, None] * torch.tensor(self.rotation, dtype=torch.float64).T


def finite(name: str, value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return number


def _point(name: str, value: Any) -> Point:
    items = [finite(name, v) for v in value]
    if len(items) != 3:
        raise ValueError(f"{name} must be three numbers, got {value!r}")
    return items[0], items[1], items[2]


def _rotation(value: Any) -> Rotation:
    rows = [_point("rotation", row) for row in value]
    matrix = torch.tensor(rows, dtype=torch.float64)
    if len(rows) != 3 or float((matrix.T @ matrix - torch.eye(3, dtype=torch.float64)).abs().max()) > 1e-6:
        raise ValueError(f"rotation must be a (3, 3) matrix with orthonormal columns, got {value!r}")
    return rows[0], rows[1], rows[2]
