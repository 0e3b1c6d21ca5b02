"""What a positional encoding is: coordinates in, ``PositionSignal`` out. The base class is the "none" arm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame
from medattn.encodings.layout import TokenLayout
from medattn.encodings.signal import PositionSignal
from medattn.geometry.grid import Triple

ALL_FRAMES = tuple(Frame)


class Invariance(StrEnum):
    """Something done to all positions that changes no logit between tokens of equal content."""

    TRANSLATION = "translation"
    """Moving all tokens together."""
    FLIP = "flip"
    """Reversing any axis of the coordinates."""
    AXIS_PERMUTATION = "axis permutation"
    """Exchanging axes of the coordinates."""
    ROTATION = "rotation"
    """Turning the coordinates about any axis."""
    SCALE = "scale"
    """Multiplying the coordinates by one number."""
    TOKEN_PERMUTATION = "token permutation"
    """Exchanging tokens."""


@dataclass(frozen=True)
class About:
    """What ``docs/encodings.md`` says of an encoding.

    Attributes:
        formula: what is computed, in LaTeX without delimiters, for a query at x and a memory at y.
        source: the paper it comes from (authors, year, arXiv number), or "this project".
        when: when to use it, and when not, in a sentence or two.
    """

    formula: str
    source: str
    when: str


class PositionalEncoding(nn.Module):
    """Turns token coordinates into a ``PositionSignal``. This base class is a true "none": no parameters, no signal.

    A subclass says in ``signal`` what it computes; ``forward`` checks the input and keeps autocast away. Parameters and
    buffers stay in float32 or better whatever the model is cast to: half precision merges neighbouring positions.

    Args:
        dim: token width.
        num_heads: attention heads; must divide ``dim``.
        frame: the coordinate frame that ``forward`` will be given (see ``Frame``).

    Raises:
        ValueError: for sizes that do not fit, an unknown frame, or a frame in which the encoding is not defined.
    """

    name: ClassVar[str] = "none"
    about: ClassVar[About] = About(
        formula=r"s(x, y) = \frac{q^\top k}{\sqrt d}",
        source="Vaswani et al. 2017, arXiv:1706.03762, without positions",
        when="As the arm that everything else must beat: the encoder sees a bag of patches.",
    )
    defined_frames: ClassVar[tuple[Frame, ...]] = ALL_FRAMES
    why_undefined: ClassVar[str] = ""
    """Ends the error about a frame that is not among ``defined_frames``: why, and what to use."""
    needs_layout: ClassVar[bool] = False
    """True if it needs to know the tokens' grids, and not only where they are."""

    tells_tokens_apart: ClassVar[bool] = True
    """False if tokens of equal content may be alike although they lie in different places."""

    def __init__(self, *, dim: int, num_heads: int, frame: Frame | str) -> None:
        super().__init__()
        for field, value in (("dim", dim), ("num_heads", num_heads)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{field} must be a positive integer, got {value!r}")
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim}, num_heads={num_heads}")
        self.dim, self.num_heads, self.frame = dim, num_heads, Frame.parse(frame)
        if self.frame not in self.defined_frames:
            names = ", ".join(f.value for f in self.defined_frames)
            why = f": {self.why_undefined}" if self.why_undefined else ""
            raise ValueError(
                f"encoding {self.name!r} is not defined in frame {self.frame.value!r}, only in {names}{why}"
            )

    @property
    def head_dim(self) -> int:
        return self.dim // self.num_heads

    @property
    def invariances(self) -> frozenset[Invariance]:
        """Everything that changes no logit; what is not in here does change some."""
        return frozenset(Invariance) if type(self) is PositionalEncoding else frozenset()

    @property
    def is_translation_invariant(self) -> bool:
        """True if moving all tokens together changes no logit. The encoder then measures from the middle of each
        sample's tokens, which keeps this exact in low precision and beside prefix tokens, which have no place to move.
        """
        return Invariance.TRANSLATION in self.invariances

    def signal_macs(self, shape: Triple) -> int:
        """Multiply-accumulates of matrix products and convolutions, once per forward, for a token grid of ``shape``."""
        return 0

    def layer_macs(self, shape: Triple, prefix: int = 0) -> int:
        """Multiply-accumulates that each layer's attention does on top of ``medattn.layer_macs``, for one token grid of
        ``shape`` after ``prefix`` tokens without a place, in float32 or better.
        """
        return 0

    def forward(self, coords: Tensor, layout: TokenLayout | None = None) -> PositionSignal:
        """Signal for ``coords`` (B, N, 3), or (B, N, 1) in frame "sequence", in the unit of ``frame``.

        Args:
            layout: the grids that the tokens fill; None for scattered tokens.

        Raises:
            ValueError: for coordinates of another shape, a layout that does not fit them, or none where it is needed.
            TypeError: for coordinates in half precision.
        """
        self._check(coords, layout)
        with torch.autocast(coords.device.type, enabled=False):
            return self.signal(coords, layout)

    def signal(self, coords: Tensor, layout: TokenLayout | None) -> PositionSignal:
        """What a subclass computes, from checked input and without autocast."""
        return PositionSignal()

    def _check(self, coords: Tensor, layout: TokenLayout | None) -> None:
        width = 1 if self.frame is Frame.SEQUENCE else 3
        if coords.ndim != 3 or coords.shape[-1] != width:
            raise ValueError(f"coords in frame {self.frame.value!r} must be (B, N, {width}), got {tuple(coords.shape)}")
        if coords.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"coords must be float32 or float64 (bfloat16 merges neighbours), got {coords.dtype}")
        if layout is None:
            if self.needs_layout:
                raise ValueError(f"encoding {self.name!r} needs the grids of the tokens: pass a TokenLayout as layout")
        elif len(layout.shapes) != coords.shape[0] or max(layout.lengths) > coords.shape[1]:
            raise ValueError(f"layout must fit coords {tuple(coords.shape)}, got token grids {layout.shapes}")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = {id(buffer) for buffer in self.buffers() if buffer.dtype == torch.float64}

        def kept(tensor: Tensor) -> Tensor:
            out = fn(tensor)
            if not out.is_floating_point() or out.dtype == tensor.dtype:
                return out
            if id(tensor) in exact and out.device.type != "mps":  # that device has no float64
                return tensor.to(out.device)
            return out if out.dtype in (torch.float32, torch.float64) else tensor.to(out.device, torch.float32)

        super()._apply(kept, recurse)
        return self
