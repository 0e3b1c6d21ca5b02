"""Biases that are inner products: extra channels of queries and keys, which any fused attention takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


class Channels(ABC):
    """Adds queries(q) . keys(q.dtype) to the logits, whatever their scale and temperature."""

    @abstractmethod
    def queries(self, q: Tensor) -> Tensor:
        """(B, H, N, E) for queries ``q`` (B, H, N, D), in its dtype."""

    @abstractmethod
    def keys(self, dtype: torch.dtype) -> Tensor:
        """(B or 1, H or 1, N, E) in ``dtype``."""

    @abstractmethod
    def to(self, device: torch.device, dtype: torch.dtype) -> Channels:
        """Moved, and cast to ``dtype`` but to nothing coarser than float32."""

    @abstractmethod
    def with_prefix(self, count: int) -> Channels:
        """With ``count`` tokens in front that have no place in space: nothing to them and from them."""


@dataclass(frozen=True)
class JoinedChannels(Channels):
    """Several, side by side."""

    parts: tuple[Channels, ...]

    def queries(self, q: Tensor) -> Tensor:
        return torch.cat([part.queries(q) for part in self.parts], dim=-1)

    def keys(self, dtype: torch.dtype) -> Tensor:
        keys = [part.keys(dtype) for part in self.parts]
        batch, heads = (max(k.shape[axis] for k in keys) for axis in (0, 1))
        return torch.cat([k.expand(batch, heads, -1, -1) for k in keys], dim=-1)

    def to(self, device: torch.device, dtype: torch.dtype) -> JoinedChannels:
        return JoinedChannels(tuple(part.to(device, dtype) for part in self.parts))

    def with_prefix(self, count: int) -> JoinedChannels:
        return JoinedChannels(tuple(part.with_prefix(count) for part in self.parts))


@dataclass(frozen=True)
class SomeChannels(Channels):
    """Those of some tokens alone.

    Attributes:
        every: the channels of all tokens.
        numbers: (n,) which of them.
    """

    every: Channels
    numbers: Tensor

    def queries(self, q: Tensor) -> Tensor:
        """(B, H, n, E) for queries (B, H, n, D): what a query asks may depend on its place among all."""
        count = self.every.keys(q.dtype).shape[2]
        everywhere = q.new_zeros(*q.shape[:2], count, q.shape[3]).index_copy(2, self.numbers, q)
        return self.every.queries(everywhere)[:, :, self.numbers]

    def keys(self, dtype: torch.dtype) -> Tensor:
        return self.every.keys(dtype)[:, :, self.numbers]

    def to(self, device: torch.device, dtype: torch.dtype) -> SomeChannels:
        return SomeChannels(self.every.to(device, dtype), self.numbers.to(device))

    def with_prefix(self, count: int) -> SomeChannels:
        front = torch.arange(count, device=self.numbers.device)
        return SomeChannels(self.every.with_prefix(count), torch.cat([front, self.numbers + count]))


def joined_channels(channels: Sequence[Channels]) -> Channels | None:
    """All of them side by side; None if there are none."""
    if len(channels) < 2:
        return channels[0] if channels else None
    return JoinedChannels(tuple(channels))
