"""From the fields of a NRRD header to a grid in RAS+ millimetres, and to which of the array's axes are spatial.

Source: "Definition of NRRD File Format" (teem.sourceforge.net/nrrd/format.html), sections 4 and 6. The space origin is
the centre of the first voxel, whatever ``centerings`` says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from medattn.geometry import VoxelGrid
from medattn.geometry.affine import AXIS_NAMES
from medattn.volumes.errors import VolumeError
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.nrrd.space import Frame, mm_per_unit, read_frame
from medattn.volumes.stored import stored_grid
from medattn.volumes.text_header import Header, reals, shown, words

_SPATIAL_KINDS = ("domain", "space", "???", "none", "")
_SPACING_TOLERANCE = 1e-3


class Geometry(NamedTuple):
    """The grid, which of the array's axes it has, and notes."""

    grid: VoxelGrid
    spatial: tuple[int, int, int]
    notes: list[Note]


@np.errstate(all="ignore")  # what overflows is not finite, and refused as that
def read_geometry(header: Header, axes: Sequence[int]) -> Geometry:
    """The geometry of a header whose array has ``axes``, the first one the fastest.

    Raises:
        VolumeError: for a space or unit that is unknown; numbers that are too few, too many, not finite, or singular;
            axes that are not three of space and at most one other that is longer than 1; complex numbers.
    """
    kinds = _kinds(header, len(axes))
    text = header.fields.get("space directions")
    if text is None:
        return _spacing_only(header, axes, kinds)
    frame = read_frame(header)
    vectors = _vectors(text, len(axes), frame.dimension)
    spatial, notes = _split(axes, kinds, [vector is not None for vector in vectors])
    scale, more = mm_per_unit(header, "space units", frame.dimension, (0, 1, 2))
    affine = np.eye(4)
    affine[:3, :3] = np.array([vectors[axis] for axis in spatial]).T
    affine[:3, 3], origin_notes = _origin(header, frame)
    affine[:3] *= (np.array(frame.signs) * scale)[:, None]
    if not frame.known:
        name = header.fields.get("space") or f"of dimension {frame.dimension}"
        message = f"the space {shown(name)} does not say where the patient's right is: its x, y, z are taken as R, A, S"
        notes.append(Note(NoteKind.ORIENTATION_UNKNOWN, message, {"space": name}))
    notes += more + origin_notes + _compare_spacing(header, vectors)
    return Geometry(_grid(axes, spatial, affine), spatial, notes)


def _grid(axes: Sequence[int], spatial: Sequence[int], affine: NDArray[np.float64]) -> VoxelGrid:
    return stored_grid([axes[axis] for axis in spatial], torch.from_numpy(affine + 0.0))  # + 0.0 turns -0.0 into 0.0


def _kinds(header: Header, dimension: int) -> list[str]:
    text = header.fields.get("kinds")
    kinds = [""] * dimension if text is None else [kind.lower() for kind in words(text, "kinds", dimension)]
    if "complex" in kinds:
        raise VolumeError(
            "kinds must be of real numbers, got complex: store the parts, or the magnitude, as files of reals"
        )
    return kinds


def _split(
    axes: Sequence[int], kinds: Sequence[str], is_spatial: Sequence[bool]
) -> tuple[tuple[int, int, int], list[Note]]:
    """The three spatial axes, and what the other one became."""
    spatial = [axis for axis, flag in enumerate(is_spatial) if flag]
    others = [axis for axis, flag in enumerate(is_spatial) if not flag and axes[axis] > 1]
    if len(spatial) != 3:
        raise VolumeError(f"a volume must have 3 axes in space, got {len(spatial)} of shape {tuple(axes)}")
    if len(others) > 1:
        lengths = [axes[axis] for axis in others]
        raise VolumeError(f"beside its 3 axes in space a volume must have one other at most, got lengths {lengths}")
    notes = []
    for axis in others:
        kind = kinds[axis] if kinds[axis] not in _SPATIAL_KINDS else "list"
        message = f"axis {axis} of the array ({kind}), of length {axes[axis]}, became the channels"
        notes.append(Note(NoteKind.CHANNELS, message, {"channels": axes[axis], "axis": _meaning(kind), "kind": kind}))
    return (spatial[0], spatial[1], spatial[2]), notes


