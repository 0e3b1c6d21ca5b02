"""Geometry of voxel grids: pure functions and ``VoxelGrid``; tensors only, no modules, no files."""

from medattn.geometry.grid import VoxelGrid
from medattn.geometry.labels import LabelChange, label_changes, resample_labels
from medattn.geometry.resample import resample

__all__ = ["LabelChange", "VoxelGrid", "label_changes", "resample", "resample_labels"]
