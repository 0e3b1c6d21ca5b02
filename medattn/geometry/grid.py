"""``VoxelGrid``: where the voxels of an array are, and the exact grid after every operation on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from medattn.geometry import affine as _affine
from medattn.geometry.affine import AXIS_NAMES

Triple = tuple[int, int, int]


def as_triple(value: Any, name: str, *, minimum: int) -> Triple:
    """Three ints from one int or three; the error names ``name``, the requirement and the value."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Iterable) and not isinstance(value, str):
        items = [v.item() if isinstance(v, Tensor) else v for v in value]
    else:
        items = [value] * 3
    whole = all(not isinstance(v, bool) and hasattr(v, "__index__") and int(v) >= minimum for v in items)
    if len(items) != 3 or not whole:
        wanted = "positive" if minimum == 1 else f">= {minimum}"
        raise ValueError(f"{name} must be {wanted} integers, one or three of them, got {value!r}")
    return int(items[0]), int(items[1]), int(items[2])


def _axis(axis: int) -> int:
    if axis not in (0, 1, 2):
        raise ValueError(f"axis must be 0, 1 or 2, got {axis!r}")
    return axis


def as_spacing_mm(value: Any, name: str = "spacing_mm") -> tuple[float, float, float]:
    """Three positive finite floats from one number or three."""
    value = value.tolist() if hasattr(value, "tolist") else value
    items = [float(v) for v in value] if isinstance(value, Iterable) else [float(value)] * 3
    if len(items) != 3 or not all(math.isfinite(v) and v > 0 for v in items):
        raise ValueError(f"{name} must be positive and finite, one or three numbers in mm, got {value!r}")
    return items[0], items[1], items[2]


