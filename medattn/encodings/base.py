"""What a positional encoding is: coordinates in, ``PositionSignal`` out. The base class is the "none" arm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from medattn.coordinates import Frame

ALL_FRAMES = tuple(Frame)


@dataclass(frozen=True)
class PositionSignal:
    """What positions do to attention; computed once per forward and shared by all layers.

    Attributes:
        additive: (B, N, D), added to the tokens before the first block.
        rotary: (B, 1 or H, N, P, 2), cosine and sine for P channel pairs of queries and keys. Pairs are interleaved:
            channels 2p and 2p + 1 turn together; channels past 2P are left as they are.
    """

    additive: Tensor | None = None
    rotary: Tensor | None = None

    def to(self, device: torch.device, dtype: torch.dtype) -> PositionSignal:
        """Cast both parts; the cast happens once here, not in each layer."""
        additive = None if self.additive is None else self.additive.to(device, dtype)
        rotary = None if self.rotary is None else self.rotary.to(device, torch.promote_types(dtype, torch.float32))
        return PositionSignal(additive, rotary)

    def with_prefix(self, count: int) -> PositionSignal:
        """The signal for ``count`` extra tokens in front that have no place in space: nothing added, not rotated."""
        additive, rotary = self.additive, self.rotary
        if additive is not None:
            additive = nn.functional.pad(additive, (0, 0, count, 0))
        if rotary is not None:
            still = rotary.new_tensor([1.0, 0.0]).expand(*rotary.shape[:2], count, rotary.shape[3], 2)
            rotary = torch.cat([still, rotary], dim=2)
        return PositionSignal(additive, rotary)

    def add_to(self, tokens: Tensor) -> Tensor:
        """``tokens`` (B, N, D) plus the additive part."""
        return tokens if self.additive is None else tokens + self.additive

    def rotate(self, x_BHND: Tensor) -> Tensor:
        """Queries or keys (B, H, N, D) turned by the rotary part, in float32 or better."""
        return x_BHND if self.rotary is None else rotate_pairs(x_BHND, self.rotary)


def rotate_pairs(x: Tensor, rotary: Tensor) -> Tensor:
    """Turn channel pairs (2p, 2p + 1) of ``x`` (B, H, N, D) by the angles in ``rotary`` (B, 1 or H, N, P, 2).

    RoFormer, arXiv:2104.09864, eq. 34. A complex product is the fastest eager form; written out, the same product
    compiles into one kernel and takes any memory layout.
    """
    turned_channels = 2 * rotary.shape[-2]
    pairs = x[..., :turned_channels].to(rotary.dtype).unflatten(-1, (-1, 2))
    if not torch.compiler.is_compiling() and _can_be_complex(pairs) and _can_be_complex(rotary):
        turned = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(rotary))
    else:
        (a, b), (cosine, sine) = pairs.unbind(-1), rotary.unbind(-1)
        turned = torch.stack([a * cosine - b * sine, a * sine + b * cosine], dim=-1)
    turned = turned.flatten(-2).to(x.dtype)
    if turned_channels == x.shape[-1]:
        return turned
    return torch.cat([turned, x[..., turned_channels:]], dim=-1)


def _can_be_complex(pairs: Tensor) -> bool:
    """Whether a complex view exists: neighbouring pairs, even strides (an odd head width has odd ones)."""
    return pairs.stride(-1) == 1 and all(step % 2 == 0 for step in (*pairs.stride()[:-1], pairs.storage_offset()))


class PositionalEncoding(nn.Module):
    """Turns token coordinates into a ``PositionSignal``. This base class is a true "none": no parameters, no signal.

    Args:
        dim: token width.
        num_heads: attention heads; must divide ``dim``.
        frame: the coordinate frame that ``forward`` will be given (see ``Frame``).

    Raises:
        ValueError: for sizes that do not fit, an unknown frame, or a frame in which the encoding is not defined.
    """

    name: ClassVar[str] = "none"
    defined_frames: ClassVar[tuple[Frame, ...]] = ALL_FRAMES
    is_translation_invariant: ClassVar[bool] = False
    """True if moving all tokens together changes no logit. The encoder then measures from the middle of each sample's
    tokens, which keeps this exact in low precision and beside prefix tokens, which have no place to move."""

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
            raise ValueError(f"encoding {self.name!r} is not defined in frame {self.frame.value!r}, only in {names}")

    @property
    def head_dim(self) -> int:
        return self.dim // self.num_heads

    def forward(self, coords: Tensor) -> PositionSignal:
        """Signal for ``coords`` (B, N, 3), or (B, N, 1) in frame "sequence", in the unit of ``frame``."""
        self.check_coords(coords)
        return PositionSignal()

    def check_coords(self, coords: Tensor) -> None:
        """Raise unless ``coords`` has the frame's shape and a dtype that keeps positions (float32, float64)."""
        width = 1 if self.frame is Frame.SEQUENCE else 3
        if coords.ndim != 3 or coords.shape[-1] != width:
            raise ValueError(f"coords in frame {self.frame.value!r} must be (B, N, {width}), got {tuple(coords.shape)}")
        if coords.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"coords must be float32 or float64 (bfloat16 merges neighbours), got {coords.dtype}")
