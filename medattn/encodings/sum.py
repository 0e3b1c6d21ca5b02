"""Several encodings at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame
from medattn.encodings.base import About, Invariance, PositionalEncoding
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import create_encoding, register
from medattn.encodings.signal import PositionSignal, sum_of_signals
from medattn.geometry.grid import Triple


@register("sum")
class SumEncoding(PositionalEncoding):
    """Everything that each of its parts does: additions and biases add up, turns follow each other.

    Args:
        parts: each a mapping with a ``name`` and, if it has any, its ``options``. All are built in ``frame``.

    Raises:
        ValueError: for an empty list, or a part that cannot be built; the error names the part.
    """

    about = About(
        formula=r"\text{all that the parts add to } z \text{ and } s, \text{ and their turns one after the other}",
        source="this project",
        when="To ask whether two kinds of position help more than one, for example absolute place beside locality.",
    )

    def __init__(
        self, *, dim: int, num_heads: int, frame: Frame | str, parts: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(dim=dim, num_heads=num_heads, frame=frame)
        if isinstance(parts, str | Mapping) or not isinstance(parts, Sequence) or not parts:
            raise ValueError(
                f'parts of a sum must be a list of at least one {{"name": ..., "options": {{...}}}}, got {parts!r}'
            )
        built = [self._build(number, part) for number, part in enumerate(parts)]
        self.parts = nn.ModuleList(built)
        self.needs_layout = any(part.needs_layout for part in built)  # type: ignore[misc]
        self.tells_tokens_apart = any(part.tells_tokens_apart for part in built)  # type: ignore[misc]

    def _build(self, number: int, part: Any) -> PositionalEncoding:
        if not isinstance(part, Mapping) or "name" not in part or set(part) - {"name", "options"}:
            raise ValueError(f'part {number} of a sum must be {{"name": ..., "options": {{...}}}}, got {part!r}')
        torch.rand(())  # the next part would draw the same numbers otherwise; nobody outside sees this draw
        options = part.get("options") or {}
        try:
            return create_encoding(part["name"], dim=self.dim, num_heads=self.num_heads, frame=self.frame, **options)
        except (ValueError, TypeError) as error:
            raise ValueError(f"part {number} ({part['name']!r}) of a sum: {error}") from error

    @property
    def encodings(self) -> list[PositionalEncoding]:
        """The parts, in order."""
        return [part for part in self.parts if isinstance(part, PositionalEncoding)]

    @property
    def invariances(self) -> frozenset[Invariance]:
        """What all parts have in common."""
        return frozenset.intersection(*(part.invariances for part in self.encodings))

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """The signals of all parts in one.

        Raises:
            ValueError: if one part turns by matrices and another by angles or matrices: they do not commute, and the
                logits would no longer depend on displacements alone.
        """
        total = sum_of_signals([part(coords, layout) for part in self.encodings])
        if total.matrices is not None and total.rotary is not None:
            names = ", ".join(part.name for part in self.encodings)
            raise ValueError(f"a sum may turn by matrices or by angles but not both, which do not commute: got {names}")
        return total

    def signal_macs(self, shape: Triple) -> int:
        return sum(part.signal_macs(shape) for part in self.encodings)

    def layer_macs(self, shape: Triple, prefix: int = 0) -> int:
        return sum(part.layer_macs(shape, prefix) for part in self.encodings)
