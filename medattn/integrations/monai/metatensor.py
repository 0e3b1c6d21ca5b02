"""``Volume`` to MONAI's ``MetaTensor`` and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.utils import ImageMetaKey, MetaKeys, SpaceKeys
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.volumes import Note, NoteKind, Volume
from medattn.volumes.batch import collate_volumes

NOTES_KEY, METADATA_KEY = "medattn_notes", "medattn_metadata"
"""Where a ``MetaTensor``'s ``meta`` keeps a volume's notes and metadata: JSON, which every collation lets through."""

_SIGNS = {SpaceKeys.RAS: (1.0, 1.0, 1.0, 1.0), SpaceKeys.LPS: (-1.0, -1.0, 1.0, 1.0)}


def to_metatensor(volume: Volume) -> MetaTensor:
    """``volume`` as MONAI's transforms expect it: (C, I, J, K), channel first, affine in RAS mm; data is shared.

    ``meta`` has MONAI's usual keys: ``original_affine`` and ``spatial_shape`` are those of ``volume.source_grid``, so
    that ``SaveImage(resample=True)`` finds the file's grid; ``space`` is RAS; ``filename_or_obj`` is the volume's name.
    """
    meta = {
        MetaKeys.ORIGINAL_AFFINE: volume.source_grid.affine.numpy(),
        MetaKeys.SPATIAL_SHAPE: np.array(volume.source_grid.shape),
        MetaKeys.ORIGINAL_CHANNEL_DIM: 0,
        MetaKeys.SPACE: SpaceKeys.RAS,
        ImageMetaKey.FILENAME_OR_OBJ: volume.name,
        NOTES_KEY: _packed(volume.notes),
        METADATA_KEY: json.dumps(dict(volume.metadata)),
    }
    return MetaTensor(volume.data, affine=volume.grid.affine, meta=meta)


def from_metatensor(tensor: MetaTensor, *, name: str | None = None) -> Volume:
    """The volume that ``tensor`` (C, I, J, K) is; data is shared, and an affine in LPS is turned into RAS.

    Notes and metadata come back if ``to_metatensor`` put them there. The source grid is that of ``original_affine`` and
    ``spatial_shape``, or the tensor's own if these do not describe three axes.

    The affine is taken at its word: one that got lost on the way (see ``medattn.integrations.monai``) looks like any
    other.

    Args:
        name: of the volume; ``filename_or_obj`` by default.

    Raises:
        TypeError: if it is a tensor without an affine.
        ValueError: if it is a batch, has no channel axis, has lazy transforms pending, has no (4, 4) affine, or lies in
            a space that is neither RAS nor LPS.
    """
    _check(tensor)
    meta = tensor.meta
    return Volume(
        tensor.as_tensor(),
        VoxelGrid((tensor.shape[1], tensor.shape[2], tensor.shape[3]), in_ras(tensor.affine, meta)),
        tuple(Note(NoteKind[kind], message, values) for kind, message, values in json.loads(meta.get(NOTES_KEY, "[]"))),
        str(meta.get(ImageMetaKey.FILENAME_OR_OBJ, "")) if name is None else name,
        {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in json.loads(meta.get(METADATA_KEY, "{}")).items()
        },
        _source_grid(meta),
    )


def moved_to(tensor: MetaTensor, volume: Volume) -> MetaTensor:
    """Data, grid and notes of ``volume``, with a copy of the metadata and applied operations of ``tensor``."""
    moved = MetaTensor(volume.data).copy_meta_from(tensor)
    moved.affine = in_ras(volume.grid.affine, tensor.meta)
    moved.meta[NOTES_KEY] = _packed(volume.notes)
    return moved


def in_ras(affine: Any, meta: Mapping[str, Any]) -> Tensor:
    """``affine`` (4, 4) from the space that ``meta`` names to RAS, or back: this is its own inverse.

    Raises:
        ValueError: if that space is neither RAS nor LPS.
    """
    space = meta.get(MetaKeys.SPACE, SpaceKeys.RAS)
    if space not in _SIGNS:
        raise ValueError(f"a MetaTensor's space must be one of {', '.join(_SIGNS)}, got {space!r}")
    return torch.tensor(_SIGNS[space], dtype=torch.float64)[:, None] * torch.as_tensor(affine, dtype=torch.float64)


def _packed(notes: Sequence[Note]) -> str:
    return json.dumps([(note.kind.name, note.message, dict(note.values)) for note in notes])


def _check(tensor: Any) -> None:
    if not isinstance(tensor, MetaTensor):
        raise TypeError(
            f"a MetaTensor is needed, for its affine, got {type(tensor).__name__} (is monai.data.get_track_meta() "
            "False?); for a tensor whose grid you know, use Volume(data, grid)"
        )
    shape = tuple(tensor.shape)
    if tensor.is_batch or tensor.ndim == 5:
        raise ValueError(
            f"one volume is needed, got a batch of shape {shape}: take it apart (monai.data.decollate_batch)"
        )
    if tensor.ndim == 3:
        raise ValueError(
            f"a channel axis is needed, (C, I, J, K), got shape {shape}: use EnsureChannelFirst, or x[None]"
        )
    if tensor.ndim != 4:
        raise ValueError(f"a volume must have shape (C, I, J, K), got {shape}")
    if tensor.has_pending_operations:
        raise ValueError(
            "lazy transforms are pending on the MetaTensor: apply them first (monai.transforms.ApplyPending)"
        )
    affine: Any = tensor.meta.get(MetaKeys.AFFINE)  # tensor.affine would make up an identity
    if np.shape(affine) != (4, 4):
        raise ValueError(f"a MetaTensor's meta must have an affine of shape (4, 4), got {affine}")


def _source_grid(meta: Mapping[str, Any]) -> Any:
    affine, shape = meta.get(MetaKeys.ORIGINAL_AFFINE), meta.get(MetaKeys.SPATIAL_SHAPE)
    if affine is None or shape is None or len(shape) != 3 or np.shape(affine) != (4, 4):
        return None
    return VoxelGrid((int(shape[0]), int(shape[1]), int(shape[2])), in_ras(affine, meta))


def collate_metatensors(samples: Sequence[Any]) -> Any:
    """``collate_volumes`` for samples that hold ``MetaTensor`` images, each of which is made a ``Volume`` first.

    MONAI's own collation needs equal shapes, and turns grids into one stacked affine.

    Raises:
        ValueError: as ``collate_volumes``, and as ``from_metatensor`` for those of 3 axes or more.
    """
    return collate_volumes(_as_volumes(samples))


def _as_volumes(value: Any) -> Any:
    if isinstance(value, MetaTensor):  # MONAI also wraps single numbers and vectors
        return from_metatensor(value) if value.ndim > 2 else value.as_tensor()
    if isinstance(value, Mapping):
        return {key: _as_volumes(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_as_volumes(one) for one in value)
    return value
