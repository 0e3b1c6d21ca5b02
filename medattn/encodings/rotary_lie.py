"""Rotary encoding by matrices: any rotation of blocks of channels, not of pairs alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame
from medattn.encodings.base import About, Invariance, PositionalEncoding
from medattn.encodings.frequencies import checked_wavelengths_mm
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import register
from medattn.encodings.signal import PositionSignal
from medattn.encodings.units import Millimetres
from medattn.geometry.grid import Triple

Generators = Literal["commuting", "free"]


@register("rotary_lie")
class RotaryLieEncoding(PositionalEncoding):
    """Queries and keys turn by exp(sum_a x_a A_a), with a learned skew-symmetric A_a for each head, block and axis.

    "free" generators are LieRE: they do not commute, so logits depend on places and not on displacements alone.
    "commuting" ones are STRING and ComRoPE: all axes share one learned orthogonal basis P, A_a = P diag(w_pa J) P^T
    with J a quarter turn of a pair, so logits depend on displacements alone, exactly. (P could be absorbed into the
    projections of queries and keys; it is kept so that the parameters are the published ones.) Channels past the last
    whole block are left as they are. Matrices are computed in float64.

    Args:
        generators: "commuting" or "free".
        block_size: channels of a block, even with commuting generators.
        wavelengths_mm: (shortest, longest) of the turns at the start, drawn log-uniformly.
        reference_spacing_mm, reference_extent_mm, reference_step_mm: see ``Millimetres``.

    Raises:
        ValueError: if no block fits into a head, or an option is out of its range.
    """

    about = About(
        formula=r"s(x, y) = \frac{1}{\sqrt d}\, q^\top R(x)^\top R(y)\, k, \quad R(x) = \exp \sum_a x_a A_a",
        source="Ostmeier et al. 2024 (LieRE), arXiv:2406.10322; Schenck et al. 2025 (STRING), arXiv:2502.02562; "
        "Yu et al. 2025 (ComRoPE), arXiv:2506.03737",
        when="To ask whether more than turns of pairs helps. Dear: one small matrix for each token, head and block.",
    )

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        frame: Frame | str,
        generators: Generators = "commuting",
        block_size: int = 4,
        wavelengths_mm: Sequence[float] = (16.0, 250.0),
        reference_spacing_mm: Any = 1.0,
        reference_extent_mm: Any = 250.0,
        reference_step_mm: float = 4.0,
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        if generators not in ("commuting", "free"):
            raise ValueError(f"generators must be 'commuting' or 'free', got {generators!r}")
        if isinstance(block_size, bool) or not isinstance(block_size, int) or not 2 <= block_size <= self.head_dim:
            raise ValueError(
                f"block_size must be an integer from 2 to the head width {self.head_dim}, got {block_size!r}"
            )
        if generators == "commuting" and block_size % 2:
            raise ValueError(f"block_size must be even with commuting generators, got {block_size}")
        self.units = Millimetres(
            self.frame,
            reference_spacing_mm=reference_spacing_mm,
            reference_extent_mm=reference_extent_mm,
            reference_step_mm=reference_step_mm,
        )
        self.generators, self.block_size = generators, block_size
        axes, groups = len(self.units.factors), self.head_dim // block_size
        shortest, longest = checked_wavelengths_mm(wavelengths_mm)
        blocks = (num_heads, groups)
        if generators == "commuting":
            self.basis = nn.Parameter(0.5 * torch.randn(*blocks, block_size, block_size))
            shape: tuple[int, ...] = (*blocks, block_size // 2, axes)
        else:
            shape = (*blocks, axes, block_size * (block_size - 1) // 2)
        wavelengths = shortest * (longest / shortest) ** torch.rand(shape, dtype=torch.float64)
        signs = torch.randint(2, shape) * 2 - 1
        self.frequencies = nn.Parameter((signs * 2 * math.pi / wavelengths).float())

    @property
    def invariances(self) -> frozenset[Invariance]:
        return frozenset({Invariance.TRANSLATION} if self.generators == "commuting" else ())

    def signal_macs(self, shape: Triple) -> int:
        """Matrix exponentials are left out."""
        tokens, frequencies = math.prod(shape), self.frequencies.numel()
        if self.generators == "free":
            return tokens * frequencies
        return tokens * (frequencies + 2 * self.basis.numel() * self.block_size)

    def layer_macs(self, shape: Triple, prefix: int = 0) -> int:
        groups = self.head_dim // self.block_size
        return 2 * (prefix + math.prod(shape)) * self.num_heads * groups * self.block_size**2

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """Matrices (B, H, N, head_dim // block_size, block_size, block_size)."""
        places = self.units(coords).double()
        turns = self._commuting(places) if self.generators == "commuting" else self._free(places)
        return PositionSignal(matrices=turns.to(coords.dtype))

    def _commuting(self, places: Tensor) -> Tensor:
        skew = self.basis.double() - self.basis.double().mT
        basis = torch.linalg.matrix_exp(skew)  # (H, G, b, b), orthogonal
        angles = torch.einsum("bna,hgpa->bhngp", places, self.frequencies.double())
        turned = _pair_rotations(angles)
        return torch.einsum("hgij,bhngjk,hglk->bhngil", basis, turned, basis)

    def _free(self, places: Tensor) -> Tensor:
        row, column = torch.triu_indices(self.block_size, self.block_size, 1, device=places.device)
        upper = torch.einsum("bna,hgae->bhnge", places, self.frequencies.double())
        skew = upper.new_zeros(*upper.shape[:-1], self.block_size, self.block_size)
        skew[..., row, column] = upper
        return torch.linalg.matrix_exp(skew - skew.mT)


def _pair_rotations(angles: Tensor) -> Tensor:
    """Block-diagonal (..., 2P, 2P) of turns by ``angles`` (..., P) of the pairs (2p, 2p + 1)."""
    pairs = angles.shape[-1]
    cosine, sine = (torch.diag_embed(x) for x in (angles.cos(), angles.sin()))  # (..., P, P)
    rows = [torch.stack([cosine, -sine], -1).flatten(-2), torch.stack([sine, cosine], -1).flatten(-2)]
    return torch.stack(rows, dim=-2).reshape(*angles.shape[:-1], 2 * pairs, 2 * pairs)
