"""From the planes of DICOM slices to one regular grid: order, gaps, tilt. Pure geometry, without files.

Only positions, orientations and pixel spacings count (DICOM PS3.3 C.7.6.2.1.1). The tags for spacing between slices,
slice thickness and gantry tilt are often wrong; the first two are used for the extent of a single slice only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.dicom.places import Places, find_places
from medattn.volumes.errors import VolumeError
from medattn.volumes.notes import Note, NoteKind

Floats = NDArray[np.float64]

MAX_MM = 1e7
"""Positions and distances are below this: more is damage, not a patient."""

_UNIT_TOLERANCE = 1e-3
_SAME_TOLERANCE = 1e-4
_SAME_SPACING = 1e-5
_MOVED_MM = 1e-3
_DISAGREES = 0.02


@dataclass(frozen=True)
class Plane:
    """Where one slice lies, in LPS mm.

    Attributes:
        name: what to call it in messages, such as its file.
        position: centre of the first voxel of the first row, ImagePositionPatient.
        orientation: unit vectors along a row and along a column, ImageOrientationPatient.
        spacing: between rows, then between columns, PixelSpacing.
        thickness: SliceThickness, if there is one; ``between``: SpacingBetweenSlices.
        marks: what may tell slices at one position apart, such as the echo time.
    """

    name: str
    position: tuple[float, ...]
    orientation: tuple[float, ...]
    spacing: tuple[float, ...]
    thickness: float | None = None
    between: float | None = None
    marks: Mapping[str, str] = field(default_factory=dict)


class Layer(NamedTuple):
    """What a slice of the grid is made of: planes ``lower`` and ``upper`` (numbers), ``weight`` being the upper's."""

    lower: int
    upper: int
    weight: float

    @property
    def nearest(self) -> int:
        """The plane that is nearer."""
        return self.lower if self.weight < 0.5 else self.upper


class Stack(NamedTuple):
    """A grid for all planes: (4, 4) ``affine``, index (column, row, slice) -> RAS+ mm, and what each slice is."""

    affine: Floats
    layers: list[Layer]
    notes: list[Note]


def stack_planes(planes: Sequence[Plane], shape: tuple[int, int], *, regrid: bool = False) -> Stack:
    """Order parallel planes of ``shape`` (columns, rows) along their normal, row direction x column direction.

    The step between slices is (last position - first position) / (number - 1), so that a tilted gantry shears the grid.

    Args:
        regrid: fill in slices that are missing, or a regular grid if slices are unevenly spaced (see ``find_places``).

    Raises:
        VolumeError: if a plane's geometry is none, if planes differ in orientation or spacing, if two lie at one
            position, or if they are not evenly spaced along a straight line; naming them and both values.
    """
    axes, notes = plane_axes(planes[0], shape)
    check_parallel(planes)
    normal = np.cross(axes[0], axes[1])
    depths = np.array([plane.position for plane in planes]) @ normal
    order = np.argsort(depths, kind="stable")
    ordered = [planes[number] for number in order]
    if len(planes) == 1:
        step, layers, more = normal * nominal_thickness(planes[0]), [Layer(0, 0, 0.0)], [thickness_note(planes[0])]
    else:
        _check_repeated(ordered, depths[order])
        positions = np.array([plane.position for plane in ordered])
        places = find_places(positions, depths[order], [plane.name for plane in ordered], regrid=regrid)
        step = (positions[-1] - positions[0]) / (places.total - 1)
        layers = [Layer(int(order[a]), int(order[b]), weight) for a, b, weight in places.layers()]
        more = [*places.notes, *_contradictions(ordered, float(step @ normal), places)]
    return Stack(plane_affine(ordered[0], axes, step), layers, notes + more)


def plane_affine(first: Plane, axes: Floats, step: Floats) -> Floats:
    """(4, 4), index (column, row, slice) -> RAS+ mm, of slices from ``first`` on, each a ``step`` (3,) further."""
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = axes[0] * first.spacing[1], axes[1] * first.spacing[0]
    affine[:3, 2], affine[:3, 3] = step, first.position
    affine[:2] *= -1  # LPS to RAS
    return affine