def _meaning(kind: str) -> str:
    if kind in ("time", "list"):
        return kind
    return "colour" if kind.endswith("color") else "component"


def _vectors(text: str, dimension: int, space_dimension: int) -> list[list[float] | None]:
    """The direction of each axis in space (3 numbers), or None."""
    found = re.findall(r"none|\([^()]*\)|[^\s()]+|[()]", text, re.IGNORECASE)
    if len(found) != dimension:
        raise VolumeError(f"space directions must have {dimension} vectors or 'none', got {len(found)}: {shown(text)}")
    return [
        _direction(part, f"space directions of array axis {axis}", space_dimension) for axis, part in enumerate(found)
    ]


def _direction(text: str, field: str, space_dimension: int) -> list[float] | None:
    if text.lower() == "none":
        return None
    *vector, last = _vector(text, field, space_dimension)
    if space_dimension == 3:
        return [*vector, last]
    if last != 0 and any(vector):
        raise VolumeError(f"{field} must be in space or in time, not both, got {shown(text)}")
    return None if last != 0 else vector


def _vector(text: str, field: str, space_dimension: int) -> list[float]:
    if not re.fullmatch(r"\([^()]*\)", text):
        raise VolumeError(f"{field} must be numbers in parentheses, got {shown(text)}")
    vector = reals(text[1:-1].replace(",", " "), field, space_dimension)
    if not all(math.isfinite(value) for value in vector):
        raise VolumeError(f"{field} must be finite, got {shown(text)}")
    return vector


def _origin(header: Header, frame: Frame) -> tuple[list[float], list[Note]]:
    text = header.fields.get("space origin")
    if text is None:
        message = "there is no space origin: the first voxel is taken to lie at 0"
        return [0.0, 0.0, 0.0], [Note(NoteKind.ORIGIN_ASSUMED, message)]
    return _vector(text, "space origin", frame.dimension)[:3], []


def _compare_spacing(header: Header, vectors: Sequence[Sequence[float] | None]) -> list[Note]:
    """A warning if ``spacings``, which the format does not allow beside directions, says something else."""
    text = header.fields.get("spacings")
    if text is None:
        return []
    spacings = reals(text, "spacings", len(vectors))
    lengths = [math.nan if vector is None else math.hypot(*vector) for vector in vectors]
    pairs = [(a, b) for a, b in zip(spacings, lengths, strict=True) if not (math.isnan(a) or math.isnan(b))]
    if all(math.isclose(a, b, rel_tol=_SPACING_TOLERANCE) for a, b in pairs):
        return []
    message = f"spacings {spacings} are not the lengths {lengths} of the space directions, which are used"
    return [Note(NoteKind.FIELDS_DISAGREE, message, {"spacings": spacings, "lengths": lengths})]


def _spacing_only(header: Header, axes: Sequence[int], kinds: Sequence[str]) -> Geometry:
    text = header.fields.get("spacings")
    if text is None:
        raise VolumeError("the header must have space directions or spacings: nothing says how large a voxel is")
    spacings = reals(text, "spacings", len(axes))
    flags = [
        kind in _SPATIAL_KINDS and not (len(axes) > 3 and math.isnan(a))
        for kind, a in zip(kinds, spacings, strict=True)
    ]
    spatial, notes = _split(axes, kinds, flags)
    for name, axis in zip(AXIS_NAMES, spatial, strict=True):
        if not (math.isfinite(spacings[axis]) and spacings[axis] > 0):
            raise VolumeError(f"spacings of axis {name} must be positive and finite, got {spacings[axis]}")
    scale, more = mm_per_unit(header, "units", len(axes), spatial)
    affine = np.diag([*(spacings[axis] * mm for axis, mm in zip(spatial, scale, strict=True)), 1.0])
    message = "there are no space directions: spacing is from spacings, axes are taken as R, A, S, origin as 0"
    notes += [*more, Note(NoteKind.ORIENTATION_UNKNOWN, message)]
    return Geometry(_grid(axes, spatial, affine), spatial, notes)
