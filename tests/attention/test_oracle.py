"""``attend`` and ``attention_weights`` against the definition, outputs and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor

from medattn import attend, attention_weights
from tests.attention.oracle import naive_attend, naive_weights

B, H, N, M, D, E = 2, 2, 4, 5, 3, 4
BACKENDS = ("fused", "reference")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
SHAPES = [
    (),
    (1,),
    (M,),
    (1, M),
    (N, 1),
    (N, M),
    (H, 1, 1),
    (H, 1, M),
    (H, N, M),
    (B, 1, 1, M),
    (B, H, 1, 1),
    (B, 1, N, M),
    (B, H, N, M),
]
"""Everything that broadcasts to (B, H, N, M), rank 0 to 4."""


def tensors(dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((B, H, N, D), (B, H, M, D), (B, H, M, E))
    q, k, v = (torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes)
    return q, k, v


def bias_of(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype).requires_grad_()


def mask_of(shape: tuple[int, ...]) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(2)) > 0.4


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "hot": {"temperature": 2.5},
    "causal": {"causal": True},
    "causal, cold": {"causal": True, "temperature": 0.3},
    "bias": {"bias": bias_of((H, N, M), torch.float64)},
    "bias, hot": {"bias": bias_of((H, N, M), torch.float64), "temperature": 2.5},
    "mask": {"mask": mask_of((B, 1, N, M))},
    "padding, causal": {"mask": torch.arange(M) < torch.tensor([[[[3]]], [[[5]]]]), "causal": True},
    "bias, mask": {"bias": bias_of((N, M), torch.float64), "mask": mask_of((B, H, N, M))},
    "all": {"bias": bias_of((H, 1, M), torch.float64), "mask": mask_of((M,)), "causal": True, "temperature": 0.7},
}


def agree(settings: dict[str, Any], dtype: torch.dtype, backend: str) -> None:
    """Output, and gradients of a random projection of it, equal the oracle's."""
    q, k, v = tensors(dtype)
    inputs = [q, k, v, *([settings["bias"]] if "bias" in settings else [])]
    own = {**settings, **({"bias": settings["bias"].to(dtype)} if "bias" in settings else {})}
    out, expected = attend(q, k, v, backend=backend, **own), naive_attend(q, k, v, **settings)
    assert out.dtype == dtype
    atol = TOLERANCE[dtype]
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)
    weights = attention_weights(q, k, **own)
    torch.testing.assert_close(weights.double(), naive_weights(q, k, **settings), rtol=0, atol=atol)
    direction = torch.randn(B, H, N, E, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = torch.autograd.grad((out.double() * direction).sum(), inputs)
    wanted = torch.autograd.grad((expected * direction).sum(), inputs)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=10 * atol)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_attention_is_its_definition(settings: dict[str, Any], dtype: torch.dtype, backend: str) -> None:
    agree(settings, dtype, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_bias_of_any_rank_is_broadcast(shape: tuple[int, ...], backend: str) -> None:
    agree({"bias": bias_of(shape, torch.float64)}, torch.float64, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_a_mask_of_any_rank_is_broadcast(shape: tuple[int, ...], backend: str) -> None:
    agree({"mask": mask_of(shape)}, torch.float64, backend)
    agree({"mask": mask_of(shape), "bias": bias_of((H, N, M), torch.float64)}, torch.float64, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("queries", [2, 9])
def test_causal_attention_of_unequal_lengths_lines_up_at_the_start(queries: int, backend: str) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 3, generator=generator, dtype=torch.float64) for n in (queries, M, M))
    out = attend(q, k, v, causal=True, backend=backend)
    torch.testing.assert_close(out, naive_attend(q, k, v, causal=True), rtol=0, atol=1e-12)
    torch.testing.assert_close(out[:, :, 0], v[:, :, 0])  # the first query sees the first memory alone


@pytest.mark.parametrize("backend", BACKENDS)
def test_non_contiguous_queries_keys_and_values_are_taken(backend: str) -> None:
    packed = torch.randn(B, M, 3, H, D, dtype=torch.float64)
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    torch.testing.assert_close(attend(q, k, v, backend=backend), naive_attend(q, k, v), rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_float32_bias_serves_half_precision_queries(dtype: torch.dtype, backend: str) -> None:
    q, k, v = (x.detach().to(dtype) for x in tensors(torch.float64))
    bias = bias_of((H, N, M), torch.float32).detach()
    out = attend(q, k, v, bias=bias, mask=mask_of((N, M)), backend=backend)
    assert out.dtype == dtype
    expected = naive_attend(q, k, v, bias=bias, mask=mask_of((N, M)))
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=2e-2)
    assert attention_weights(q, k, bias=bias).dtype == dtype


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("extra", [{}, {"mask": mask_of((N, M)) | True}], ids=["plain", "masked"])
def test_dropout_removes_weights_and_keeps_the_mean(extra: dict[str, Any], backend: str) -> None:
    torch.manual_seed(0)
    q, k = torch.zeros(500, 4, N, D), torch.zeros(500, 4, M, D)
    v = torch.ones(500, 4, M, 1)
    out = attend(q, k, v, dropout=0.5, backend=backend, **extra)
    kept = out * M / 2  # each weight is 1/M, doubled where it is kept
    torch.testing.assert_close(kept, kept.round(), rtol=0, atol=1e-4)
    assert set(kept.round().int().unique().tolist()) == {0, 1, 2, 3, 4, 5}
    assert float(out.mean()) == pytest.approx(1.0, abs=0.02)
    assert torch.equal(attend(q, k, v, dropout=0.0, backend=backend, **extra).unique().round(decimals=5), torch.ones(1))
