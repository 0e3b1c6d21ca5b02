"""``PositionSignal``: what positions do to attention, computed once per forward and shared by all layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional as F

from medattn.encodings.bias import Bias, sum_of_biases
from medattn.encodings.channels import Channels, SomeChannels, joined_channels
from medattn.encodings.turning import compose_turns, multiply_blocks, rotate_pairs


class TokenMixer(ABC):
    """A position-dependent map of the tokens themselves, applied before the first block."""

    @abstractmethod
    def __call__(self, tokens: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""

    @abstractmethod
    def with_prefix(self, count: int) -> TokenMixer:
        """The same for ``count`` tokens in front that it leaves alone."""


@dataclass(frozen=True)
class PositionSignal:
    """What positions do to attention. All parts are optional; with none of them nothing happens.

    Attributes:
        additive: (B, N, D), added to the tokens before the first block.
        mixer: maps the tokens before the first block, after ``additive`` was added.
        rotary: (B, 1 or H, N, P, 2), cosine and sine for P channel pairs of queries and keys. Pairs are interleaved:
            channels 2p and 2p + 1 turn together; channels past 2P are left as they are.
        matrices: (B, 1 or H, N, G, b, b), for G blocks of b channels of queries and keys, before ``rotary``.
        bias: a function of pairs of tokens, added to the logits.
        channels: the same as an inner product of extra channels of queries and keys.
    """

    additive: Tensor | None = None
    rotary: Tensor | None = None
    matrices: Tensor | None = None
    bias: Bias | None = None
    channels: Channels | None = None
    mixer: TokenMixer | None = None

    def to(self, device: torch.device, dtype: torch.dtype) -> PositionSignal:
        """Cast all parts, once here and not in each layer; what multiplies angles or coordinates stays float32."""
        fine = torch.promote_types(dtype, torch.float32)
        return PositionSignal(
            None if self.additive is None else self.additive.to(device, dtype),
            None if self.rotary is None else self.rotary.to(device, fine),
            None if self.matrices is None else self.matrices.to(device, fine),
            None if self.bias is None else self.bias.to(device, dtype),
            None if self.channels is None else self.channels.to(device, dtype),
            self.mixer,
        )

    def with_prefix(self, count: int) -> PositionSignal:
        """The signal for ``count`` extra tokens in front that have no place in space: nothing is done to them."""
        return PositionSignal(
            None if self.additive is None else F.pad(self.additive, (0, 0, count, 0)),
            None if self.rotary is None else _still_in_front(self.rotary, count, self.rotary.new_tensor([1.0, 0.0])),
            None if self.matrices is None else _still_in_front(self.matrices, count, _identity(self.matrices)),
            None if self.bias is None else self.bias.with_prefix(count),
            None if self.channels is None else self.channels.with_prefix(count),
            None if self.mixer is None else self.mixer.with_prefix(count),
        )

    def at(self, numbers: Tensor) -> PositionSignal:
        """The signal of the tokens ``numbers`` (n,) alone; ``bias`` stays that of all, to be asked for pairs.

        Raises:
            ValueError: if it maps tokens together.
        """
        if self.mixer is not None:
            raise ValueError("tokens that are mapped together have no signal of their own")
        return PositionSignal(
            None if self.additive is None else self.additive[:, numbers],
            None if self.rotary is None else self.rotary[:, :, numbers],
            None if self.matrices is None else self.matrices[:, :, numbers],
            self.bias,
            None if self.channels is None else SomeChannels(self.channels, numbers),
        )

    def add_to(self, tokens: Tensor) -> Tensor:
        """``tokens`` (B, N, D) with the additive part and through the mixer."""
        tokens = tokens if self.additive is None else tokens + self.additive
        return tokens if self.mixer is None else self.mixer(tokens)

    def rotate(self, x_BHND: Tensor) -> Tensor:
        """Queries or keys (B, H, N, D) turned by matrices and rotary, in float32 or better."""
        x = x_BHND if self.matrices is None else multiply_blocks(x_BHND, self.matrices)
        return x if self.rotary is None else rotate_pairs(x, self.rotary)


def sum_of_signals(signals: Sequence[PositionSignal]) -> PositionSignal:
    """Everything that each of them does: turns one after the other, mixers too, the rest added up.

    Raises:
        ValueError: if several turn by matrices, which do not commute.
    """
    matrices = [s.matrices for s in signals if s.matrices is not None]
    if len(matrices) > 1:
        raise ValueError(
            f"at most one encoding of a sum may turn by matrices, which do not commute; {len(matrices)} do"
        )
    additive, rotary = ([x for s in signals if (x := getattr(s, name)) is not None] for name in ("additive", "rotary"))
    mixers = [s.mixer for s in signals if s.mixer is not None]
    return PositionSignal(
        reduce(torch.add, additive) if additive else None,
        reduce(compose_turns, rotary) if rotary else None,
        matrices[0] if matrices else None,
        sum_of_biases([s.bias for s in signals if s.bias is not None]),
        joined_channels([s.channels for s in signals if s.channels is not None]),
        _MixerChain(tuple(mixers)) if mixers else None,
    )


@dataclass(frozen=True)
class _MixerChain(TokenMixer):
    mixers: tuple[TokenMixer, ...]

    def __call__(self, tokens: Tensor) -> Tensor:
        for mixer in self.mixers:
            tokens = mixer(tokens)
        return tokens

    def with_prefix(self, count: int) -> TokenMixer:
        return _MixerChain(tuple(mixer.with_prefix(count) for mixer in self.mixers))


def _still_in_front(turns: Tensor, count: int, still: Tensor) -> Tensor:
    """``turns`` (B, h, N, G, ...) after ``count`` tokens that are not turned."""
    front = still.expand(*turns.shape[:2], count, turns.shape[3], *still.shape)
    return torch.cat([front, turns], dim=2)


def _identity(matrices: Tensor) -> Tensor:
    return torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
