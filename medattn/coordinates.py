"""From a voxel grid to the coordinates of its patch tokens, in a named frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from medattn.geometry.grid import VoxelGrid

SCANNER_ORIGIN_MM = (0.0, 0.0, 0.0)


class Frame(StrEnum):
    """What a token's coordinate means. Every frame but the first gives (N, 3), in array or world axes.

    Unless said otherwise the origin is the centre of the whole volume's field of view, or the point ``origin_mm``.
    """

    SEQUENCE = "sequence"
    """(N, 1): place in the flattened (raster) token list, from 0. Knows nothing of space."""
    INDEX = "index"
    """Voxel index along the array axes; unit: one voxel (a patch of 4 advances by 4)."""
    FRACTION = "fraction"
    """Fraction of the whole volume's field of view along the array axes, -0.5 to 0.5 edge to edge."""
    MM = "mm"
    """Millimetres along the array axes: voxel index times spacing."""
    PATIENT_MM = "patient_mm"
    """Millimetres along the patient's axes (R, A, S), through the affine: the same for a flipped or oblique scan."""
    SCANNER_MM = "scanner_mm"
    """World (RAS+) millimetres as the affine gives them; the origin is the scanner's."""

    @classmethod
    def parse(cls, value: Any) -> Frame:
        """A ``Frame`` from its value; the error lists the valid ones."""
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(frame.value for frame in cls)
            raise ValueError(f"frame must be one of {names}, got {value!r}") from None

    @property
    def is_array_aligned(self) -> bool:
        """True if the coordinate axes are the array's, so a flip of the array flips them."""
        return self in (Frame.INDEX, Frame.FRACTION, Frame.MM)


def token_coordinates(
    grid: VoxelGrid,
    patch_size: int | Sequence[int],
    frame: Frame | str,
    *,
    reference: VoxelGrid | None = None,
    origin_mm: Any = None,
) -> Tensor:
    """Coordinates of the patch tokens of ``grid``, float64, in raster order (i slowest, k fastest).

    A token's coordinate is the mean of its voxels' centres.

    Args:
        reference: the whole volume's grid, if ``grid`` is a crop or a window of it; its field of view gives the
            origin and the fraction's unit, and its axes are the array axes. Not used by "sequence" and "scanner_mm".
        origin_mm: a point in RAS+ mm to measure from (a landmark, the body's centroid; ``SCANNER_ORIGIN_MM`` for the
            scanner's), instead of the centre of the field of view.

    Returns:
        (N, 3), or (N, 1) for "sequence".

    Raises:
        ValueError: for an unknown frame, or an origin with "sequence" or "scanner_mm", which have their own.
    """
    frame = Frame.parse(frame)
    tokens = grid.patch_grid(patch_size)
    if frame in (Frame.SEQUENCE, Frame.SCANNER_MM) and origin_mm is not None:
        raise ValueError(f"frame {frame.value!r} has its own origin; origin_mm must be None, got {origin_mm!r}")
    if frame is Frame.SEQUENCE:
        count = tokens.shape[0] * tokens.shape[1] * tokens.shape[2]
        return torch.arange(count, dtype=torch.float64)[:, None]
    world = tokens.to_world(tokens.indices().reshape(-1, 3))
    if frame is Frame.SCANNER_MM:
        return world
    whole = grid if reference is None else reference
    if frame is Frame.PATIENT_MM:
        return world - (whole.fov_center_mm if origin_mm is None else _point(origin_mm))
    index = whole.to_index(world) - (whole.center_index if origin_mm is None else whole.to_index(_point(origin_mm)))
    if frame is Frame.MM:
        return index * whole.spacing_mm
    if frame is Frame.FRACTION:
        return index / torch.tensor(whole.shape, dtype=torch.float64)
    return index


def token_steps(
    grid: VoxelGrid, patch_size: int | Sequence[int], frame: Frame | str, *, reference: VoxelGrid | None = None
) -> Tensor:
    """(3, A) float64: how ``token_coordinates`` changes from a token to the next along array axis 0, 1, 2.

    Patches touch, so these are also the edges of a patch. On an oblique grid in "patient_mm" they lie along no axis.
    """
    frame = Frame.parse(frame)
    tokens = grid.patch_grid(patch_size)
    if frame is Frame.SEQUENCE:
        return torch.tensor([[tokens.shape[1] * tokens.shape[2]], [tokens.shape[2]], [1]], dtype=torch.float64)
    world = tokens.affine[:3, :3].T
    if frame in (Frame.PATIENT_MM, Frame.SCANNER_MM):
        return world
    whole = grid if reference is None else reference
    index = torch.linalg.solve(whole.affine[:3, :3], world.T).T
    if frame is Frame.MM:
        return index * whole.spacing_mm
    if frame is Frame.FRACTION:
        return index / torch.tensor(whole.shape, dtype=torch.float64)
    return index


def _point(value: Any) -> Tensor:
    point = torch.as_tensor(value, dtype=torch.float64).cpu()
    if point.shape != (3,) or not bool(torch.isfinite(point).all()):
        raise ValueError(f"origin_mm must be one finite point (3,) in RAS+ mm, got {value!r}")
    return point


@dataclass(frozen=True)
class CoordinateJitter:
    """Random shift of the origin and per-axis rescaling of the told spacing: what makes position inexact on purpose.

    Attributes:
        shift_mm: the origin moves by uniform(-shift_mm, shift_mm) along each patient axis.
        scale: each array axis' told spacing is multiplied by exp(uniform(-log(1 + scale), log(1 + scale))).
    """

    shift_mm: float = 0.0
    scale: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("shift_mm", self.shift_mm), ("scale", self.scale)):
            if not (0 <= value < float("inf")):
                raise ValueError(f"{name} must be finite and >= 0, got {value!r}")

    def draw(self, whole: VoxelGrid, generator: torch.Generator) -> tuple[VoxelGrid, Tensor]:
        """(told grid of the whole volume, origin in its RAS mm). Always takes six numbers from ``generator``."""
        uniform = 2 * torch.rand(6, generator=generator, dtype=torch.float64) - 1
        factors = torch.exp(uniform[:3] * torch.log1p(torch.tensor(self.scale, dtype=torch.float64)))
        told = whole.with_spacing(whole.spacing_mm * factors)
        return told, told.fov_center_mm + self.shift_mm * uniform[3:]
