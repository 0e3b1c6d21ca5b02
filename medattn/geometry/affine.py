"""Pure functions on 4x4 affines that map voxel indices (centres) to RAS+ millimetres.

Everything is float64 on the CPU: geometry is small, and a millimetre lost here is lost everywhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

AXIS_NAMES = ("i", "j", "k")
_CODES = (("L", "R"), ("P", "A"), ("I", "S"))  # (negative, positive) end of each RAS axis


def validated_affine(affine: Any) -> Tensor:
    """Return ``affine`` as a (4, 4) float64 CPU tensor of its own.

    Raises:
        ValueError: if it is not 4x4, not finite, not affine (last row 0 0 0 1) or singular.
    """
    try:
        matrix = torch.as_tensor(affine)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"affine must be a (4, 4) array of numbers, got {affine!r}") from error
    matrix = matrix.detach().to("cpu", torch.float64, copy=True)
    if matrix.shape != (4, 4):
        raise ValueError(f"affine must have shape (4, 4), got {tuple(matrix.shape)}")
    if not bool(torch.isfinite(matrix).all()):
        raise ValueError(f"affine must be finite, got {matrix.tolist()}")
    if matrix[3].tolist() != [0.0, 0.0, 0.0, 1.0]:
        raise ValueError(f"affine's last row must be (0, 0, 0, 1), got {matrix[3].tolist()}")
    lengths = column_norms(matrix)
    for name, length in zip(AXIS_NAMES, lengths.tolist(), strict=True):
        if length <= 0.0:
            raise ValueError(f"affine is singular: its column for axis {name} is zero, so the spacing is 0 mm")
    volume_ratio = float(torch.linalg.det(matrix[:3, :3] / lengths).abs())
    if volume_ratio < 1e-6:
        raise ValueError(f"affine is singular: its columns are not independent, got {matrix[:3, :3].tolist()}")
    return matrix


def column_norms(affine: Tensor) -> Tensor:
    """Voxel spacing in mm, (3,): the column norms of ``affine`` (row norms are wrong for permuted axes)."""
    return torch.linalg.vector_norm(affine[:3, :3], dim=0)


def apply_affine(affine: Tensor, points: Any) -> Tensor:
    """Map ``points`` (..., 3) through ``affine``; float64 in and out."""
    points = torch.as_tensor(points, dtype=torch.float64)
    if points.shape[-1:] != (3,):
        raise ValueError(f"points must have shape (..., 3), got {tuple(points.shape)}")
    # Elementwise sums, not a matmul: the result for one point must not depend on how many come with it.
    x, y, z = points.split(1, dim=-1)
    return x * affine[:3, 0] + y * affine[:3, 1] + z * affine[:3, 2] + affine[:3, 3]


def translation(offset: Any) -> Tensor:
    """(4, 4) affine that adds ``offset`` (3,)."""
    return scaling_translation((1.0, 1.0, 1.0), offset)


def scaling_translation(scale: Any, offset: Any) -> Tensor:
    """(4, 4) affine x -> scale * x + offset, both (3,)."""
    matrix = torch.diag(torch.cat([torch.as_tensor(scale, dtype=torch.float64), torch.ones(1, dtype=torch.float64)]))
    matrix[:3, 3] = torch.as_tensor(offset, dtype=torch.float64)
    return matrix


def closest_axes(affine: Tensor) -> list[tuple[int, int]]:
    """For each array axis, the (RAS axis, sign) it runs along most closely, each RAS axis used once.

    The rule of nibabel's ``io_orientation``, so that ambiguous (doubly oblique, sheared) affines get the same codes
    here and there: directions of the nearest rotation (polar decomposition), the best aligned array axis first.
    """
    left, _, right = torch.linalg.svd(affine[:3, :3] / column_norms(affine))
    cosines = (left @ right).tolist()  # [RAS axis][array axis]
    closest: dict[int, int] = {}
    for axis in sorted(range(3), key=lambda a: -max(abs(row[a]) for row in cosines)):
        free = [world for world in range(3) if world not in closest.values()]
        closest[axis] = max(free, key=lambda world: abs(cosines[world][axis]))
    return [(closest[axis], 1 if cosines[closest[axis]][axis] > 0 else -1) for axis in range(3)]


def axis_codes(affine: Tensor) -> tuple[str, str, str]:
    """Letters of the RAS end that each array axis points to, for example ("L", "P", "S")."""
    first, second, third = (_CODES[world][(sign + 1) // 2] for world, sign in closest_axes(affine))
    return first, second, third


def parse_axis_codes(codes: Any) -> list[tuple[int, int]]:
    """Turn codes such as "RAS" or ("L", "P", "S") into [(RAS axis, sign), ...].

    Raises:
        ValueError: if they are not three letters, one of each of L/R, P/A, I/S.
    """
    letters = [str(letter).upper() for letter in codes]
    found = [(world, 2 * pair.index(c) - 1) for c in letters for world, pair in enumerate(_CODES) if c in pair]
    if len(letters) != 3 or sorted(world for world, _ in found) != [0, 1, 2]:
        raise ValueError(f"axcodes must be one of each of L/R, P/A and I/S, such as 'RAS', got {codes!r}")
    return found
