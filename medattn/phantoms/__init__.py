"""Continuous anatomy whose intensity and label are known at every point in mm, rendered on any grid."""

from medattn.phantoms.ellipsoid import Ellipsoid
from medattn.phantoms.scene import Scene
from medattn.phantoms.torso import TORSO_LABELS, torso_grid, torso_scene

__all__ = ["TORSO_LABELS", "Ellipsoid", "Scene", "torso_grid", "torso_scene"]