def plane_axes(plane: Plane, shape: tuple[int, int]) -> tuple[Floats, list[Note]]:
    """Unit vectors (2, 3) along rows and columns: the pair at right angles that is nearest to what is stored."""
    if not all(0 < spacing < MAX_MM for spacing in plane.spacing):
        raise VolumeError(f"PixelSpacing of {plane.name} must be positive, got {_shown(plane.spacing)}")
    stored = np.reshape(plane.orientation, (2, 3))
    if not np.abs(stored @ stored.T - np.eye(2)).max() <= _UNIT_TOLERANCE:
        raise VolumeError(
            f"ImageOrientationPatient of {plane.name} must be two unit vectors at right angles (to {_UNIT_TOLERANCE}), "
            f"got {_shown(plane.orientation)}"
        )
    left, _, right = np.linalg.svd(stored, full_matrices=False)
    axes = left @ right
    extent = np.array([plane.spacing[1] * (shape[0] - 1), plane.spacing[0] * (shape[1] - 1)])
    moved = float((np.linalg.norm(axes - stored, axis=1) * extent).sum())
    if moved <= _MOVED_MM:
        return axes, []
    message = (
        f"ImageOrientationPatient is not quite two unit vectors at right angles, {_shown(plane.orientation)}; it was "
        f"made so, which moves voxels by up to {moved:.3g} mm"
    )
    return axes, [Note(NoteKind.FIELDS_DISAGREE, message, {"largest_mm": moved})]


def check_parallel(planes: Sequence[Plane]) -> None:
    """Raise a ``VolumeError`` if planes differ in orientation or pixel spacing, naming two and both values."""
    first = planes[0]
    for plane in planes[1:]:
        turned = np.abs(np.subtract(plane.orientation, first.orientation)).max()
        if turned > _SAME_TOLERANCE:
            raise _different("ImageOrientationPatient", first, first.orientation, plane, plane.orientation)
        if not np.allclose(plane.spacing, first.spacing, rtol=_SAME_SPACING, atol=0):
            raise _different("PixelSpacing", first, first.spacing, plane, plane.spacing)


def _different(what: str, one: Plane, a: Sequence[float], two: Plane, b: Sequence[float]) -> VolumeError:
    return VolumeError(f"all slices must have one {what}, got {_shown(a)} in {one.name} and {_shown(b)} in {two.name}")


def _check_repeated(ordered: Sequence[Plane], depths: Floats) -> None:
    repeated = np.flatnonzero(np.diff(depths) <= _MOVED_MM)
    if repeated.size == 0:
        return
    number = int(repeated[0])
    one, two = ordered[number], ordered[number + 1]
    marks = [key for key in one.marks if two.marks.get(key, one.marks[key]) != one.marks[key]]
    differ = "; ".join(f"{key} is {one.marks[key]} and {two.marks[key]}" for key in marks)
    raise VolumeError(
        f"each slice must lie in a place of its own, but {one.name} and {two.name} both lie at {depths[number]:.6g} mm "
        f"along the normal ({repeated.size} such pairs); "
        + (f"they differ in what makes several volumes: {differ}" if differ else "are they copies?")
    )


def nominal_thickness(plane: Plane) -> float:
    """mm that a single slice stands for: SliceThickness, or else SpacingBetweenSlices."""
    thickness = plane.thickness or abs(plane.between or 0.0)
    if not 0 < thickness < MAX_MM:
        raise VolumeError(
            f"there is one slice, {plane.name}, whose extent must be given by a positive SliceThickness or "
            f"SpacingBetweenSlices, got {plane.thickness} and {plane.between}"
        )
    return thickness


def thickness_note(plane: Plane) -> Note:
    """Says that the extent of a single slice is nominal."""
    field_name = "SliceThickness" if plane.thickness else "SpacingBetweenSlices"
    message = f"there is one slice: its extent is taken from {field_name}, {nominal_thickness(plane):g} mm"
    return Note(NoteKind.THICKNESS_ASSUMED, message, {"thickness_mm": nominal_thickness(plane)})


def _contradictions(ordered: Sequence[Plane], step: float, places: Places) -> list[Note]:
    """A note if SpacingBetweenSlices says otherwise than the positions (its sign may be anything)."""
    for plane in ordered:
        if plane.between is not None and abs(abs(plane.between) - step) > _DISAGREES * step:
            message = (
                f"SpacingBetweenSlices is {plane.between:g} mm ({plane.name}), but by their positions slices are "
                f"{step:.6g} mm apart, which is used"
            )
            return [Note(NoteKind.FIELDS_DISAGREE, message, {"stated_mm": plane.between, "used_mm": step})]
    return []


def _shown(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"
