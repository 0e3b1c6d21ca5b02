"""``flex_attention``: its score function against dense biases and masks, its results against the reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from medattn import attend, create_encoder
from medattn.attention import choose_backend, prefer_backend, record_backends
from medattn.attention.flex import score_mod
from tests.attention.test_backends import N, bias_of, leaves, masks
from tests.encoders import grid_of, small_encoder, volume

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
KINDS = ["none", "table", "tables", "channels"]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2}


def terms(kind: str, x: dict[str, Tensor]) -> dict[str, Any]:
    return {"bias": bias_of(kind, x), "channels": (x["channels_q"], x["channels_k"]) if kind == "channels" else None}


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("mask", list(masks()))
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_the_reference(kind: str, mask: str, dtype: torch.dtype) -> None:
    if kind == "channels" and dtype == torch.bfloat16:
        pytest.skip("plain channels are rounded; those of encodings are split for it, and tested there")
    x = leaves(dtype)
    exact = {name: leaf.double() for name, leaf in x.items()}
    with torch.no_grad():
        expected = attend(
            exact["q"], exact["k"], exact["v"], backend="reference", **terms(kind, exact), **masks()[mask]
        )
        found = attend(x["q"], x["k"], x["v"], backend="flex", **terms(kind, x), **masks()[mask])
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=TOLERANCE[dtype])
    if mask == "rows":
        assert not found[0, :, 4].any()


@pytest.mark.parametrize("kind", ["table", "tables"])
def test_the_score_function_and_its_gradient_are_those_of_the_dense_bias(kind: str) -> None:
    x = leaves(torch.float64)
    places = [torch.arange(n) for n in (2, 2, N, N)]
    score = score_mod(bias_of(kind, x), None, None, False)
    for dims in ((0, None, None, None), (None, 0, None, None), (None, None, 0, None), (None, None, None, 0))[::-1]:
        score = torch.vmap(score, in_dims=(0, *dims))
    found = score(torch.zeros(2, 2, N, N, dtype=torch.float64), *places)
    expected = bias_of(kind, x).dense().expand(2, -1, -1, -1)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tables = [x["one"]] + ([x["other"]] if kind == "tables" else [])
    for one, other in zip(
        torch.autograd.grad((found * weight).sum(), tables),
        torch.autograd.grad((expected * weight).sum(), tables),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("encoding", ["rotary_axial", "distance_slopes", "gaussian"])
def test_an_encoder_can_be_told_to_take_it(encoding: str) -> None:
    encoder = small_encoder(encoding, spacing_token=True).eval()
    volumes, grids = [volume((4, 6, 3)), volume((5, 7, 2), 1)], [grid_of((4, 6, 3)), grid_of((5, 7, 2))]
    with torch.no_grad():
        expected = encoder(volumes, grids)
        with prefer_backend("flex"), record_backends() as choices:
            found = encoder(volumes, grids)
        torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(found[1], expected[1], rtol=0, atol=1e-5)
        assert [choice.name for choice in choices] == ["flex", "flex"]
        with record_backends() as choices:
            encoder(volumes, grids)
        assert "flex" not in [choice.name for choice in choices]


def test_what_it_cannot_do_is_refused() -> None:
    x = leaves(torch.float32)
    for kind, name in (("pairs", "PairBias"), ("sum", "SumBias"), ("dense", "Tensor")):
        with pytest.raises(ValueError, match=f"backend 'flex' reads biases by displacement on grids, got {name}: use"):
            choose_backend(bias_of(kind, x), backend="flex")
    with pytest.raises(ValueError, match=r"backend 'flex' has no dropout of weights, got 0.1: use 'auto'"):
        attend(x["q"], x["k"], x["v"], dropout=0.1, backend="flex")
    with pytest.raises(ValueError, match="backend 'flex' has no gradients on the CPU"):
        attend(x["q"], x["k"], x["v"], backend="flex")
    with (
        pytest.raises(ValueError, match="backend must be auto, fused, blocked, flex or reference, got 'fast'"),
        prefer_backend("fast"),  # type: ignore[arg-type]
    ):
        pass


def test_a_preference_ends_with_its_block_even_after_an_error() -> None:
    with prefer_backend("reference"):
        assert choose_backend(None) == ("reference", "asked for by name")
        with pytest.raises(KeyError), prefer_backend("blocked"):
            raise KeyError(choose_backend(None).name, choose_backend(None, backend="fused").name)
        assert choose_backend(None).name == "reference"
    assert choose_backend(None).name == "fused"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", list(masks()))
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients_on_a_gpu(kind: str, mask: str, dtype: torch.dtype) -> None:
    if kind == "channels" and dtype == torch.bfloat16:
        pytest.skip("plain channels are rounded; those of encodings are split for it, and tested there")
    rounded = leaves(dtype)
    found: dict[str, list[Tensor]] = {}
    for backend in ("reference", "flex"):
        kind_of = torch.float64 if backend == "reference" else None
        x = {name: leaf.detach().to("cuda", kind_of).requires_grad_() for name, leaf in rounded.items()}
        own = {name: value.cuda() if isinstance(value, Tensor) else value for name, value in masks()[mask].items()}
        out = attend(x["q"], x["k"], x["v"], backend=backend, **terms(kind, x), **own)
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out)
        used = [leaf for name, leaf in x.items() if name in ("q", "k", "v") or (kind[:5] == "table" and name == "one")]
        found[backend] = [out, *torch.autograd.grad((out * weight).sum(), used)]
    for one, other in zip(found["flex"], found["reference"], strict=True):
        scale = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one.double() / scale, other / scale, rtol=0, atol=2e-2)


@pytest.mark.gpu
def test_an_encoder_trains_with_it_on_a_gpu() -> None:
    torch.manual_seed(0)
    encoder = create_encoder("tiny", encoding="distance_slopes").cuda()
    grid = grid_of((16, 16, 16))
    with prefer_backend("flex"):
        encoder([volume(grid.shape).cuda()], [grid]).tokens.sum().backward()
    assert all(bool(p.grad is not None and p.grad.isfinite().all()) for p in encoder.parameters())
