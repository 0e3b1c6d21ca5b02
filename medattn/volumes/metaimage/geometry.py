"""From the fields of a MetaImage header to a grid in RAS+ millimetres.

The file's frame is LPS, as in ITK, whatever AnatomicalOrientation says. The rows of TransformMatrix are the directions
of the axes; voxel (i, j, k) lies at Offset + the sum of index * ElementSpacing * row. CenterOfRotation is not used, as
in ITK. Source: the MetaIO documentation, and what ITK 5.4 does with each field.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from medattn.geometry import VoxelGrid
from medattn.geometry.affine import AXIS_NAMES, parse_axis_codes
from medattn.volumes.errors import VolumeError
from medattn.volumes.lps import exchanged
from medattn.volumes.metaimage.header import dimensions, one_of
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.stored import Scaling, stored_grid
from medattn.volumes.text_header import Header, reals, shown

Floats = NDArray[np.float64]

_MATRIX = ("TransformMatrix", "Rotation", "Orientation")
_ORIGIN = ("Offset", "Origin", "Position")
_MM_PER_UNIT = {"mm": 1.0, "cm": 10.0, "m": 1000.0, "um": 1e-3}
_NO_UNIT = ("", "?")
_UNIT_LENGTH_TOLERANCE = 1e-4
_ALONG = 0.25
"""Cosine of the largest angle between an axis and what it is said to run along. The nearest ones, each taken once, have
a cosine of at least 0.28."""


@np.errstate(all="ignore")  # what overflows is not finite, and refused as that
def read_geometry(header: Header, shape: tuple[int, int, int]) -> tuple[VoxelGrid, list[Note]]:
    """The grid of a header for ``shape`` (I, J, K), and what had to be assumed.

    Raises:
        VolumeError: for an unknown unit, or a number that is missing, not finite, zero where it is a spacing, or
            makes the axes dependent.
    """
    spacing, notes = _spacing(header)
    affine = np.eye(4)
    affine[:3, 3], origin_notes = _origin(header)
    directions, direction_notes = _directions(header)
    affine[:3, :3] = directions * spacing
    scale, unit_notes = _scale(header)
    affine[:3] *= scale
    in_lps = one_of(header, _MATRIX) is not None or one_of(header, _ORIGIN) is not None  # not by spacing alone
    ras = exchanged(affine) if in_lps else affine
    grid = stored_grid(shape, torch.from_numpy(ras))
    return grid, [*notes, *unit_notes, *origin_notes, *direction_notes]


def read_scaling(header: Header) -> Scaling:
    """ElementToIntensityFunctionSlope and -Offset, which ITK passes over.

    Raises:
        VolumeError: if one is not finite, or the slope is 0.
    """
    fields = [f"ElementToIntensityFunction{name}" for name in ("Slope", "Offset")]
    slope, inter = (_finite(header, name, 1, text)[0] for name, text in zip(fields, ("1", "0"), strict=True))
    if slope == 0:
        raise VolumeError(f"{fields[0]} must not be 0")
    return Scaling(float(slope), float(inter))


def _finite(header: Header, name: str, count: int, default: str) -> Floats:
    values = reals(header.fields.get(name, default), name, count)
    if not all(math.isfinite(value) for value in values):
        raise VolumeError(f"{name} must be finite, got {values}")
    return np.array(values)


def _spacing(header: Header) -> tuple[Floats, list[Note]]:
    """Signed: as ITK does, an axis of negative spacing is reversed, and the first voxel stays where it is."""
    name = "ElementSpacing" if "ElementSpacing" in header.fields else "ElementSize"
    text = header.fields.get(name)
    if text is None:
        raise VolumeError("the header must have ElementSpacing or ElementSize: nothing says how large a voxel is")
    spacing = reals(text, name, dimensions(header))[:3]
    for axis, value in zip(AXIS_NAMES, spacing, strict=True):
        if value == 0 or not math.isfinite(value):
            raise VolumeError(f"{name} of axis {axis} must be finite and not 0, got {value}")
    reversed_axes = [axis for axis, value in zip(AXIS_NAMES, spacing, strict=True) if value < 0]
    if not reversed_axes:
        return np.array(spacing), []
    message = (
        f"{name} is negative along {', '.join(reversed_axes)}, got {spacing}: taken as positive, with the axis reversed"
    )
    return np.array(spacing), [Note(NoteKind.FIELDS_DISAGREE, message, {"spacing": spacing})]


def _origin(header: Header) -> tuple[Floats, list[Note]]:
    text = one_of(header, _ORIGIN)
    if text is None:
        message = "there is no Offset, Origin or Position: the first voxel is taken to lie at 0"
        known = one_of(header, _MATRIX) is not None
        return np.zeros(3), [Note(NoteKind.ORIGIN_ASSUMED, message)] if known else []
    origin = reals(text, "Offset", dimensions(header))[:3]
    if not all(math.isfinite(value) for value in origin):
        raise VolumeError(f"Offset must be finite, got {origin}")
    return np.array(origin), []


def _directions(header: Header) -> tuple[Floats, list[Note]]:
    """(3, 3), whose columns are the directions of the axes in LPS, and what contradicts them."""
    text = one_of(header, _MATRIX)
    if text is None:
        where = "L, P, S" if one_of(header, _ORIGIN) is not None else "R, A, S, and the origin as 0"
        message = f"there is no TransformMatrix, Rotation or Orientation: axes are taken as {where}"
        return np.eye(3), [Note(NoteKind.ORIENTATION_UNKNOWN, message)]
    count = dimensions(header)
    matrix = np.array(reals(text, "TransformMatrix", count**2)).reshape(count, count)
    for axis, row in zip(AXIS_NAMES, matrix, strict=False):
        if not np.isfinite(row).all():
            raise VolumeError(f"TransformMatrix must be finite, got {row.tolist()} for axis {axis}")
    if count == 4 and (matrix[3, :3].any() or matrix[:3, 3].any()):
        raise VolumeError(f"TransformMatrix must keep the fourth axis apart from space, got {matrix.tolist()}")
    directions = matrix[:3, :3].T
    checks = (_compare_lengths(directions), _compare_centre(header, directions), _compare_letters(header, directions))
    return directions, [note for note in checks if note is not None]


def _compare_lengths(directions: Floats) -> Note | None:
    lengths = np.linalg.norm(directions, axis=0)
    if np.abs(lengths - 1).max() <= _UNIT_LENGTH_TOLERANCE:
        return None
    message = (
        f"the rows of TransformMatrix have lengths {lengths.tolist()}, not 1: spacing is ElementSpacing times these"
    )
    return Note(NoteKind.FIELDS_DISAGREE, message, {"lengths": lengths.tolist()})


def _compare_centre(header: Header, directions: Floats) -> Note | None:
    """A warning if turning about CenterOfRotation, instead of the first voxel, would move the volume."""
    name = "CenterOfRotation"
    centre = _finite(header, name, dimensions(header), " ".join("0" * dimensions(header)))[:3]
    if not np.abs(centre - directions @ centre).any():
        return None
    message = f"{name} {centre.tolist()} is not used: Offset is taken as the position of the first voxel, as in ITK"
    return Note(NoteKind.FIELDS_DISAGREE, message, {"center_of_rotation": centre.tolist()})


def _compare_letters(header: Header, directions: Floats) -> Note | None:
    """A warning if AnatomicalOrientation contradicts the matrix.

    The documentation of MetaIO has letters for where the axes run to, ITK writes where they come from: either will do.
    """
    text = header.fields.get("AnatomicalOrientation", "")
    try:
        ends = parse_axis_codes(text[:3])
    except ValueError:  # question marks, as a rule
        return None
    ras = directions * np.array([-1.0, -1.0, 1.0])[:, None] / np.linalg.norm(directions, axis=0)
    along = [sign * ras[world, axis] for axis, (world, sign) in enumerate(ends)]
    if min(along) >= _ALONG or max(along) <= -_ALONG:
        return None
    message = f"AnatomicalOrientation {shown(text)} contradicts TransformMatrix, which is used"
    return Note(
        NoteKind.FIELDS_DISAGREE, message, {"anatomical_orientation": text, "directions_lps": directions.T.tolist()}
    )


def _scale(header: Header) -> tuple[float, list[Note]]:
    text = header.fields.get("DistanceUnits")
    if text is None:
        return 1.0, []
    if text in _NO_UNIT:
        message = f"DistanceUnits names no unit of length, but {shown(text)}: mm is assumed"
        return 1.0, [Note(NoteKind.UNITS_ASSUMED, message)]
    if text not in _MM_PER_UNIT:
        raise VolumeError(f"DistanceUnits must be one of {', '.join(_MM_PER_UNIT)}, got {shown(text)}")
    return _MM_PER_UNIT[text], []
