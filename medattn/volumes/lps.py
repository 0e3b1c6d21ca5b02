"""Between RAS+, the frame of this package, and LPS, the frame of ITK, DICOM and most NRRD files."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from medattn.geometry import VoxelGrid


def exchanged(affine: NDArray[np.float64]) -> NDArray[np.float64]:
    """``affine`` (4, 4) to LPS as one to RAS, or the other way round; without -0.0."""
    return np.array([-1.0, -1.0, 1.0, 1.0])[:, None] * affine + 0.0


def lps_affine(grid: VoxelGrid) -> NDArray[np.float64]:
    """The affine of ``grid``, (4, 4), from voxel indices to LPS mm."""
    return exchanged(grid.affine.numpy())
