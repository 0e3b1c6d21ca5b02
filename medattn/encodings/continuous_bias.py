"""Logits by a learned function of the displacement."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from medattn.coordinates import Frame
from medattn.encodings.base import About
from medattn.encodings.coordinate_mlp import Perceptron, checked_hidden_dim
from medattn.encodings.kernel_encoding import KernelEncoding
from medattn.encodings.registry import register


@register("continuous_bias")
class ContinuousBiasEncoding(KernelEncoding):
    """A perceptron of the log-spaced displacement: each axis enters as sign(d) log2(1 + |d| / ``scale_mm``).

    Swin Transformer V2's continuous relative position bias, in mm. Near displacements are resolved finely, far ones
    coarsely.

    Args:
        hidden_dim: width of the hidden layer.
        scale_mm: the displacement that enters as 1; below it the spacing is about linear.
        bound: if given, the bias is ``bound`` x sigmoid(perceptron), as published with 16.
        reference_spacing_mm, reference_extent_mm, reference_step_mm: see ``Millimetres``.
    """

    about = About(
        formula=r"s_h(x, y) \mathrel{+}= f_h(\phi(y - x)), "
        r"\quad \phi_a(d) = \mathrm{sign}(d_a) \log_2(1 + |d_a| / \ell)",
        source="Liu et al. 2022 (Swin Transformer V2), arXiv:2111.09883, in mm",
        when="For any relation by displacement and direction, also oblique. The most flexible bias and the dearest.",
    )

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        hidden_dim: int = 64,
        scale_mm: float = 16.0,
        bound: float | None = None,
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = 250.0,
        reference_step_mm: float = 4.0,
    ) -> None:
        super().__init__(
            dim=dim,
            num_heads=num_heads,
            frame=frame,
            reference_spacing_mm=reference_spacing_mm,
            reference_extent_mm=reference_extent_mm,
            reference_step_mm=reference_step_mm,
        )
        for name, value in (("scale_mm", scale_mm), ("bound", 1.0 if bound is None else bound)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value!r}")
        self.scale_mm, self.bound = float(scale_mm), bound
        self.mlp = Perceptron((self.axes, checked_hidden_dim(hidden_dim), num_heads))

    def kernel(self, displacement_mm: Tensor) -> Tensor:
        spaced = displacement_mm.sign() * torch.log2(1 + displacement_mm.abs() / self.scale_mm)
        out = self.mlp(spaced)
        return out if self.bound is None else self.bound * out.sigmoid()

    @property
    def kernel_macs(self) -> int:
        return self.mlp.macs
