"""From the numbers in a NIfTI header to a grid in RAS+ millimetres.

Works on the fields as they stand in the file: libraries repair headers while reading them (a pixdim of 0 becomes 1, a
negative one positive), which hides what must be an error here.
Source: the comments of nifti1.h, and nibabel's order of preference (sform, qform, neither).
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.geometry.affine import AXIS_NAMES
from medattn.volumes.errors import VolumeError
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.stored import stored_grid

FORM_TOLERANCE_MM = 1e-3
"""Two forms are the same geometry if no voxel's positions differ by more than this, and what a quaternion loses."""

_QUATERNION_SLACK = 1e-3
_QUATERNION_EPS = 2.0**-23  # how far b*b + c*c + d*d, rounded to float32, may be off
_MM_PER_UNIT = {0: 1.0, 1: 1000.0, 2: 1.0, 3: 0.001}  # unknown, metre, millimetre, micrometre
_SPATIAL_UNIT_BITS = 0x07


class Header(Protocol):
    """Anything that gives the value of a NIfTI header field by its name."""

    def __getitem__(self, field: str, /) -> Any: ...


def grid_from_header(header: Header, shape: tuple[int, int, int]) -> tuple[VoxelGrid, list[Note]]:
    """The grid that ``header`` describes, and what had to be assumed.

    The sform is used if its code is > 0, else the qform if its code is > 0, else spacing alone. Units other than mm
    scale the whole affine.

    Raises:
        VolumeError: for an unknown unit, or a number that is needed and is not finite, not positive, or singular.
    """
    scale, notes = _unit_scale(header)
    sform_code, qform_code = int(header["sform_code"]), int(header["qform_code"])
    if sform_code > 0:
        grid = _grid(shape, sform_affine(header), scale)
        if qform_code > 0:
            notes += _compare(grid, header, scale)
    elif qform_code > 0:
        grid = _grid(shape, qform_affine(header), scale)
    else:
        grid = _grid(shape, torch.diag(torch.tensor([*_pixdim(header), 1.0], dtype=torch.float64)), scale)
        message = "sform and qform codes are both 0: spacing is from pixdim, axes are taken as R, A, S, origin as 0"
        notes.append(Note(NoteKind.ORIENTATION_UNKNOWN, message))
    return grid, notes


def _unit_scale(header: Header) -> tuple[float, list[Note]]:
    code = int(header["xyzt_units"]) & _SPATIAL_UNIT_BITS
    if code not in _MM_PER_UNIT:
        raise VolumeError(f"xyzt_units must have spatial unit 0 (unknown), 1 (m), 2 (mm) or 3 (um), got {code}")
    if code == 0:
        return 1.0, [Note(NoteKind.UNITS_ASSUMED, "xyzt_units names no unit of length: mm is assumed")]
    return _MM_PER_UNIT[code], []


def _grid(shape: tuple[int, int, int], affine: Tensor, scale: float) -> VoxelGrid:
    scaled = affine.clone()
    scaled[:3] *= scale  # spacing and origin alike
    return stored_grid(shape, scaled)


def sform_affine(header: Header) -> Tensor:
    """(4, 4) affine of the srow_x, srow_y and srow_z fields, in the header's units.

    Raises:
        VolumeError: if a row is not finite, or has no axis (all zero), naming it.
    """
    affine = torch.eye(4, dtype=torch.float64)
    for world, name in enumerate("xyz"):
        row = [float(v) for v in header[f"srow_{name}"]]
        if not all(math.isfinite(v) for v in row):
            raise VolumeError(f"sform row srow_{name} (world axis {name}) must be finite, got {row}")
        if row[:3] == [0.0, 0.0, 0.0]:
            raise VolumeError(f"sform is singular: row srow_{name} (world axis {name}) has no extent, got {row}")
        affine[world] = torch.tensor(row, dtype=torch.float64)
    return affine


