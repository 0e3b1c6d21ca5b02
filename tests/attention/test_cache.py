"""A grid that arrives slab by slab, attended to with a cache, is the whole pass under its mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from medattn import TokenLayout, VoxelGrid, attend, create_encoding, token_coordinates
from medattn.attention import KVCache, axis_causal_mask
from medattn.coordinates import token_steps

GRID = VoxelGrid.from_spacing((3, 4, 2), (4.0, 3.0, 6.0))
HEADS, WIDTH = 2, 8


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = torch.randn(3, 1, HEADS, 24, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return q, k, v


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["none", "rotary_axial", "rotary_lie", "distance_slopes", "gaussian"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_slabs_with_a_cache_are_the_whole_pass(name: str, axis: int, temperature: float) -> None:
    torch.manual_seed(0)
    encoding = create_encoding(name, dim=HEADS * WIDTH, num_heads=HEADS, frame="mm")
    layout = TokenLayout((GRID.shape,), token_steps(GRID, 1, "mm")[None])
    signal = encoding(token_coordinates(GRID, 1, "mm")[None], layout).to(torch.device("cpu"), torch.float64)
    raw_q, raw_k, v = drawn()
    q, k = signal.rotate(raw_q), signal.rotate(raw_k)
    channels: Any = None if signal.channels is None else (signal.channels.queries(raw_q), signal.channels.keys(q.dtype))
    mask = axis_causal_mask(GRID.shape, axis)
    whole = attend(q, k, v, bias=signal.bias, channels=channels, mask=mask, temperature=temperature)
    cache, numbers = KVCache(), torch.arange(24).reshape(GRID.shape)
    for slab in range(GRID.shape[axis]):
        own = numbers.select(axis, slab).flatten()
        part = None if channels is None else (channels[0][:, :, own], channels[1][:, :, own])
        found = cache.attend(
            q[:, :, own],
            k[:, :, own],
            v[:, :, own],
            bias=signal.bias,
            numbers=own,
            channels=part,
            temperature=temperature,
        )
        torch.testing.assert_close(found, whole[:, :, own], rtol=0, atol=1e-10)
    assert len(cache) == 24


def test_one_token_at_a_time_is_causal_attention() -> None:
    q, k, v = drawn()
    cache = KVCache()
    found = [cache.attend(*(x[:, :, n : n + 1] for x in (q, k, v))) for n in range(24)]
    torch.testing.assert_close(torch.cat(found, dim=2), attend(q, k, v, causal=True), rtol=0, atol=1e-12)


def test_what_a_slab_lacks_is_named() -> None:
    q, k, v = drawn()
    extra = torch.zeros(1, HEADS, 24, 3, dtype=torch.float64)
    bias = create_encoding("distance_slopes", dim=16, num_heads=2, frame="mm")(
        token_coordinates(GRID, 1, "mm")[None]
    ).bias
    with pytest.raises(ValueError, match="numbers must tell the places of the slab's 24 tokens on the bias, got None"):
        KVCache().attend(q, k, v, bias=bias)
    cache = KVCache()
    cache.attend(q, k, v, channels=(extra, extra))
    with pytest.raises(ValueError, match="channels must come with every slab or with none"):
        cache.attend(q, k, v)
