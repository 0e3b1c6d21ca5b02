"""Where the frames of a DICOM segmentation lie, and which segment each belongs to.

Frames without any voxel of a segment are usually left out, so the slices that there are need not be all; and several
frames, of several segments, may lie in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from medattn.geometry import VoxelGrid
from medattn.volumes.dicom.elements import integer, items, text
from medattn.volumes.dicom.frames import frames_of
from medattn.volumes.dicom.header import Header
from medattn.volumes.dicom.places import TOLERANCE
from medattn.volumes.dicom.slices import (
    Floats,
    Plane,
    check_parallel,
    nominal_thickness,
    plane_affine,
    plane_axes,
    thickness_note,
)
from medattn.volumes.errors import VolumeError, first_few
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.stored import stored_grid

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_SAME_SLICE_MM = 1e-3
_TOLD_MM = 0.01


class Placed(NamedTuple):
    """The grid that all frames lie on; of each frame the segment (0 for a label map, which holds all) and slice k."""

    grid: VoxelGrid
    segments: list[int]
    slices: list[int]
    notes: list[Note]


def place_frames(header: Header, shape: tuple[int, int]) -> Placed:
    """The regular grid that frames of ``shape`` (columns, rows) lie on; slices that are left out are counted in.

    k ascends along the normal (row direction x column direction). The step between slices is SpacingBetweenSlices if
    it fits the positions, else the smallest step that there is.

    Raises:
        VolumeError: if the frames are not parallel, equally large and on one straight, regular row, or an element is
            missing.
    """
    planes = [frame.plane for frame in frames_of(header)]
    axes, notes = plane_axes(planes[0], shape)
    check_parallel(planes)
    normal = np.cross(axes[0], axes[1])
    positions = np.array([plane.position for plane in planes])
    order = np.argsort(positions @ normal, kind="stable")
    gaps = np.diff((positions @ normal)[order])
    stated = abs(planes[0].between or 0.0)
    apart = gaps > (min(_SAME_SLICE_MM, stated / 10) if stated else _SAME_SLICE_MM)
    step, more = _step(planes[0], gaps[apart])
    slices = np.zeros(len(planes))
    slices[order[1:]] = np.cumsum(np.where(apart, np.rint(gaps / step), 0))
    origin, along, uneven = _line(planes, slices, normal * step)
    affine = plane_affine(replace(planes[0], position=tuple(origin)), axes, along)
    grid = stored_grid((*shape, int(slices.max()) + 1), torch.from_numpy(affine))
    return Placed(grid, _segments(header), [int(k) for k in slices.tolist()], [*notes, *more, *uneven])


def _segments(header: Header) -> list[int]:
    """The number of each frame's segment; 0 in a label map."""
    own = items(header.elements, "PerFrameFunctionalGroupsSequence")
    if not own:
        raise VolumeError("PerFrameFunctionalGroupsSequence is missing")
    if text(header.elements, "SegmentationType") == "LABELMAP":
        return [0] * len(own)
    shared = items(header.elements, "SharedFunctionalGroupsSequence")[:1]
    return [_segment([groups, *shared], number) for number, groups in enumerate(own, start=1)]


def _segment(sources: Sequence[Dataset], frame: int) -> int:
    identified = [item for source in sources for item in items(source, "SegmentIdentificationSequence")]
    number = integer(identified[0], "ReferencedSegmentNumber") if identified else None
    if number is None:
        raise VolumeError(f"ReferencedSegmentNumber of frame {frame} is missing")
    return number


def _step(plane: Plane, gaps: Floats) -> tuple[float, list[Note]]:
    """Distance of slices along the normal, from the ``gaps`` between those that there are and from what is stated."""
    if gaps.size == 0:
        return (abs(plane.between), []) if plane.between else (nominal_thickness(plane), [thickness_note(plane)])
    stated, least, regular = abs(plane.between or 0.0), float(gaps.min()), float(gaps.max()) < 1.1 * float(gaps.min())
    values = {"stated_mm": stated, "smallest_mm": least}
    if stated and _are_multiples(gaps, stated):
        if gaps.size == 1 or not regular or least < 1.5 * stated:
            return stated, []
        message = f"SpacingBetweenSlices is {stated:g} mm and is used, but all slices are {least:g} mm apart"
        return stated, [Note(NoteKind.FIELDS_DISAGREE, message, values)]
    if not _are_multiples(gaps, least):
        shown = first_few(f"{gap:g}" for gap in sorted(set(gaps.round(4).tolist())))
        raise VolumeError(f"slices must be evenly spaced, but their distances have no common measure: {shown} mm")
    if stated:
        message = f"SpacingBetweenSlices is {stated:g} mm, but slices are {least:g} mm apart, which is used"
        return least, [Note(NoteKind.FIELDS_DISAGREE, message, values)]
    if regular:
        return least, []
    message = f"slices are left out, and SpacingBetweenSlices is missing: the smallest step, {least:g} mm, is assumed"
    return least, [Note(NoteKind.STEP_ASSUMED, message, values)]


def _are_multiples(gaps: Floats, step: float) -> bool:
    """True if the gaps are whole numbers of steps; the longer one is, the more the step's own rounding adds up."""
    counts = gaps / step
    whole = np.rint(counts)
    return bool(((whole >= 1) & (np.abs(counts - whole) <= np.minimum(TOLERANCE * whole, 0.1))).all())


def _line(planes: Sequence[Plane], slices: Floats, step: Floats) -> tuple[Floats, Floats, list[Note]]:
    """Position of slice 0 and the step to the next, (3,) each, that fit all positions best."""
    positions = np.array([plane.position for plane in planes])
    if slices.max() == 0:
        origin, along = positions.mean(axis=0), step
    else:
        design = np.stack([np.ones_like(slices), slices], axis=1)
        origin, along = np.linalg.lstsq(design, positions, rcond=None)[0]
    off = np.linalg.norm(positions - origin - slices[:, None] * along, axis=1)
    worst = int(off.argmax())
    where = f"{planes[worst].name} is {off[worst]:.3g} mm off its place"
    if off[worst] > TOLERANCE * np.linalg.norm(along):
        raise VolumeError(f"slices must follow a straight line evenly, but {where}")
    if off[worst] <= _TOLD_MM:
        return origin, along, []
    message = f"slices are not quite evenly spaced: {where}"
    return origin, along, [Note(NoteKind.UNEVEN_SLICES, message, {"largest_mm": float(off[worst])})]
