"""What a reader had to assume or found odd, in a form that programs can ask about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class VolumeWarning(UserWarning):
    """Something about a file that its user should look at: geometry that is doubtful, voxels that are no numbers."""


class NoteKind(StrEnum):
    """What a ``Note`` is about. ``is_warning``: the user should act on it. ``is_assumption``: it could be otherwise."""

    is_warning: bool
    is_assumption: bool

    def __new__(cls, value: str, is_warning: bool, is_assumption: bool) -> NoteKind:
        member = str.__new__(cls, value)
        member._value_ = value
        member.is_warning, member.is_assumption = is_warning, is_assumption
        return member

    UNITS_ASSUMED = "units_assumed", False, True
    """The header names no unit of length; millimetres are assumed."""
    ORIENTATION_UNKNOWN = "orientation_unknown", True, True
    """The header gives spacing only: array axes are taken as R, A, S and the origin as 0."""
    ORIGIN_ASSUMED = "origin_assumed", False, True
    """The header gives an orientation and no position: the first voxel is taken to lie at 0."""
    FORMS_DISAGREE = "forms_disagree", True, True
    """The header holds two whole geometries that differ (NIfTI's sform and qform)."""
    FIELDS_DISAGREE = "fields_disagree", True, True
    """A field of the header contradicts the geometry that is used."""
    STEP_ASSUMED = "step_assumed", False, True
    """Slices are left out (as DICOM segmentations do with empty ones), and nothing says how far apart slices are."""
    THICKNESS_ASSUMED = "thickness_assumed", False, True
    """There is one slice: its extent is taken from its nominal thickness."""
    UNEVEN_SLICES = "uneven_slices", True, True
    """Slices are not quite evenly spaced; within the tolerance they are taken as if they were."""
    SLICES_INTERPOLATED = "slices_interpolated", True, False
    """Some slices are missing, and were interpolated because it was asked for."""
    SHEARED = "sheared", False, False
    """The array axes do not meet at right angles (gantry tilt); the affine keeps it."""
    CHANNELS = "channels", False, False
    """What the channels are: points in time, components of a vector, colours."""
    NONFINITE_VOXELS = "nonfinite_voxels", True, False
    """Some voxels are NaN or infinite; they are kept."""
    PRECISION_LOST = "precision_lost", True, False
    """Stored numbers do not fit float32 exactly."""
    LABELS_ROUNDED = "labels_rounded", False, True
    """Labels were stored as real numbers, and rounded to integers."""
    LABELS_CHANGED = "labels_changed", True, False
    """Resampling lost a label, or changed its volume by much."""
    SKIPPED = "skipped", False, False
    """Something in a folder, archive or file is no part of the volume, and was left out."""


@dataclass(frozen=True)
class Note:
    """Something that a reader had to assume or found odd: ``message`` for people, ``values`` (plain) for programs."""

    kind: NoteKind
    message: str
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_warning(self) -> bool:
        """True if the user should act on it; it is then a Python warning as well."""
        return self.kind.is_warning

    @property
    def is_assumption(self) -> bool:
        """True if the file left it open; ``load_volume(..., strict=True)`` refuses it."""
        return self.kind.is_assumption
