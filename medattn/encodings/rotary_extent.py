"""Rotary encoding that knows how large a patch is."""

from __future__ import annotations

import torch
from torch import Tensor

from medattn.coordinates import Frame
from medattn.encodings.axial import AxialEncoding
from medattn.encodings.base import About, Invariance
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal
from medattn.encodings.turning import rotary_from_angles


@register("rotary_extent")
class RotaryExtentEncoding(AxialEncoding):
    """``rotary_axial`` averaged over each patch, which is a box and not a point.

    The mean of exp(i w.x) over a box with edge vectors e_a is that at its centre times prod_a sinc(w.e_a / 2), with
    sinc(t) = sin(t) / t, so pairs whose wavelength is short beside the patch fade instead of aliasing: thick slices
    lose the fine bands along their normal and keep them in plane. Equal to ``rotary_axial`` for small patches. No
    parameters. Options: see ``AxialEncoding``.
    """

    shared_width = "head_dim"
    about = About(
        formula=r"s(x, y) = \frac{1}{\sqrt d} \sum_p c_p^2\, \mathrm{Re}\big[q_p \bar k_p e^{i \omega_p (x - y)_{a(p)}}"
        r"\big], \quad c_p = \prod_a \mathrm{sinc}(\omega_p^\top e_a / 2)",
        source="this project; the average over a patch as mip-NeRF has it (Barron et al. 2021, arXiv:2103.13415)",
        when="Where slices are thick or patch sizes in mm differ between scans, in mm frames.",
    )
    defined_frames = tuple(frame for frame in Frame if frame is not Frame.SEQUENCE)
    why_undefined = "a patch has no extent along the token list; use 'rotary_axial' there"
    needs_layout = True

    @property
    def invariances(self) -> frozenset[Invariance]:
        return frozenset({Invariance.TRANSLATION})

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Rotary signal (B, 1, N, head_dim // 2, 2), of length 1 or below."""
        assert layout is not None
        edges = self.angles(layout.steps.to(coords.device, coords.dtype))  # (B, 3, P): turns along each edge
        fading = sinc(edges / 2).prod(1)
        return PositionSignal(rotary=(rotary_from_angles(self.angles(coords)) * fading[:, None, :, None])[:, None])


def sinc(t: Tensor) -> Tensor:
    """sin(t) / t, 1 at 0."""
    return torch.sinc(t / torch.pi)