class _OwnAffine:
    """A checked affine that gives out copies: what a caller does to one in place cannot reach the grid."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = f"_{name}"

    def __get__(self, instance: object, owner: type | None = None) -> Tensor:
        if instance is None:  # so that a dataclass sees no default
            raise AttributeError(self._key)
        copy: Tensor = instance.__dict__[self._key].clone()
        return copy

    def __set__(self, instance: object, value: Any) -> None:
        instance.__dict__[self._key] = _affine.validated_affine(value)


@dataclass(frozen=True, eq=False)
class VoxelGrid:
    """A regular grid of voxels: ``shape`` (I, J, K) and ``affine`` (4, 4; any array), index -> RAS+ mm.

    An integer index is a voxel's **centre**, so voxel 0 reaches from index -0.5 to 0.5. The affine is kept as
    float64 on the CPU. Every operation returns the exact new grid.

    Raises:
        ValueError: if the shape is not three positive integers, or the affine is not finite or is singular.
    """

    shape: Triple
    affine: _OwnAffine = _OwnAffine()

    def __post_init__(self) -> None:
        if not isinstance(self.shape, Iterable) or np.ndim(self.shape) != 1 or len(tuple(self.shape)) != 3:
            raise ValueError(f"shape must be three positive integers (I, J, K), got {self.shape!r}")
        object.__setattr__(self, "shape", as_triple(self.shape, "shape", minimum=1))

    @classmethod
    def from_spacing(cls, shape: Sequence[int], spacing_mm: Any, *, center_mm: Any = (0.0, 0.0, 0.0)) -> VoxelGrid:
        """A grid along the RAS axes whose field of view is centred on ``center_mm``."""
        spacing = torch.tensor(as_spacing_mm(spacing_mm), dtype=torch.float64)
        middle = (torch.tensor(as_triple(shape, "shape", minimum=1), dtype=torch.float64) - 1) / 2
        origin = torch.as_tensor(center_mm, dtype=torch.float64) - spacing * middle
        return cls(as_triple(shape, "shape", minimum=1), _affine.scaling_translation(spacing, origin))

    # -- what it is ----------------------------------------------------------------------------------

    @property
    def spacing_mm(self) -> Tensor:
        """Distance between voxel centres along each array axis, (3,) mm."""
        return _affine.column_norms(self.affine)

    @property
    def direction(self) -> Tensor:
        """(3, 3): column a is the unit vector, in RAS, of array axis a."""
        return self.affine[:3, :3] / self.spacing_mm

    @property
    def origin_mm(self) -> Tensor:
        """World position of voxel (0, 0, 0), (3,) mm."""
        return self.affine[:3, 3].clone()

    @property
    def extent_mm(self) -> Tensor:
        """Edge-to-edge length of the field of view along each array axis, (3,) mm."""
        return self.spacing_mm * torch.tensor(self.shape, dtype=torch.float64)

    @property
    def center_index(self) -> Tensor:
        """Index of the centre of the field of view, (3,); fractional for even shapes."""
        return (torch.tensor(self.shape, dtype=torch.float64) - 1) / 2

    @property
    def fov_center_mm(self) -> Tensor:
        """World position of the centre of the field of view, (3,) mm."""
        return self.to_world(self.center_index)

    @property
    def axcodes(self) -> tuple[str, str, str]:
        """Closest RAS letters of the array axes, for example ("R", "A", "S")."""
        return _affine.axis_codes(self.affine)

    @property
    def is_orthogonal(self) -> bool:
        """False for a sheared grid (gantry tilt): its axes do not meet at right angles (1e-4)."""
        gram = self.direction.T @ self.direction
        return bool((gram - torch.eye(3, dtype=torch.float64)).abs().max() < 1e-4)

    def to_world(self, index: Any) -> Tensor:
        """Voxel indices (..., 3) -> RAS+ mm (..., 3), float64."""
        return _affine.apply_affine(self.affine, index)

    def to_index(self, world_mm: Any) -> Tensor:
        """RAS+ mm (..., 3) -> fractional voxel indices (..., 3), float64: the inverse of ``to_world``."""
        return _affine.apply_affine(torch.linalg.inv(self.affine), world_mm)

    def indices(self) -> Tensor:
        """Index of each voxel, (I, J, K, 3) float64, in array (raster) order."""
        axes = [torch.arange(n, dtype=torch.float64) for n in self.shape]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)

    def is_close(self, other: VoxelGrid, *, atol_mm: float = 1e-3) -> bool:
        """Same shape, and every voxel within ``atol_mm`` of its counterpart."""
        if self.shape != other.shape:
            return False
        corners = torch.cartesian_prod(*(torch.tensor([0.0, n - 1.0], dtype=torch.float64) for n in self.shape))
        return bool((self.to_world(corners) - other.to_world(corners)).norm(dim=-1).max() <= atol_mm)

    # -- what becomes of it --------------------------------------------------------------------------

    def _moved(self, shape: Sequence[int], inner: Tensor) -> VoxelGrid:
        return VoxelGrid((shape[0], shape[1], shape[2]), self.affine @ inner)

    def patch_grid(self, patch_size: int | Sequence[int]) -> VoxelGrid:
        """Grid of patch tokens: voxel = patch, index = patch centre, the mean of its voxels' centres.

        A shape that is no multiple of the patch is covered to its end (ceil): the last patch reaches past it.
        """
        patch = as_triple(patch_size, "patch_size", minimum=1)
        shape = [-(-n // p) for n, p in zip(self.shape, patch, strict=True)]
        return self._moved(shape, _affine.scaling_translation(patch, [(p - 1) / 2 for p in patch]))

    def crop(self, start: Sequence[int], stop: Sequence[int]) -> VoxelGrid:
        """Voxels ``start`` (inclusive) to ``stop`` (exclusive) along each axis, as array slicing does."""
        first, last = as_triple(start, "start", minimum=0), as_triple(stop, "stop", minimum=0)
        for name, a, b, n in zip(AXIS_NAMES, first, last, self.shape, strict=True):
            if not a < b <= n:
                raise ValueError(f"crop on axis {name} must satisfy 0 <= start < stop <= {n}, got {a} to {b}")
        return self._moved([b - a for a, b in zip(first, last, strict=True)], _affine.translation(first))

    def pad(self, before: int | Sequence[int], after: int | Sequence[int]) -> VoxelGrid:
        """Add voxels before and after along each axis."""
        low, high = as_triple(before, "before", minimum=0), as_triple(after, "after", minimum=0)
        shape = [a + n + b for a, n, b in zip(low, self.shape, high, strict=True)]
        return self._moved(shape, _affine.translation([-a for a in low]))

    def flip(self, axis: int) -> VoxelGrid:
        """Reverse one array axis, as ``torch.flip`` does."""
        axis = _axis(axis)
        scale, offset = [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]
        scale[axis], offset[axis] = -1.0, self.shape[axis] - 1.0
        return self._moved(self.shape, _affine.scaling_translation(scale, offset))

    def permute(self, axes: Sequence[int]) -> VoxelGrid:
        """Reorder array axes, as ``Tensor.permute`` does: new axis a is old axis ``axes[a]``."""
        if sorted(axes) != [0, 1, 2]:
            raise ValueError(f"axes must be a permutation of (0, 1, 2), got {tuple(axes)}")
        inner = torch.eye(4, dtype=torch.float64)[:, [*axes, 3]]
        return self._moved([self.shape[a] for a in axes], inner)

    def orientation_to(self, axcodes: Any) -> tuple[Triple, tuple[int, ...]]:
        """(axes, flips) that bring an array on this grid to ``axcodes``: permute by axes, then flip those axes."""
        mine, wanted = _affine.closest_axes(self.affine), _affine.parse_axis_codes(axcodes)
        axes = [next(a for a, (world, _) in enumerate(mine) if world == w) for w, _ in wanted]
        flips = tuple(a for a, (_, sign) in enumerate(wanted) if mine[axes[a]][1] != sign)
        return (axes[0], axes[1], axes[2]), flips

    def reoriented(self, axcodes: Any) -> VoxelGrid:
        """Permute and flip (never interpolate) until the axes point to ``axcodes``, for example "RAS"."""
        axes, flips = self.orientation_to(axcodes)
        grid = self.permute(axes)
        for axis in flips:
            grid = grid.flip(axis)
        return grid

    def with_spacing(self, spacing_mm: Any) -> VoxelGrid:
        """The same voxels said to be ``spacing_mm`` apart (one number or three): shape, directions and centre stay.

        Not a resampling: it is what a header tells, so it is the tool for wrong and for jittered headers.
        """
        factors = torch.tensor(as_spacing_mm(spacing_mm), dtype=torch.float64) / self.spacing_mm
        return self._moved(self.shape, _affine.scaling_translation(factors, self.center_index * (1 - factors)))

    def resampled(self, spacing_mm: Any) -> VoxelGrid:
        """Same field of view and centre at exactly ``spacing_mm`` (one number or three, array axes).

        The extent rule: n = max(1, round(extent / spacing)) voxels, so the field of view changes by at most half
        a new voxel (more only where one voxel is thicker than all of it), its centre not at all; the origin moves,
        as it must, inside the affine. A half (to .01 voxel, so that header noise cannot decide) rounds up.
        """
        spacing = torch.tensor(as_spacing_mm(spacing_mm), dtype=torch.float64)
        counts = self.extent_mm / spacing
        shape = [max(1, math.floor(n + 0.51)) for n in counts.tolist()]
        ratio = spacing / self.spacing_mm
        middle = (torch.tensor(shape, dtype=torch.float64) - 1) / 2
        return self._moved(shape, _affine.scaling_translation(ratio, self.center_index - ratio * middle))
