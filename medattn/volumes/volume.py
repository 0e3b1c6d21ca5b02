"""``Volume``: voxel values, the grid that they lie on, and what the reader had to assume."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from medattn.geometry import LabelChange, VoxelGrid, label_changes, resample, resample_labels
from medattn.volumes.notes import Note, NoteKind, VolumeWarning
from medattn.volumes.stored import Metadata


@dataclass(frozen=True, eq=False)
class Volume:
    """Values ``data`` (C, I, J, K) on ``grid``, whose shape is (I, J, K).

    Attributes:
        notes: what the reader assumed or found odd.
        name: what to call the volume in messages, for example its path.
        metadata: of a DICOM series: modality, series_description, and UIDs; nothing about the patient.
        source_grid: the grid of the file, or ``grid`` if there was none. Kept by every method that returns a new
            volume, so that ``to_original`` finds the way back.

    Raises:
        ValueError: if ``data`` is not 4-D, or does not have the grid's shape.
        TypeError: if ``data`` is no Tensor, or ``grid`` no VoxelGrid.
    """

    data: Tensor
    grid: VoxelGrid
    notes: tuple[Note, ...] = ()
    name: str = ""
    metadata: Metadata = field(default_factory=dict)
    source_grid: VoxelGrid = cast(VoxelGrid, None)  # __post_init__ puts ``grid`` here

    def __post_init__(self) -> None:
        for name, value, wanted in (("data", self.data, Tensor), ("grid", self.grid, VoxelGrid)):
            if not isinstance(value, wanted):
                got = type(value).__name__
                raise TypeError(f"{name} of volume {self.name!r} must be a {wanted.__name__}, got {got}")
        object.__setattr__(self, "source_grid", self.source_grid or self.grid)
        shape = tuple(self.data.shape)
        if len(shape) != 4 or shape[0] < 1 or shape[1:] != self.grid.shape:
            raise ValueError(
                f"data of volume {self.name!r} must have shape (C, I, J, K) with (I, J, K) = {self.grid.shape}, the "
                f"grid's shape, got {shape}"
            )

    @property
    def is_label_map(self) -> bool:
        """True if the data is integers, which are never interpolated as numbers."""
        return not (self.data.is_floating_point() or self.data.is_complex())

    @property
    def orientation_known(self) -> bool:
        """False if the file gave no orientation, so that R/L, A/P and S/I are guesses."""
        return all(note.kind is not NoteKind.ORIENTATION_UNKNOWN for note in self.notes)

    def crop(self, start: Sequence[int], stop: Sequence[int]) -> Volume:
        """Voxels ``start`` (inclusive) to ``stop`` (exclusive) along each axis, with the grid to match."""
        grid = self.grid.crop(start, stop)  # checks the bounds
        region = tuple(slice(int(a), int(b)) for a, b in zip(start, stop, strict=True))
        return replace(self, data=self.data[(slice(None), *region)], grid=grid)

    def flip(self, axis: int) -> Volume:
        """Reverse one array axis, 0 to 2 (not the channels): every value stays where it is in the world."""
        return replace(self, grid=self.grid.flip(axis), data=torch.flip(self.data, (axis + 1,)))

    def reoriented(self, axcodes: Any) -> Volume:
        """Permute and flip (never interpolate) until the array axes point to ``axcodes``, for example "RAS".

        Raises:
            ValueError: for bad axis codes, or if the volume's orientation is unknown.
        """
        if not self.orientation_known:
            raise ValueError(f"volume {self.name!r} cannot be reoriented to {axcodes!r}: its orientation is unknown")
        axes, flips = self.grid.orientation_to(axcodes)
        data = self.data.permute(0, *(a + 1 for a in axes)).flip([a + 1 for a in flips])
        return replace(self, data=data, grid=self.grid.reoriented(axcodes))

    def pad(self, before: int | Sequence[int], after: int | Sequence[int], *, value: float = 0) -> Volume:
        """Add voxels of ``value`` before and after along each axis, with the grid to match."""
        grid = self.grid.pad(before, after)  # checks the numbers
        low = [round(float(x)) for x in grid.to_index(self.grid.origin_mm)]
        high = [n - a - m for n, a, m in zip(grid.shape, low, self.grid.shape, strict=True)]
        widths = [w for pair in zip(reversed(low), reversed(high), strict=True) for w in pair]
        return replace(self, data=torch.nn.functional.pad(self.data, widths, value=value), grid=grid)

    def resampled(self, target: VoxelGrid | float | Sequence[float], **options: Any) -> Volume:
        """On another grid, or on ``grid.resampled(target)`` if ``target`` is a spacing in mm (one number or three).

        Images by ``resample``, label maps (integers) by ``resample_labels``; ``options`` are theirs.

        Warns:
            VolumeWarning: if a label was lost, or its volume changed by over half; there is a note as well.
        """
        grid = target if isinstance(target, VoxelGrid) else self.grid.resampled(target)
        if not self.is_label_map:
            return replace(self, data=resample(self.data, self.grid, grid, **options), grid=grid)
        labels = resample_labels(self.data, self.grid, grid, **options)
        notes = _label_notes(label_changes(self.data, self.grid, labels, grid))
        for note in notes:
            warnings.warn(f"{self.name}: {note.message}", VolumeWarning, stacklevel=2)
        return replace(self, data=labels, grid=grid, notes=(*self.notes, *notes))


def _label_notes(changes: list[LabelChange]) -> list[Note]:
    if not changes:
        return []
    values = {str(c.label): [c.before_mm3, c.after_mm3] for c in changes}
    lost = [str(c.label) for c in changes if c.is_lost]
    grown = [f"{c.label} from {c.before_mm3:.4g} to {c.after_mm3:.4g} mm^3" for c in changes if not c.is_lost]
    told = [("lost labels ", lost), ("changed the volume of labels by over half: ", grown)]
    message = "; ".join(what + _first(labels) for what, labels in told if labels)
    return [Note(NoteKind.LABELS_CHANGED, f"resampling {message}", values)]


def _first(labels: list[str]) -> str:
    more = len(labels) - _TOLD
    return ", ".join(labels[:_TOLD]) + (f" and {more} more" if more > 0 else "")


_TOLD = 10
"""How many labels a message names."""

_GEOMETRY = ("origin_mm", "spacing_mm", "direction")


def check_same_grid(image: Volume, labels: Volume, *, atol_mm: float = 1e-2) -> None:
    """Make sure that two volumes lie on one grid, voxel for voxel.

    No voxel may be further than ``atol_mm`` from its counterpart, which leaves room for what files lose by rounding.

    Raises:
        ValueError: naming the fields that differ (shape, origin_mm, spacing_mm, direction), both values and volumes.
    """
    differences = grid_differences(image.grid, labels.grid, atol_mm=atol_mm)
    if differences:
        who = f"image {image.name!r} and labels {labels.name!r}"
        raise ValueError(f"{who} must lie on one grid (to {atol_mm} mm), but these differ: {differences}")


def grid_differences(one: VoxelGrid, two: VoxelGrid, *, atol_mm: float = 1e-2) -> str:
    """The fields that differ, with both values; empty if no voxel is further than ``atol_mm`` from its counterpart."""
    if one.shape != two.shape:
        return f"shape {one.shape} and {two.shape}"
    if one.is_close(two, atol_mm=atol_mm):
        return ""
    fields = [(name, _rounded(getattr(one, name)), _rounded(getattr(two, name))) for name in _GEOMETRY]
    differing = [field for field in fields if field[1] != field[2]] or fields
    return "; ".join(f"{name} {a} and {b}" for name, a, b in differing)


def _rounded(values: Tensor) -> Any:
    return (torch.round(values, decimals=4) + 0.0).tolist()  # + 0.0 turns -0.0 into 0.0


def check_is_volume(value: object, name: str = "volume") -> None:
    """Raise a TypeError if ``value`` is no Volume, as where a tensor is passed without its grid."""
    if not isinstance(value, Volume):
        raise TypeError(f"{name} must be a Volume (data with its grid), got {type(value).__name__}")
