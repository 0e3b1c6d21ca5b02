"""Dictionary transforms: this package's readers and resampling inside MONAI's pipelines."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from monai.transforms import InvertibleTransform, MapTransform
from monai.utils import GridSampleMode, TraceKeys, ensure_tuple
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.geometry.grid import as_spacing_mm
from medattn.geometry.weights import Mode, Profile
from medattn.integrations.monai.metatensor import from_metatensor, in_ras, moved_to, to_metatensor
from medattn.volumes import Volume, check_same_grid, load_volume
from medattn.volumes.stored import MAX_BYTES

Keys = Hashable | Sequence[Hashable]


class LoadVolumed(MapTransform):
    """Read the files at ``keys`` with ``load_volume``: the place of MONAI's ``LoadImaged``, for every format.

    Each value, a path, a folder or a list of DICOM files, becomes a channel-first ``MetaTensor`` (float32, or int64 for
    labels) with its affine in RAS mm. For a single image, ``Compose([load_volume, to_metatensor])`` is the same.

    Args:
        label_keys: those of ``keys`` that are label maps.
        strict, regrid, max_bytes: see ``load_volume``.
        allow_missing_keys: leave out keys that a sample lacks, rather than raise ``KeyError``.

    Raises:
        ValueError: if a label key is not among ``keys``; when called, as ``load_volume``.
    """

    def __init__(
        self,
        keys: Keys,
        label_keys: Keys = (),
        *,
        strict: bool = False,
        regrid: bool = False,
        max_bytes: int = MAX_BYTES,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.label_keys = _label_keys(self.keys, label_keys)
        self.load = partial(load_volume, strict=strict, regrid=regrid, max_bytes=max_bytes)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        labels = self.label_keys
        return {**data, **{k: to_metatensor(self.load(data[k], labels=k in labels)) for k in self.key_iterator(data)}}


class ResampleToSpacingd(MapTransform, InvertibleTransform):
    """Bring images, and the labels that lie on them, to one grid of a given spacing: ``resample`` for MONAI.

    The new grid is made once, from the first image among ``keys`` (``VoxelGrid.resampled``: same field of view and
    centre, exactly this spacing), and all keys come to lie on it. They must lie on one grid before, to 0.01 mm.

    ``inverse``, ``Compose.inverse`` and ``Invertd`` bring a prediction back to the grid from before: integers by
    partial volume, real numbers (probabilities) by ``mode``, or to the nearest value if ``Invertd`` is left at its
    default of ``nearest_interp=True``.

    Args:
        spacing_mm: one number, or three along the array axes as they are then (after ``Orientationd``, say).
        label_keys: those of ``keys`` that are label maps, integers of any dtype; they are resampled by partial volume
            (``resample_labels``).
        mode, profile: see ``resample``.
        allow_missing_keys: leave out keys that a sample lacks, rather than raise ``KeyError``.

    Raises:
        ValueError: for a bad spacing, or a label key that is not among ``keys``; when called, if the keys' grids differ
            (naming the field, both values and files), or labels are not integers.
        TypeError: when called, if an image is not floating point.
    """

    def __init__(
        self,
        keys: Keys,
        spacing_mm: float | Sequence[float],
        label_keys: Keys = (),
        *,
        mode: Mode = "linear",
        profile: Profile = "box",
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.spacing_mm = as_spacing_mm(spacing_mm)
        self.label_keys = _label_keys(self.keys, label_keys)
        self.mode, self.profile = mode, profile

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        volumes = {key: _volume(key, data[key]) for key in self.key_iterator(data)}
        if not volumes:
            return dict(data)
        first = volumes[min(volumes, key=self.label_keys.__contains__)]  # an image, unless there are labels only
        target = first.grid.resampled(self.spacing_mm)
        done = {}
        for key, volume in volumes.items():
            check_same_grid(first, volume)
            labels = key in self.label_keys
            seen = self._seen(replace(volume, grid=first.grid), target, None if labels else self.mode)
            # "mode" is what Invertd(nearest_interp=True) looks for, and sets to "nearest"
            info = {"affine": data[key].affine, "labels": labels, "mode": GridSampleMode.BILINEAR}
            moved = moved_to(data[key], seen)
            done[key] = self.push_transform(moved, orig_size=volume.grid.shape, extra_info=info)
        return {**data, **done}

    def inverse(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        done = {}
        for key in self.key_iterator(data):
            volume = _volume(key, data[key])
            tensor = moved_to(data[key], volume)  # with a list of operations of its own
            step = self.pop_transform(tensor)
            info = step[TraceKeys.EXTRA_INFO]
            mode: Mode | None = "nearest" if info["mode"] == GridSampleMode.NEAREST else self.mode
            if info["labels"] or volume.is_label_map:
                mode = None
            target = VoxelGrid(step[TraceKeys.ORIG_SIZE], in_ras(info["affine"], tensor.meta))
            done[key] = moved_to(tensor, self._seen(volume, target, mode))
        return {**data, **done}

    def _seen(self, volume: Volume, target: VoxelGrid, mode: Mode | None) -> Volume:
        """``volume`` on ``target``, in its dtype; as labels if ``mode`` is None."""
        if mode is None:
            seen = replace(volume, data=_whole(volume)).resampled(target, profile=self.profile)
            return replace(seen, data=seen.data.to(volume.data.dtype))
        if volume.is_label_map:
            raise TypeError(
                f"image {volume.name!r} must be floating point (labels: label_keys), got {volume.data.dtype}"
            )
        return volume.resampled(target, mode=mode, profile=None if mode == "nearest" else self.profile)


def _label_keys(keys: tuple[Hashable, ...], label_keys: Keys) -> tuple[Hashable, ...]:
    found: tuple[Hashable, ...] = ensure_tuple(label_keys)
    if not set(found) <= set(keys):
        raise ValueError(f"label_keys must be among the keys {keys}, got {found}")
    return found


def _volume(key: Hashable, tensor: Any) -> Volume:
    """The volume at ``key``, which its name and errors tell."""
    try:
        volume = from_metatensor(tensor)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{key}: {error}") from error
    return replace(volume, name=f"{key} {volume.name}".strip())


def _whole(volume: Volume) -> Tensor:
    """The labels of ``volume`` as integers; pipelines often hold them as floats."""
    labels = volume.data
    if volume.is_label_map:
        return labels
    bad = (labels - labels.round()) != 0  # also where it is NaN or infinite
    if bool(bad.any()):
        raise ValueError(f"labels {volume.name!r} must be integers, got {labels[bad][0].item():g}")
    return labels.long()
