"""Volumes: an image or label map with the grid it lies on, read from and written to files, and data to start with."""

from medattn.volumes.batch import VolumeBatch, collate_volumes
from medattn.volumes.datasets.fetch import FetchError, fetch
from medattn.volumes.dicom.seg_write import save_dicom_seg
from medattn.volumes.errors import VolumeError
from medattn.volumes.loading import load_volume
from medattn.volumes.notes import Note, NoteKind, VolumeWarning
from medattn.volumes.original import to_original
from medattn.volumes.saving import save_volume
from medattn.volumes.volume import Volume, check_same_grid

__all__ = [
    "FetchError",
    "Note",
    "NoteKind",
    "Volume",
    "VolumeBatch",
    "VolumeError",
    "VolumeWarning",
    "check_same_grid",
    "collate_volumes",
    "fetch",
    "load_volume",
    "save_dicom_seg",
    "save_volume",
    "to_original",
]
