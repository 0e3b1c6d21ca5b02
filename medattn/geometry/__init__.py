"""Geometry of voxel grids: pure functions and ``VoxelGrid``; tensors only, no modules, no files."""

from medattn.geometry.grid import VoxelGrid
from medattn.geometry.resample import resample, resample_labels

__all__ = ["VoxelGrid", "resample", "resample_labels"]
