"""Other ways to store or cut the same scan, and a header that lies: never an interpolation.

Each takes an array and the grid that it lies on and returns both, so that geometry cannot be lost on the way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.geometry.grid import as_triple

_OPPOSITE = {"L": "R", "R": "L", "P": "A", "A": "P", "I": "S", "S": "I"}


def flip_array(data: Tensor, grid: VoxelGrid, axis: int) -> tuple[Tensor, VoxelGrid]:
    """``data`` (C, I, J, K) stored in reverse along array axis ``axis`` (0, 1 or 2), and the grid that says so.

    Every value keeps its world position.

    Raises:
        ValueError: if ``axis`` is not 0, 1 or 2, or ``data`` is not (C, I, J, K) on ``grid``.
    """
    _check(data, grid)
    flipped = grid.flip(axis)
    return data.flip(axis + 1), flipped


def truncate(
    data: Tensor, grid: VoxelGrid, *, axis_code: str = "S", fraction: float = 1 / 3
) -> tuple[Tensor, VoxelGrid]:
    """Cut ``fraction`` of the field of view off at the end towards ``axis_code``: a scan that stopped early.

    "S" drops the top slices, whichever array axis runs along S and in whichever direction. The number of slices
    is rounded, a half up. What is left keeps its world position, but the centre of the field of view moves.

    Args:
        data: (C, I, J, K). A view of it is returned.
        axis_code: one of L, R, P, A, I, S.
        fraction: 0 <= fraction < 1.

    Raises:
        ValueError: for another code or fraction, if no slice would be left, or if ``data`` is not (C, I, J, K) on
            ``grid``.
    """
    _check(data, grid)
    if axis_code not in _OPPOSITE:
        raise ValueError(f"axis_code must be one of {', '.join(_OPPOSITE)}, got {axis_code!r}")
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction must be >= 0 and < 1, got {fraction!r}")
    codes = grid.axcodes
    axis = next(a for a, code in enumerate(codes) if code in (axis_code, _OPPOSITE[axis_code]))
    size = grid.shape[axis]
    dropped = math.floor(fraction * size + 0.5)
    if dropped == size:
        raise ValueError(f"fraction must leave at least one of the {size} slices along {axis_code}, got {fraction!r}")
    start, stop = [0, 0, 0], list(grid.shape)
    if codes[axis] == axis_code:
        stop[axis] -= dropped
    else:
        start[axis] += dropped
    return data.narrow(axis + 1, start[axis], size - dropped), grid.crop(start, stop)


def permuted_spacing_header(grid: VoxelGrid, order: Sequence[int] = (2, 0, 1)) -> VoxelGrid:
    """The grid that a wrong header tells: array axis a gets the spacing of axis ``order[a]``.

    Shape, axis directions and the centre of the field of view stay, as do the data, which were never on this grid.
    With (2, 0, 1), 4 x 4 x 12 mm is told as 12 x 4 x 4 mm.

    Raises:
        ValueError: if ``order`` is not a permutation of (0, 1, 2).
    """
    axes = as_triple(order, "order", minimum=0)
    if sorted(axes) != [0, 1, 2]:
        raise ValueError(f"order must be a permutation of (0, 1, 2), got {order!r}")
    return grid.with_spacing(grid.spacing_mm[list(axes)])


def _check(data: Tensor, grid: VoxelGrid) -> None:
    if data.ndim != 4 or tuple(data.shape[1:]) != grid.shape:
        raise ValueError(f"data must be (C, I, J, K) on a grid of shape {grid.shape}, got {tuple(data.shape)}")
