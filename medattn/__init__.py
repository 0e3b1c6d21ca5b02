"""3-D medical-imaging attention: positional encodings on sequence index and on physical millimetres, compared fairly.

Names are loaded on first use, so that ``import medattn`` costs nothing and pulls in no file or study library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from medattn.attention import LayerMacs, attend, attention_weights, layer_macs
    from medattn.coordinates import CoordinateJitter, Frame, token_coordinates
    from medattn.encoder import TokenMap, VolumeEncoder, create_encoder
    from medattn.encodings import (
        Invariance,
        PositionalEncoding,
        PositionSignal,
        SpacingToken,
        TokenLayout,
        create_encoding,
        list_encodings,
    )
    from medattn.geometry import VoxelGrid, label_changes, resample, resample_labels
    from medattn.models import SegmentationModel, predict_probabilities
    from medattn.volumes import (
        Note,
        NoteKind,
        Volume,
        VolumeBatch,
        VolumeError,
        VolumeWarning,
        check_same_grid,
        collate_volumes,
        fetch,
        load_volume,
        save_dicom_seg,
        save_volume,
        to_original,
    )

_HOME = {
    "medattn.geometry": ("VoxelGrid", "label_changes", "resample", "resample_labels"),
    "medattn.coordinates": ("CoordinateJitter", "Frame", "token_coordinates"),
    "medattn.encodings": (
        *("Invariance", "PositionSignal", "PositionalEncoding", "SpacingToken", "TokenLayout"),
        *("create_encoding", "list_encodings"),
    ),
    "medattn.attention": ("LayerMacs", "attend", "attention_weights", "layer_macs"),
    "medattn.encoder": ("TokenMap", "VolumeEncoder", "create_encoder"),
    "medattn.models": ("SegmentationModel", "predict_probabilities"),
    "medattn.volumes": (
        *("Note", "NoteKind", "Volume", "VolumeBatch", "VolumeError", "VolumeWarning"),
        *("check_same_grid", "collate_volumes", "fetch", "load_volume", "save_dicom_seg", "save_volume", "to_original"),
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "CoordinateJitter",
    "Frame",
    "Invariance",
    "LayerMacs",
    "Note",
    "NoteKind",
    "PositionSignal",
    "PositionalEncoding",
    "SegmentationModel",
    "SpacingToken",
    "TokenLayout",
    "TokenMap",
    "Volume",
    "VolumeBatch",
    "VolumeEncoder",
    "VolumeError",
    "VolumeWarning",
    "VoxelGrid",
    "attend",
    "attention_weights",
    "check_same_grid",
    "collate_volumes",
    "create_encoder",
    "create_encoding",
    "fetch",
    "label_changes",
    "layer_macs",
    "list_encodings",
    "load_volume",
    "predict_probabilities",
    "resample",
    "resample_labels",
    "save_dicom_seg",
    "save_volume",
    "to_original",
    "token_coordinates",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("medattn")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'medattn' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
