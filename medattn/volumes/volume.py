"""``Volume``: voxel values, the grid that they lie on, and what the reader had to assume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.volumes.notes import Note, NoteKind
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
    """

    data: Tensor
    grid: VoxelGrid
    notes: tuple[Note, ...] = ()
    name: str = ""
    metadata: Metadata = field(default_factory=dict)
    source_grid: VoxelGrid = cast(VoxelGrid, None)  # __post_init__ puts ``grid`` here

    def __post_init__(self) -> None:
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


_GEOMETRY = ("origin_mm", "spacing_mm", "direction")


def check_same_grid(image: Volume, labels: Volume, *, atol_mm: float = 1e-2) -> None:
    """Make sure that two volumes lie on one grid, voxel for voxel.

    No voxel may be further than ``atol_mm`` from its counterpart, which leaves room for what files lose by rounding.

    Raises:
        ValueError: naming the fields that differ (shape, origin_mm, spacing_mm, direction), both values and volumes.
    """
    one, two = image.grid, labels.grid
    who = f"image {image.name!r} and labels {labels.name!r} must lie on one grid"
    if one.shape != two.shape:
        raise ValueError(f"{who}, but their shape differs: {one.shape} and {two.shape}")
    if one.is_close(two, atol_mm=atol_mm):
        return
    fields = [(name, _rounded(getattr(one, name)), _rounded(getattr(two, name))) for name in _GEOMETRY]
    differing = [field for field in fields if field[1] != field[2]] or fields
    values = "; ".join(f"{name} {a} and {b}" for name, a, b in differing)
    raise ValueError(f"{who} (to {atol_mm} mm), but these differ: {values}")


def _rounded(values: Tensor) -> Any:
    return (torch.round(values, decimals=4) + 0.0).tolist()  # + 0.0 turns -0.0 into 0.0
