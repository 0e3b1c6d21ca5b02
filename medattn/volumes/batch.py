"""Batches of volumes in which each keeps its own grid, and the ``collate_fn`` that makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from medattn.geometry import VoxelGrid
from medattn.volumes.notes import Note
from medattn.volumes.stored import Metadata
from medattn.volumes.volume import Volume


@dataclass(frozen=True, eq=False)
class VolumeBatch:
    """B volumes; ``encoder(batch.data, batch.grids)`` takes them as they are, and ``batch[b]`` is a ``Volume`` again.

    Attributes:
        data: (B, C, I, J, K) if all volumes have one shape, else a list of B tensors (C, I, J, K).
        grids: the grid of each volume.
        source_grids, names, notes, metadata: of each volume, as in ``Volume``.
    """

    data: Tensor | list[Tensor]
    grids: list[VoxelGrid]
    source_grids: list[VoxelGrid]
    names: list[str]
    notes: list[tuple[Note, ...]]
    metadata: list[Metadata]

    @classmethod
    def of(cls, volumes: Sequence[Volume]) -> VolumeBatch:
        """Put ``volumes`` together.

        Raises:
            ValueError: if there are none, or their data is not of one dtype (stacking would turn labels into floats).
        """
        dtypes = sorted({str(volume.data.dtype) for volume in volumes})
        if len(dtypes) != 1:
            raise ValueError(f"a batch must hold volumes of one dtype, got {len(volumes)} of {' and '.join(dtypes)}")
        return cls(
            data=_stacked([volume.data for volume in volumes]),
            grids=[volume.grid for volume in volumes],
            source_grids=[volume.source_grid for volume in volumes],
            names=[volume.name for volume in volumes],
            notes=[volume.notes for volume in volumes],
            metadata=[volume.metadata for volume in volumes],
        )

    def __len__(self) -> int:
        return len(self.grids)

    def __getitem__(self, sample: int) -> Volume:
        return Volume(
            self.data[sample],
            self.grids[sample],
            self.notes[sample],
            self.names[sample],
            self.metadata[sample],
            self.source_grids[sample],
        )

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> VolumeBatch:
        """The batch with its data on ``device``; grids stay on the CPU."""
        return self._with_data(lambda data: data.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> VolumeBatch:
        """The batch with its data in pinned memory; ``DataLoader(pin_memory=True)`` calls it."""
        return self._with_data(Tensor.pin_memory)

    def _with_data(self, change: Callable[[Tensor], Tensor]) -> VolumeBatch:
        data = change(self.data) if isinstance(self.data, Tensor) else [change(one) for one in self.data]
        return replace(self, data=data)


def collate_volumes(samples: Sequence[Any]) -> Any:
    """Make a batch of the samples of a data set: ``DataLoader(..., collate_fn=collate_volumes)``.

    A sample is a ``Volume``, or a dict or tuple of anything. Volumes become a ``VolumeBatch``; dicts and tuples become
    one, of columns, each put together in turn: volumes as above; tensors and arrays as a tensor, or a list if their
    shapes differ; numbers as a tensor; all else as a list, with None for samples that lack the key. A sample that is a
    list counts as several samples (random crops of one scan).

    Raises:
        ValueError: if there are no samples, they are not all of one kind, volumes of a column differ in dtype, or a
            tensor has an affine of its own, which stacking would lose (MONAI's: ``collate_metatensors``).
    """
    flat = [one for sample in samples for one in (sample if isinstance(sample, list) else [sample])]
    if not flat:
        raise ValueError("samples must hold at least one sample, got none")
    kinds = {kind for one in flat for kind in (Mapping, tuple, Volume) if isinstance(one, kind)}
    if len(kinds) > 1:
        raise ValueError(
            f"samples must be all dicts, all tuples or all volumes, got {sorted(k.__name__ for k in kinds)}"
        )
    return _collate(flat)


def _collate(values: list[Any]) -> Any:
    """One column; see ``collate_volumes``."""
    if _all(values, Volume):
        return VolumeBatch.of(values)
    if _all(values, Mapping):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _collate([value.get(key) for value in values]) for key in keys}
    if _all(values, tuple) and len({len(value) for value in values}) == 1:
        return tuple(_collate(list(column)) for column in zip(*values, strict=True))
    if _all(values, Tensor | np.ndarray):
        return _stacked([_plain(value) for value in values])
    if _all(values, int | float | np.number | np.bool_):
        return torch.from_numpy(np.asarray(values))
    return values


def _all(values: list[Any], kind: Any) -> bool:
    return all(isinstance(value, kind) for value in values)


def _plain(value: Any) -> Tensor:
    if hasattr(value, "affine"):
        raise ValueError(
            f"a tensor with an affine of its own ({type(value).__name__}, shape {tuple(value.shape)}) would lose it in "
            "a batch: make it a Volume, or use medattn.integrations.monai.collate_metatensors"
        )
    return torch.as_tensor(value)


def _stacked(tensors: list[Tensor]) -> Tensor | list[Tensor]:
    return torch.stack(tensors) if len({tensor.shape for tensor in tensors}) == 1 else tensors
