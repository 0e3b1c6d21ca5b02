"""What a mask allows, and that nothing else gets through."""

import math

import pytest
import torch
from torch import Tensor

from medattn import attend, attention_weights
from medattn.attention import causal_mask, padding_mask

BACKENDS = ("auto", "fused", "reference")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
POISON = (math.nan, math.inf, -math.inf)
N = 5


def tensors(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, N, 4, generator=generator).to(dtype) for _ in range(3))
    return q, k, v


def test_the_causal_mask_allows_no_later_memory() -> None:
    assert causal_mask(3, 3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(2, 4).tolist() == [[True, False, False, False], [True, True, False, False]]
    assert causal_mask(3, 1).tolist() == [[True], [True], [True]]


def test_the_padding_mask_allows_the_first_tokens() -> None:
    mask = padding_mask(torch.tensor([2, 0, 3]), 3)
    assert mask.tolist() == [[True, True, False], [False, False, False], [True, True, True]]
    with pytest.raises(ValueError, match=r"between 0 and 3, got \[2, 4\]"):
        padding_mask(torch.tensor([2, 4]), 3)
    with pytest.raises(ValueError, match=r"between 0 and 3, got \[-1\]"):
        padding_mask(torch.tensor([-1]), 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_causal_is_the_causal_mask(backend: str) -> None:
    q, k, v = tensors()
    expected = attend(q, k, v, mask=causal_mask(N, N), backend=backend)
    torch.testing.assert_close(attend(q, k, v, causal=True, backend=backend), expected, rtol=0, atol=1e-12)
    weights = attention_weights(q, k, causal=True)
    assert bool((weights.masked_select(~causal_mask(N, N)) == 0).all())
    assert bool((weights.masked_select(causal_mask(N, N)) > 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, N, dtype=torch.float64))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_query_that_may_attend_to_nothing_gives_zero(dtype: torch.dtype, backend: str, with_bias: bool) -> None:
    inputs = [x.requires_grad_() for x in tensors(dtype)]
    bias = torch.randn(2, N, N, dtype=dtype, requires_grad=True) if with_bias else None
    mask = torch.ones(2, 1, N, N, dtype=torch.bool)
    mask[0, :, 2] = False  # one row of one sample
    out = attend(*inputs, mask=mask, bias=bias, backend=backend)
    assert bool((out[0, :, 2] == 0).all())
    assert bool((out[1, :, 2] != 0).all())
    weights = attention_weights(*inputs[:2], mask=mask, bias=bias)
    assert bool((weights[0, :, 2] == 0).all())
    leaves = [*inputs, *([bias] if bias is not None else [])]
    (out.double().square().sum() + weights.double().square().sum()).backward()
    assert all(bool(x.grad is not None and x.grad.isfinite().all()) for x in leaves)
    assert bool((inputs[0].grad[0, :, 2] == 0).all())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(N,), (1, N), (N, N), (2, 1, 1), (2, N, N), (2, 1, 1, N), (2, 2, N, N)], ids=str)
def test_with_nothing_allowed_all_is_zero(shape: tuple[int, ...], backend: str) -> None:
    inputs = [x.requires_grad_() for x in tensors()]
    mask = torch.zeros(shape, dtype=torch.bool)
    out = attend(*inputs, mask=mask, backend=backend)
    assert bool((out == 0).all())
    assert bool((attention_weights(*inputs[:2], mask=mask) == 0).all())
    out.sum().backward()
    assert all(bool((x.grad == 0).all()) for x in inputs if x.grad is not None)


# -- poison: what is stored where a query may not look -------------------------------------------------


