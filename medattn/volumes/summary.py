"""What there is to know about a volume at a glance: geometry, intensities, and what was assumed in reading it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.volumes.notes import Note
from medattn.volumes.stored import Metadata
from medattn.volumes.volume import Volume

MOST_LABELS = 128
"""An image of at most this many distinct values, all of them integers >= 0, looks like a label map."""


@dataclass(frozen=True)
class Intensities:
    """Intensities of the finite voxels of all channels.

    Attributes:
        label_like: the number of distinct values, if they are so few integers that the image looks like a label map
            (see ``MOST_LABELS``); None otherwise.
    """

    min: float
    max: float
    mean: float
    percentile_1: float
    percentile_99: float
    label_like: int | None


@dataclass(frozen=True)
class VolumeSummary:
    """A volume without its voxels.

    Attributes:
        orientation_known: False if the file gave no orientation, so that the grid's is a guess.
        intensities: of an image; None for a label map, and where no voxel is finite.
        labels: the values of a label map, in order; None for an image.
        notes: what the reader assumed or found odd.
        metadata: of a DICOM series; nothing about the patient.
    """

    grid: VoxelGrid
    channels: int
    orientation_known: bool
    nonfinite_voxels: int
    intensities: Intensities | None
    labels: tuple[int, ...] | None
    notes: tuple[Note, ...]
    metadata: Metadata

    def to_json(self) -> dict[str, Any]:
        """Everything in full precision as what JSON knows; numbers that are not finite become None.

        Lists of three are in order of the array axes i, j, k, but of world x, y, z (RAS+ mm) for ``origin_mm`` and
        ``fov_center_mm``. ``extent_mm`` is the length of the field of view from edge to edge.
        """
        grid = self.grid
        return {
            "shape": list(grid.shape),
            "channels": self.channels,
            "spacing_mm": grid.spacing_mm.tolist(),
            "axcodes": "".join(grid.axcodes),
            "orientation_known": self.orientation_known,
            "obliquity_deg": obliquity_deg(grid).tolist(),
            "is_orthogonal": grid.is_orthogonal,
            "extent_mm": grid.extent_mm.tolist(),
            "origin_mm": grid.origin_mm.tolist(),
            "fov_center_mm": grid.fov_center_mm.tolist(),
            "affine": grid.affine.tolist(),
            "nonfinite_voxels": self.nonfinite_voxels,
            "intensities": asdict(self.intensities) if self.intensities else None,
            "labels": None if self.labels is None else list(self.labels),
            "notes": [_plain_note(note) for note in self.notes],
            "metadata": _plain(self.metadata),
        }


def summarize(volume: Volume) -> VolumeSummary:
    """The summary of a real ``volume``; takes memory for two more copies of its voxels."""
    values = volume.data.detach().cpu().numpy().ravel(order="K")  # in the order of memory, which is fast
    finite = values[np.isfinite(values)]
    return VolumeSummary(
        grid=volume.grid,
        channels=len(volume.data),
        orientation_known=volume.orientation_known,
        nonfinite_voxels=values.size - finite.size,
        intensities=None if volume.is_label_map or finite.size == 0 else _intensities(finite),
        labels=tuple(np.unique(values).tolist()) if volume.is_label_map else None,
        notes=volume.notes,
        metadata=volume.metadata,
    )


def obliquity_deg(grid: VoxelGrid) -> Tensor:
    """Angle between each array axis of ``grid`` and the world axis nearest to it, (3,) degrees, 0 to 54.7.

    By the tangent: the arc cosine loses angles of less than a millionth of a degree to rounding.
    """
    cosines = grid.direction.abs()
    nearest, world = cosines.max(dim=0, keepdim=True)
    others = torch.linalg.vector_norm(cosines.scatter(0, world, 0.0), dim=0)
    return torch.rad2deg(torch.atan2(others, nearest[0]))


def _intensities(values: NDArray[Any]) -> Intensities:
    """Of finite ``values``, which are put into another order. Percentiles are values that occur."""
    low, high, mean = float(values.min()), float(values.max()), float(values.mean(dtype=np.float64))
    label_like = _label_like(values) if low >= 0 else None
    first, last = np.percentile(values, [1, 99], method="nearest", overwrite_input=True).tolist()
    return Intensities(low, high, mean, first, last, label_like)


def _label_like(values: NDArray[Any]) -> int | None:
    if not (values == np.rint(values)).all():
        return None
    distinct = len(np.unique(values))
    return distinct if distinct <= MOST_LABELS else None


def _plain_note(note: Note) -> dict[str, Any]:
    flags = {"is_assumption": note.is_assumption, "is_warning": note.is_warning}
    return {"kind": note.kind.value, "message": note.message, **flags, "values": _plain(note.values)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