def qform_affine(header: Header) -> Tensor:
    """(4, 4) affine of the quaternion, pixdim, qfac and qoffset fields, in the header's units.

    Raises:
        VolumeError: if one of them is not finite, a pixdim is not positive, qfac is neither 1 nor -1 (0 and other
            positive numbers count as 1), or the quaternion is no rotation.
    """
    affine = torch.eye(4, dtype=torch.float64)
    spacing = torch.tensor(_pixdim(header), dtype=torch.float64)
    spacing[2] *= _qfac(header)
    affine[:3, :3] = _rotation(*(_finite(header, f"quatern_{name}") for name in "bcd")) * spacing
    affine[:3, 3] = torch.tensor([_finite(header, f"qoffset_{name}") for name in "xyz"], dtype=torch.float64)
    return affine


def _qfac(header: Header) -> float:
    """-1 if the third axis is reversed, else 1, which 0 and other positive numbers count as."""
    qfac = float(header["pixdim"][0])
    if not (qfac >= 0 or qfac == -1):  # some libraries go by the sign, others take all but -1 for 1
        raise VolumeError(f"pixdim[0], qfac, must be 1 or -1 where the qform is used, got {qfac}")
    return -1.0 if qfac == -1 else 1.0


def _finite(header: Header, field: str) -> float:
    value = float(header[field])
    if not math.isfinite(value):
        raise VolumeError(f"qform field {field} must be finite, got {value}")
    return value


def _pixdim(header: Header) -> list[float]:
    spacing = [float(v) for v in header["pixdim"][1:4]]
    for number, (axis, value) in enumerate(zip(AXIS_NAMES, spacing, strict=True), start=1):
        if not (math.isfinite(value) and value > 0):
            raise VolumeError(f"pixdim[{number}], the spacing of axis {axis}, must be positive and finite, got {value}")
    return spacing


def _rotation(b: float, c: float, d: float) -> Tensor:
    """(3, 3) rotation of the unit quaternion (a, b, c, d) with a >= 0."""
    length = math.hypot(b, c, d)
    if length > 1 + _QUATERNION_SLACK:
        raise VolumeError(f"qform quaternion (b, c, d) must have a length of at most 1, got {(b, c, d)}")
    if length > 1:  # rounding to float32: half a turn
        b, c, d = b / length, c / length, d / length
    a = math.sqrt(max(0.0, 1 - (b * b + c * c + d * d)))
    rows = [
        [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
        [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
        [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
    ]
    return torch.tensor(rows, dtype=torch.float64)


def _compare(grid: VoxelGrid, header: Header, scale: float) -> list[Note]:
    """A warning if the qform says something else than ``grid``, the sform's."""
    try:
        other = _grid(grid.shape, qform_affine(header), scale)
    except ValueError as error:
        message = f"the sform is used; the qform also has a code > 0, but cannot be read: {error}"
        return [Note(NoteKind.FORMS_DISAGREE, message, {"sform": _rows(grid), "qform": None})]
    if grid.is_close(other, atol_mm=FORM_TOLERANCE_MM + _quaternion_error_mm(header, grid)):
        return []
    message = (
        f"sform (code {int(header['sform_code'])}) and qform (code {int(header['qform_code'])}) differ; the sform is "
        f"used. In mm, sform: {_rounded(grid)}, qform: {_rounded(other)}"
    )
    return [Note(NoteKind.FORMS_DISAGREE, message, {"sform": _rows(grid), "qform": _rows(other)})]


def _quaternion_error_mm(header: Header, grid: VoxelGrid) -> float:
    """How far rounding b, c and d to float32 can move a corner: near half a turn a is small, and its error is not."""
    square = max(0.0, 1 - sum(float(header[f"quatern_{name}"]) ** 2 for name in "bcd"))
    error = math.sqrt(square + _QUATERNION_EPS) - math.sqrt(max(0.0, square - _QUATERNION_EPS))
    return 2 * error * float(grid.extent_mm.norm())


def _rows(grid: VoxelGrid) -> list[list[float]]:
    return (grid.affine + 0.0).tolist()  # + 0.0 turns -0.0 into 0.0


def _rounded(grid: VoxelGrid) -> list[list[float]]:
    return (grid.affine.round(decimals=4) + 0.0).tolist()
