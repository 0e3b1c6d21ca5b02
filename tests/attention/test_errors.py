"""Bad input to the attention functions: each error names the requirement and what was received."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from medattn import attend, attention_weights, layer_macs


def x(*shape: int) -> Tensor:
    return torch.zeros(shape)


def test_unequal_widths_of_queries_and_keys_are_both_named() -> None:
    with pytest.raises(ValueError, match=r"same width, got 6 \(q\) and 5 \(k\)"):
        attend(x(1, 1, 5, 6), x(1, 1, 7, 5), x(1, 1, 7, 10))
    with pytest.raises(ValueError, match=r"same width, got 6 \(q\) and 5 \(k\)"):
        attention_weights(x(1, 1, 5, 6), x(1, 1, 7, 5))


def test_shapes_that_do_not_fit_are_both_named() -> None:
    with pytest.raises(ValueError, match=r"as many memories, got k \(1, 1, 7, 6\) and v \(1, 1, 8, 6\)"):
        attend(x(1, 1, 5, 6), x(1, 1, 7, 6), x(1, 1, 8, 6))
    with pytest.raises(ValueError, match=r"got q \(2, 1, 5, 6\) and k \(3, 1, 7, 6\)"):
        attend(x(2, 1, 5, 6), x(3, 1, 7, 6), x(3, 1, 7, 6))


@pytest.mark.parametrize("shape", [(5,), (7, 5), (3, 5, 7), (1, 2, 2, 5, 7), (2, 3, 5, 7)], ids=str)
@pytest.mark.parametrize("name", ["mask", "bias"])
@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_a_mask_or_bias_that_cannot_be_broadcast_is_named(name: str, shape: tuple[int, ...], backend: str) -> None:
    value = torch.ones(shape, dtype=torch.bool if name == "mask" else torch.float32)
    with pytest.raises(ValueError, match=rf"{name} must be broadcastable .*\(2, 2, 5, 7\), got .{shape[0]},"):
        attend(x(2, 2, 5, 6), x(2, 2, 7, 6), x(2, 2, 7, 6), backend=backend, **{name: value})


@pytest.mark.parametrize("mask", [torch.ones(7), torch.ones(7, dtype=torch.int64), torch.zeros(5, 7)], ids=str)
@pytest.mark.parametrize("backend", ["auto", "fused", "reference"])
def test_a_mask_that_is_not_boolean_is_refused(mask: Tensor, backend: str) -> None:
    q, k, v = x(1, 1, 5, 6), x(1, 1, 7, 6), x(1, 1, 7, 6)
    with pytest.raises(ValueError, match=rf"mask must be boolean \(True = may attend\), got {mask.dtype}"):
        attend(q, k, v, mask=mask, backend=backend)
    with pytest.raises(ValueError, match="mask must be boolean"):
        attention_weights(q, k, mask=mask)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        *(({"temperature": t}, f"temperature must be positive and finite, got {t}") for t in (0, -1.0, math.inf)),
        ({"temperature": math.nan}, "temperature must be positive and finite, got nan"),
        *(({"dropout": p}, rf"dropout must be in \[0, 1\), got {p}") for p in (1, -0.1, 2.0)),
        ({"backend": "flash"}, "backend must be auto, fused, blocked, flex or reference, got 'flash'"),
    ],
    ids=str,
)
def test_bad_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attend(x(1, 1, 5, 6), x(1, 1, 7, 6), x(1, 1, 7, 6), **setting)


@pytest.mark.parametrize("name", ["num_tokens", "dim", "ffn_dim"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_sizes_of_a_layer_must_be_positive_integers(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a positive integer, got {value}"):
        layer_macs(**{"num_tokens": 4, "dim": 8, "ffn_dim": 32, name: value})
