"""What biases that are a function of the displacement in mm have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from medattn.coordinates import Frame
from medattn.encodings.base import Invariance, PositionalEncoding
from medattn.encodings.bias import distinct_displacements, kernel_bias
from medattn.encodings.layout import TokenLayout
from medattn.encodings.signal import PositionSignal
from medattn.encodings.units import Millimetres
from medattn.geometry.grid import Triple


class KernelEncoding(PositionalEncoding):
    """Base class: a subclass says in ``kernel`` what a displacement in mm adds to the logits of each head.

    Args:
        reference_spacing_mm, reference_extent_mm, reference_step_mm: see ``Millimetres``.
    """

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = 250.0,
        reference_step_mm: float = 4.0,
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        self.axes = 1 if self.frame is Frame.SEQUENCE else 3
        self.units = Millimetres(
            self.frame,
            reference_spacing_mm=reference_spacing_mm,
            reference_extent_mm=reference_extent_mm,
            reference_step_mm=reference_step_mm,
        )

    @abstractmethod
    def kernel(self, displacement_mm: Tensor) -> Tensor:
        """(..., H) for displacements (..., A) in mm, memory minus query."""

    @property
    def invariances(self) -> frozenset[Invariance]:
        return frozenset({Invariance.TRANSLATION})

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """A bias: a table of the distinct displacements on grids, pair by pair for scattered tokens."""
        return PositionSignal(bias=kernel_bias(self._kernel_of_units, coords, layout))

    @property
    def kernel_macs(self) -> int:
        """Multiply-accumulates of ``kernel`` for one displacement."""
        return 0

    def signal_macs(self, shape: Triple) -> int:
        """Of the distinct displacements."""
        return distinct_displacements(shape) * (3 * self.axes + self.kernel_macs)

    def _kernel_of_units(self, displacement: Tensor) -> Tensor:
        return self.kernel(self.units(displacement))


class DistanceEncoding(KernelEncoding):
    """Base class: a kernel of the distance in mm alone, so that turning and reversing the axes changes nothing."""

    @property
    def invariances(self) -> frozenset[Invariance]:
        factors = self.units.factors
        same = {Invariance.AXIS_PERMUTATION, Invariance.ROTATION} if bool((factors == factors[0]).all()) else set()
        return frozenset({Invariance.TRANSLATION, Invariance.FLIP, *same})

    def kernel(self, displacement_mm: Tensor) -> Tensor:
        return self.profile(distances(displacement_mm)[..., None])

    @abstractmethod
    def profile(self, distance_mm: Tensor) -> Tensor:
        """(..., H) for distances (..., 1) in mm."""


def distances(displacements: Tensor) -> Tensor:
    """Lengths (...) of ``displacements`` (..., A), with gradient 0 where they are 0."""
    squared = displacements.square().sum(-1)
    away = squared > 0
    return torch.where(away, torch.where(away, squared, 1.0).sqrt(), 0.0)
