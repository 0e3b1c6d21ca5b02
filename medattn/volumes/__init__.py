"""Volumes: an image or label map with the grid it lies on, read from and written to files, and data to start with."""

from medattn.volumes.fetch import FetchError, fetch
from medattn.volumes.nifti import load_volume, save_volume
from medattn.volumes.volume import Note, NoteKind, Volume, VolumeWarning, check_same_grid

__all__ = [
    "FetchError",
    "Note",
    "NoteKind",
    "Volume",
    "VolumeWarning",
    "check_same_grid",
    "fetch",
    "load_volume",
    "save_volume",
]
