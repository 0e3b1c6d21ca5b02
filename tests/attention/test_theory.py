"""The worked numbers of conformance/theory.json that concern attention."""

import math

import pytest
import torch
from torch import Tensor

from medattn import attend, attention_weights, layer_macs
from medattn.layers import SelfAttention
from tests.conformance import THEORY

BACKENDS = ("auto", "fused", "reference")


def rows(values: object) -> Tensor:
    """A list of rows as one head of one sample, (1, 1, N, D) float64."""
    return torch.tensor(values, dtype=torch.float64)[None, None]


def close(actual: Tensor, expected: object, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=actual.dtype), rtol=0, atol=atol)


def worked() -> tuple[Tensor, Tensor, Tensor]:
    case = THEORY["worked_attention"]
    return rows([case["query"]]), rows(case["keys"]), rows(case["values"])


def weights_of(logits: Tensor) -> Tensor:
    """Weights (..., M) of one row of ``logits`` (..., M), by keys of width 1 under the query 1."""
    query = logits.new_ones(*logits.shape[:-1], 1, 1)
    return attention_weights(query, logits[..., None])[..., 0, :]


@pytest.mark.parametrize("backend", BACKENDS)
def test_worked_attention(backend: str) -> None:
    q, k, v = worked()
    close(attention_weights(q, k)[0, 0, 0], [1 / 6, 1 / 3, 1 / 2])
    close(attend(q, k, v, backend=backend)[0, 0, 0], [7 / 3, 2])
    close(attention_weights(q, k)[0, 0, 0], THEORY["worked_attention"]["weights"])
    close(attend(q, k, v, backend=backend)[0, 0, 0], THEORY["worked_attention"]["output"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_masking_renormalises_and_zeroing_a_value_does_not(backend: str) -> None:
    case = THEORY["masked_third"]
    q, k, v = worked()
    mask = torch.tensor(case["allowed"])
    close(attention_weights(q, k, mask=mask)[0, 0, 0], case["weights"])
    masked = attend(q, k, v, mask=mask, backend=backend)[0, 0, 0]
    zeroed = attend(q, k, v * mask[:, None], backend=backend)[0, 0, 0]
    close(masked, [2 / 3, 2])
    close(zeroed, case["zeroing_the_third_value_instead"])
    assert (masked - zeroed).abs().min() > 0.3


@pytest.mark.parametrize("constant", [-1e4, -3.0, 0.5, 1e4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_constant_added_to_all_logits_of_a_row_changes_nothing(backend: str, constant: float) -> None:
    q, k, v = worked()
    bias = torch.full((1, 3), constant, dtype=torch.float64)
    close(attention_weights(q, k, bias=bias)[0, 0, 0], [1 / 6, 1 / 3, 1 / 2])
    close(attend(q, k, v, bias=bias, backend=backend)[0, 0, 0], [7 / 3, 2])


@pytest.mark.parametrize("backend", BACKENDS)
def test_logits_of_ten_thousand_do_not_overflow_in_float32(backend: str) -> None:
    q, k, v = (x.float() for x in worked())
    for scale in (1e4, -1e4):
        weights = attention_weights(q * scale, k.sign())  # logits 0, +-1e4, +-1e4
        close(weights[0, 0, 0], [0, 0.5, 0.5] if scale > 0 else [1, 0, 0], atol=0)
        out = attend(q * scale, k.sign(), v, backend=backend)
        close(out[0, 0, 0], [2, 2.5] if scale > 0 else [2, 0], atol=1e-6)
    shifted = attend(q, k, v, bias=torch.full((3,), 1e4), backend=backend)
    close(shifted[0, 0, 0], [7 / 3, 2], atol=2e-3)  # 1e4 leaves float32 three decimals of the logits


def test_softmax_jacobian_and_its_saturation() -> None:
    case = THEORY["softmax_jacobian"]
    for suffix, logits in (("", [0.0, math.log(3)]), ("_times_4", [0.0, 4 * math.log(3)])):
        close(torch.tensor(logits), case["logits" + suffix], atol=1e-7)
        exact = torch.tensor(case["logits" + suffix], dtype=torch.float64)
        close(weights_of(exact), case["weights" + suffix])
        jacobian = torch.autograd.functional.jacobian(weights_of, exact)
        diagonal = case["diagonal" + suffix]
        close(jacobian, [[diagonal, -diagonal], [-diagonal, diagonal]])
    assert case["diagonal"] == 0.1875
    assert case["off_diagonal_times_4"] == -case["diagonal_times_4"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_output_gradient_with_respect_to_the_logits(backend: str) -> None:
    q, k, v = worked()

    def output(bias: Tensor) -> Tensor:
        return attend(q, k, v, bias=bias, backend=backend)[0, 0, 0]

    jacobian = torch.autograd.functional.jacobian(output, torch.zeros(1, 3, dtype=torch.float64))[:, 0]
    close(jacobian.T, THEORY["output_gradient_wrt_logits"]["value"])
    a, y = attention_weights(q, k)[0, 0, 0], output(torch.zeros(1, 3, dtype=torch.float64))
    torch.testing.assert_close(jacobian.T, a[:, None] * (v[0, 0] - y), rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
def test_the_weights_maximise_score_plus_temperature_times_entropy(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, n, 4, generator=generator, dtype=torch.float64) for n in (1, 6))
    scores = (q @ k.mT)[0, 0, 0] / 2
    best = attention_weights(q, k, temperature=temperature)[0, 0, 0]
    torch.testing.assert_close(best, (scores / temperature).softmax(-1), rtol=0, atol=1e-12)

    def objective(a: Tensor) -> Tensor:
        return (a * scores).sum(-1) + temperature * torch.special.entr(a).sum(-1)

    others = torch.cat([torch.eye(6, dtype=torch.float64), torch.rand(200, 6, generator=generator).double()])
    others = others / others.sum(-1, keepdim=True)
    for step in (1e-3, 0.1, 1.0):  # the simplex is convex: every point on the way is feasible
        assert bool((objective(best + step * (others - best)) < objective(best)).all())
    wrong = attention_weights(q, k, temperature=1.1 * temperature)[0, 0, 0]
    assert objective(wrong) < objective(best)


@pytest.mark.parametrize("backend", BACKENDS)
def test_temperature_divides_the_scores_and_not_the_bias(backend: str) -> None:
    q, k, v = worked()
    bias = torch.tensor([[0.0, math.log(5), 0.0]], dtype=torch.float64)
    weights = torch.tensor([1.0, 5 * 2**0.5, 3**0.5], dtype=torch.float64)
    expected = weights / weights.sum()
    torch.testing.assert_close(attention_weights(q, k, bias=bias, temperature=2.0)[0, 0, 0], expected)
    out = attend(q, k, v, bias=bias, temperature=2.0, backend=backend)[0, 0, 0]
    torch.testing.assert_close(out, expected @ v[0, 0])


@pytest.mark.parametrize("width", THEORY["score_variance"]["d_k"])
def test_scores_of_standard_normal_vectors_have_variance_one(width: int) -> None:
    case = THEORY["score_variance"]
    generator = torch.Generator().manual_seed(0)
    q, key = (torch.randn(case["samples"], 1, 1, width, generator=generator) for _ in range(2))
    weights = attention_weights(q, torch.cat([key, torch.zeros_like(key)], dim=2))
    scores = weights[:, 0, 0, 0].log() - weights[:, 0, 0, 1].log()  # the second score is 0
    assert float(scores.var()) == pytest.approx(1.0, rel=case["rtol"])
    assert float((q * key).sum(-1).var()) == pytest.approx(width, rel=case["rtol"])


@pytest.mark.parametrize(("heads", "scores"), [(1, 16), (2, 32)])
def test_heads_share_one_budget_of_parameters_but_not_of_scores(heads: int, scores: int) -> None:
    case = THEORY["multi_head_parameters"]
    assert scores == case["attention_scores"][case["heads"].index(heads)]
    layer = SelfAttention(case["width"], heads)
    matrices = [p for p in layer.parameters() if p.ndim == 2]
    assert sum(p.numel() for p in matrices) == case["projection_weights_without_bias"] == 256
    tokens = torch.randn(1, heads, case["tokens"], case["width"] // heads)
    assert attention_weights(tokens, tokens).numel() == scores


def test_multiply_accumulates_of_a_layer() -> None:
    case = THEORY["layer_macs"]
    macs = layer_macs(case["tokens"], case["width"], case["ffn_width"])
    assert (macs.projections, macs.attention, macs.ffn, macs.total) == (1024, 256, 2048, 3328)
    assert macs.total == case["total"]
    assert layer_macs(num_tokens=8, dim=8, ffn_dim=32) == (2048, 1024, 4096)  # only attention is quadratic
    assert layer_macs(num_tokens=4, dim=16, ffn_dim=32) == (4096, 512, 4096)


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_may_be_wider_than_keys(backend: str) -> None:
    case = THEORY["cross_attention_shapes"]
    q, k = torch.randn(1, 1, case["queries"], case["d_k"]), torch.randn(1, 1, case["memories"], case["d_k"])
    v = torch.randn(1, 1, case["memories"], case["d_v"])
    assert attention_weights(q, k).shape[-2:] == tuple(case["scores"]) == (5, 7)
    assert attend(q, k, v, backend=backend).shape[-2:] == tuple(case["output"]) == (5, 10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_larger_weight_need_not_have_the_larger_effect(backend: str) -> None:
    case = THEORY["weights_are_not_attribution"]
    logits = torch.tensor(case["weights"], dtype=torch.float64).log()
    q, k, v = rows([[1.0]]), rows(logits[:, None].tolist()), rows([[x] for x in case["values"]])
    close(attention_weights(q, k)[0, 0, 0], [0.9, 0.1])

    def output(bias: Tensor) -> Tensor:
        return attend(q, k, v, bias=bias, backend=backend).sum()

    close(output(torch.zeros(1, 2, dtype=torch.float64)), case["output"])
    effects = torch.autograd.functional.jacobian(output, torch.zeros(1, 2, dtype=torch.float64))[0]
    close(effects, case["first_order_effects"])
    still = rows([[0.0], [10.0], [1.0]])  # the third value equals the output
    more = rows([*k[0, 0].tolist(), [math.log(7)]])
    gradient = torch.autograd.functional.jacobian(
        lambda bias: attend(q, more, still, bias=bias, backend=backend).sum(), torch.zeros(1, 3, dtype=torch.float64)
    )[0]
    assert float(attention_weights(q, more)[0, 0, 0, 2]) > 0.8
    assert abs(float(gradient[2])) < 1e-12
