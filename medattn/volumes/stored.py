"""``Stored``: what a reader of one format hands over, before it becomes an image or a label map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medattn.geometry import VoxelGrid
from medattn.geometry.affine import AXIS_NAMES
from medattn.volumes.errors import VolumeError
from medattn.volumes.notes import Note

MAX_BYTES = 8 << 30
"""How much memory the voxels of one file may take, as stored, unless the caller allows more."""

SPACING_MM = (1e-7, 1e6)
"""A voxel that is thinner (than an atom) or thicker (than a kilometre) is damage, or a wrong unit."""

MAX_ORIGIN_MM = 1e7
"""An origin that is further off is damage."""

Metadata = Mapping[str, str | tuple[str, ...]]


class Scaling(NamedTuple):
    """True value = slope * stored value + inter; numbers, or arrays that broadcast to (C, I, J, K)."""

    slope: float | NDArray[np.float64] = 1.0
    inter: float | NDArray[np.float64] = 0.0

    @property
    def is_identity(self) -> bool:
        """True if the stored values are the true ones."""
        return bool(np.all(self.slope == 1.0) and np.all(self.inter == 0.0))


@dataclass(frozen=True)
class ReadOptions:
    """What the caller of ``load_volume`` asked for, as far as readers need it."""

    labels: bool = False
    series: str | None = None
    regrid: bool = False
    max_bytes: int = MAX_BYTES


@dataclass(frozen=True)
class Stored:
    """Numbers as stored, ``values`` (C, I, J, K), their scaling, grid, and what was assumed.

    Attributes:
        values: in the file's type or a wider one, which holds the same numbers exactly; in any order in memory.
        file_dtype: the file's type, where ``values`` are of a wider one.
    """

    values: NDArray[Any]
    grid: VoxelGrid
    scaling: Scaling = Scaling()
    notes: list[Note] = field(default_factory=list)
    metadata: Metadata = field(default_factory=dict)
    file_dtype: np.dtype[Any] | None = None


def check_size(shape: Sequence[int], itemsize: int, max_bytes: int) -> int:
    """Bytes that ``shape`` takes; to be asked before anything of that size is allocated.

    Raises:
        VolumeError: if they are more than ``max_bytes``.
    """
    needed = math.prod(int(n) for n in shape) * itemsize
    if needed > max_bytes:
        raise VolumeError(
            f"shape {tuple(shape)} of {itemsize}-byte numbers needs {needed} bytes, over the limit of {max_bytes}; "
            "load_volume(..., max_bytes=...) raises it"
        )
    return needed


def stored_grid(shape: Sequence[int], affine: Any) -> VoxelGrid:
    """The grid of a file's shape (I, J, K) and RAS+ affine (4, 4).

    Raises:
        VolumeError: if they are no grid: an axis without voxels, an affine that is not finite, or singular; or none of
            this world, with voxels or an origin beyond ``SPACING_MM`` and ``MAX_ORIGIN_MM``.
    """
    try:
        grid = VoxelGrid((shape[0], shape[1], shape[2]), affine)
    except ValueError as error:
        raise VolumeError(str(error)) from error
    least, most = SPACING_MM
    for name, spacing in zip(AXIS_NAMES, grid.spacing_mm.tolist(), strict=True):
        if not least <= spacing <= most:
            raise VolumeError(f"the spacing of axis {name} must be {least:g} to {most:g} mm, got {spacing:g}")
    if not float(grid.origin_mm.abs().max()) <= MAX_ORIGIN_MM:
        raise VolumeError(f"the origin must be within {MAX_ORIGIN_MM:g} mm, got {grid.origin_mm.tolist()}")
    return grid