def hidden_memories(kind: str) -> Tensor:
    """Masks in which memory 3 is hidden from queries 0 to 2 at least; the first row allows something."""
    if kind == "rank 1":
        return torch.arange(N) != 3
    if kind == "padding":
        return (torch.arange(N) < 3).expand(2, 1, 1, N)
    mask = torch.ones(N, N, dtype=torch.bool)
    mask[: 3 if kind == "per query" else N, 3] = False
    if kind == "with a row of nothing":
        mask[1] = False
    return mask


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("kind", ["rank 1", "padding", "column", "per query", "with a row of nothing"])
def test_poison_at_a_masked_memory_changes_no_output(kind: str, poison: float, backend: str) -> None:
    q, k, v = tensors()
    mask = hidden_memories(kind)
    expected = attend(q, k, v, mask=mask, backend=backend)[:, :, :3]
    bad_k, bad_v = k.clone(), v.clone()
    bad_k[:, :, 3], bad_v[:, :, 3] = poison, poison
    for keys, values in ((bad_k, v), (k, bad_v), (bad_k, bad_v)):
        inputs = [x.clone().requires_grad_() for x in (q, keys, values)]
        out = attend(*inputs, mask=mask, backend=backend)[:, :, :3]
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
        out.sum().backward()
        assert all(bool(x.grad is not None and x.grad.isfinite().all()) for x in inputs)
    inputs = [q.clone().requires_grad_(), bad_k.clone().requires_grad_()]
    weights = attention_weights(inputs[0], inputs[1], mask=mask)[:, :, :3]
    torch.testing.assert_close(weights, attention_weights(q, k, mask=mask)[:, :, :3], rtol=0, atol=1e-12)
    weights.square().sum().backward()
    assert all(bool(x.grad is not None and x.grad.isfinite().all()) for x in inputs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("mask", [None, torch.ones(N, dtype=torch.bool)], ids=["causal", "causal and mask"])
def test_poison_in_the_future_changes_no_causal_output(mask: Tensor | None, poison: float, backend: str) -> None:
    q, k, v = tensors()
    expected = attend(q, k, v, causal=True, mask=mask, backend=backend)
    bad_k, bad_v = k.clone(), v.clone()
    bad_k[:, :, 3:], bad_v[:, :, 3:] = poison, poison
    for keys, values in ((bad_k, v), (k, bad_v)):
        out = attend(q, keys, values, causal=True, mask=mask, backend=backend)
        torch.testing.assert_close(out[:, :, :3], expected[:, :, :3], rtol=0, atol=1e-12)
        assert not bool(out[:, :, 3:].isfinite().any())  # who may look sees it


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mask", [None, hidden_memories("per query")], ids=["no mask", "mask"])
def test_nan_at_an_allowed_memory_is_not_hidden(mask: Tensor | None, backend: str) -> None:
    q, k, v = tensors()
    v[:, :, 3] = math.nan
    assert bool(attend(q, k, v, mask=mask, backend=backend)[:, :, 3:].isnan().all())
    q, k, v = tensors()
    k[:, :, 3] = math.nan
    assert bool(attend(q, k, v, mask=mask, backend=backend)[:, :, 3:].isnan().all())
    assert bool(attention_weights(q, k, mask=mask)[:, :, 3:].isnan().all())


# -- permutations --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_permuted_with_the_tokens_keeps_equivariance_and_a_causal_one_breaks_it(backend: str) -> None:
    x, _, _ = tensors()
    order = torch.tensor([3, 0, 4, 1, 2])
    out = attend(x, x, x, backend=backend)
    permuted = x[:, :, order]
    torch.testing.assert_close(
        attend(permuted, permuted, permuted, backend=backend), out[:, :, order], rtol=0, atol=1e-12
    )
    mask = torch.tensor([[True, True, False, True, True], [True, False, True, True, False]])[:, None, None]
    kept = attend(permuted, permuted, permuted, mask=mask[..., order], backend=backend)
    masked = attend(x, x, x, mask=mask, backend=backend)
    torch.testing.assert_close(kept, masked[:, :, order], rtol=0, atol=1e-12)
    causal = attend(x, x, x, causal=True, backend=backend)[:, :, order]
    assert float((attend(permuted, permuted, permuted, causal=True, backend=backend) - causal).abs().max()) > 0.1
    assert (
        float((attend(permuted, permuted, permuted, mask=mask, backend=backend) - masked[:, :, order]).abs().max())
        > 0.1
    )


@pytest.mark.parametrize("backend", ["fused", "reference"])
@pytest.mark.parametrize("masked", [False, True])
def test_a_row_whose_bias_is_minus_infinity_throughout_gives_zero_with_finite_gradients(backend, masked) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 4, requires_grad=True) for n in (3, 5, 5))
    bias = torch.zeros(3, 5)
    bias[1] = -math.inf
    mask = torch.tensor([[True] * 5, [True] * 5, [False] * 5]) if masked else None
    out = attend(q, k, v, bias=bias, mask=mask, backend=backend)
    out.square().sum().backward()
    empty = [1, 2] if masked else [1]
    assert (out[:, :, empty] == 0).all() and (out[:, :, 0] != 0).all()
    assert all(bool(x.grad.isfinite().all()) for x in (q, k, v))
    weights = attention_weights(q, k, bias=bias, mask=mask)
    assert (weights[:, :, empty] == 0).all()
    torch.testing.assert_close(weights[:, :, 0].sum(-1), torch.ones(1, 2))
