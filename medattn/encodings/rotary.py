"""Rotary encoding with the channel pairs shared over the axes."""

from __future__ import annotations

from torch import Tensor

from medattn.encodings.axial import AxialEncoding
from medattn.encodings.base import About, Invariance
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal
from medattn.encodings.turning import rotary_from_angles


@register("rotary_axial")
class RotaryAxialEncoding(AxialEncoding):
    """Queries and keys turn by angle = coordinate x frequency, so logits depend on displacements alone.

    RoFormer (arXiv:2104.09864) on three axes: of the ``head_dim // 2`` pairs each axis takes its share (11, 11, 10
    of 32). No parameters; all heads alike. An odd last channel is not turned. Options: see ``AxialEncoding``.
    """

    shared_width = "head_dim"
    about = About(
        formula=r"s(x, y) = \frac{1}{\sqrt d} \sum_p \mathrm{Re}\big[q_p \bar k_p e^{i \omega_p (x - y)_{a(p)}}\big]",
        source="Su et al. 2021 (RoFormer), arXiv:2104.09864, on three axes",
        when="The default: exact displacements at next to no cost, no parameters, any grid.",
    )

    @property
    def invariances(self) -> frozenset[Invariance]:
        return frozenset({Invariance.TRANSLATION})

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Rotary signal (B, 1, N, head_dim // 2, 2)."""
        return PositionSignal(rotary=rotary_from_angles(self.angles(coords))[:, None])
