"""Keys and values kept from what came before, so that a scan which arrives slab by slab is attended to once."""

from __future__ import annotations

import torch
from torch import Tensor

from medattn.attention.blocked import QUERIES
from medattn.attention.functional import attend
from medattn.encodings.bias import Bias


class KVCache:
    """Keys and values of one layer, in the order of arrival.

    A new slab's queries attend to all that has arrived, their own slab included: what a whole pass computes under
    ``axis_causal_mask``. Queries and keys come turned by their positions, as ``SelfAttention.project`` gives them; the
    channels of a slab come with it, and a bias is asked for the numbers of its tokens on the whole grid.
    """

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._channels: list[Tensor] = []
        self._numbers: list[Tensor] = []
        self._visible: list[Tensor] = []

    def __len__(self) -> int:
        """How many memories there are."""
        return sum(k.shape[2] for k in self._keys)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        bias: Bias | None = None,
        numbers: Tensor | None = None,
        channels: tuple[Tensor, Tensor] | None = None,
        visible: Tensor | None = None,
        temperature: float = 1.0,
    ) -> Tensor:
        """Take in a slab's keys and values (B, H, n, D), and attend to everything so far: (B, H, n, E).

        Args:
            bias: of the whole grid; needs ``numbers``.
            numbers: (n,) place of each of the slab's tokens among those of ``bias``.
            channels: extra channels of the slab's queries and keys (see ``attend``); always or never.
            visible: boolean (B, n), False for tokens of the slab that none may attend to.

        Raises:
            ValueError: for a bias without numbers, or channels in some slabs only.
        """
        if bias is not None and (numbers is None or len(numbers) != k.shape[2]):
            raise ValueError(
                f"numbers must tell the places of the slab's {k.shape[2]} tokens on the bias, got {numbers}"
            )
        if self._keys and (channels is None) != (not self._channels):
            raise ValueError("channels must come with every slab or with none")
        self._keys.append(k)
        self._values.append(v)
        if numbers is not None:
            self._numbers.append(numbers)
        if channels is not None:
            self._channels.append(channels[1])
            channels = (channels[0], torch.cat(self._channels, dim=2))
        everyone = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool, device=k.device)
        self._visible.append(everyone if visible is None else visible)
        keys, values, seen = (torch.cat(x, dim) for x, dim in ((self._keys, 2), (self._values, 2), (self._visible, 1)))
        mask = None if bool(seen.all()) else seen[:, None, None, :]
        if bias is None:
            return attend(q, keys, values, channels=channels, mask=mask, temperature=temperature)
        memories, outs = torch.cat(self._numbers), []
        for part in torch.arange(q.shape[2], device=q.device).split(QUERIES):  # a slab's bias is not held whole either
            rows = bias.pairs(torch.as_tensor(numbers)[part], memories)
            some = None if channels is None else (channels[0][:, :, part], channels[1])
            outs.append(
                attend(q[:, :, part], keys, values, bias=rows, channels=some, mask=mask, temperature=temperature)
            )
        return torch.cat(outs, dim=2)
