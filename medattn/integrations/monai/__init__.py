"""MONAI: volumes to and from ``MetaTensor``, dictionary transforms for its pipelines, and collation that keeps grids.

An optional part: ``pip install 'medattn[monai]'``.

What keeps geometry: MONAI's spatial transforms (orientation, flips, rotations by 90 degrees, crops, pads, ``Spacing``,
``Resize``, ``Zoom``, ``Rotate``, ``Affine``) update the affine of a ``MetaTensor``; after them, ``from_metatensor`` is
right. What loses it: all that MONAI does not know to be spatial, such as indexing (``x[:, 2:]``), ``torch.flip``,
``roll``, ``permute``, ``Transpose``, ``torch.nn.functional.interpolate``, pooling and strided convolutions, and elastic
or grid distortions. They keep the old affine, and nothing can tell afterwards. In place of the simple ones use MONAI's
transforms, or the methods of ``Volume``.

MONAI drops affines, and ``from_metatensor`` then refuses, where ``set_track_meta(False)`` holds and in a
``PersistentDataset``, unless made with ``track_meta=True, weights_only=False``.
"""

from importlib.util import find_spec

if find_spec("monai") is None:
    raise ImportError("medattn.integrations.monai needs MONAI: pip install 'medattn[monai]'")

from medattn.integrations.monai.metatensor import collate_metatensors, from_metatensor, to_metatensor
from medattn.integrations.monai.transforms import LoadVolumed, ResampleToSpacingd

__all__ = ["LoadVolumed", "ResampleToSpacingd", "collate_metatensors", "from_metatensor", "to_metatensor"]
