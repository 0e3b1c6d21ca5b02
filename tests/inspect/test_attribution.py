"""Effects of memories on outputs, against what masking them does."""

import math

import pytest
import torch
from scipy import stats

from medattn import attend, attention_weights
from medattn.inspect import (
    agreement,
    deletion_curve,
    first_order_effects,
    insertion_curve,
    removal_effects,
    rollout,
    weights_vs_removal,
)
from medattn.inspect.attribution import ranks
from tests.conformance import THEORY


def drawn(memories: int = 9) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 2, 4, 6, generator=generator, dtype=torch.float64)
    k, v = torch.randn(2, 1, 2, memories, 6, generator=generator, dtype=torch.float64)
    return q, k, v


def test_weights_are_not_attribution() -> None:
    case = THEORY["weights_are_not_attribution"]
    weights = torch.tensor([case["weights"]], dtype=torch.float64)
    values = torch.tensor(case["values"], dtype=torch.float64)[:, None]
    assert float(weights @ values) == pytest.approx(case["output"])
    assert first_order_effects(weights, values).flatten().tolist() == pytest.approx(case["first_order_effects"])
    assert removal_effects(weights, values).flatten().tolist() == pytest.approx([9.0, -1.0])
    level = torch.tensor([[1.0], [0.0], [2.0]], dtype=torch.float64)  # the first is the mean of all: no effect
    assert first_order_effects(torch.tensor([[0.8, 0.1, 0.1]], dtype=torch.float64), level)[
        0, 0
    ].tolist() == pytest.approx([0.0])


def test_first_order_effects_are_derivatives_by_the_logits() -> None:
    case = THEORY["worked_attention"]
    weights, values = (torch.tensor(x, dtype=torch.float64) for x in ([case["weights"]], case["values"]))
    found = first_order_effects(weights, values)[0]
    expected = torch.tensor(THEORY["output_gradient_wrt_logits"]["value"], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    logits = torch.randn(5, dtype=torch.float64, requires_grad=True)
    v = torch.randn(5, 3, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1) @ v, logits)
    torch.testing.assert_close(first_order_effects(logits.detach().softmax(-1)[None], v)[0], jacobian.T)


def test_removal_is_what_a_mask_does() -> None:
    q, k, v = drawn()
    weights = attention_weights(q, k)
    found = removal_effects(weights, v)
    whole = attend(q, k, v)
    for j in range(9):
        without = attend(q, k, v, mask=torch.arange(9) != j)
        torch.testing.assert_close(found[:, :, :, j], without - whole, rtol=0, atol=1e-12)
    assert removal_effects(torch.ones(1, 1), torch.tensor([[3.0]])).tolist() == [[[-3.0]]]  # nothing is left


def test_rollout_is_the_product_of_halved_layers() -> None:
    one, other = torch.rand(2, 2, 3, 3, dtype=torch.float64).softmax(-1)
    eye = torch.eye(3, dtype=torch.float64)
    expected = ((other[0] + other[1]) / 2 + eye) / 2 @ (((one[0] + one[1]) / 2 + eye) / 2)
    torch.testing.assert_close(rollout([one, other]), expected)
    torch.testing.assert_close(rollout([one, other]).sum(-1), torch.ones(3, dtype=torch.float64))


def test_agreement_is_that_of_the_statisticians() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(6, (40,), generator=generator).double()
    y = x + 2 * torch.randn(40, generator=generator, dtype=torch.float64)
    found = agreement(x, y, k=40)
    assert found.spearman == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.pearson == pytest.approx(stats.pearsonr(x, y).statistic)
    assert (found.top_k, found.n, found.k) == (1.0, 40, 40)
    assert ranks(torch.tensor([3.0, 1.0, 3.0, 2.0])).tolist() == [2.5, 0, 2.5, 1]
    assert agreement(torch.tensor([3.0, 2.0, 1.0, 0.0]), torch.tensor([3.0, 0.0, 1.0, 2.0]), k=2).top_k == 0.5
    assert math.isnan(agreement(torch.ones(4), torch.arange(4.0)).pearson)
    with pytest.raises(ValueError, match=r"must have one shape, of at least three, got \(2,\) and \(2,\)"):
        agreement(torch.ones(2), torch.ones(2))


def test_how_well_weights_predict_removal_depends_on_the_values() -> None:
    q, k, v = drawn(memories=60)
    weights = attention_weights(q, k)
    found = weights_vs_removal(weights, v)
    assert found["first_order"].spearman > found["weights"].spearman > 0.3
    assert found["weights"].n == 2 * 4 * 60
    alike = v[:, :, :1].expand_as(v) + 1e-6 * v  # what is taken is nearly the same everywhere, except once
    alike = torch.where(torch.arange(60)[:, None] == int(weights[0, 0, 0].argmin()), 10.0, alike)
    assert weights_vs_removal(weights, alike)["weights"].top_k < 0.5


def test_curves_begin_and_end_where_they_must() -> None:
    q, k, v = drawn()
    weights = attention_weights(q[:, :1, :1], k[:, :1])[0, 0, 0]

    def output(kept: torch.Tensor) -> torch.Tensor:
        return attend(q[:, :1, :1], k[:, :1], v[:, :1], mask=kept)

    order = removal_effects(weights[None], v[0, 0])[0].norm(dim=-1).argsort(descending=True)
    deletion, insertion = deletion_curve(output, order), insertion_curve(output, order)
    whole = output(torch.ones(9, dtype=torch.bool)).norm()
    assert deletion.shape == insertion.shape == (10,)
    assert (float(deletion[0]), float(insertion[-1])) == (0.0, 0.0)
    assert float(deletion[-1]) == pytest.approx(float(whole))
    assert float(insertion[0]) == pytest.approx(float(whole))
    first = output(torch.arange(9) != int(order[0]))
    assert float(deletion[1]) == pytest.approx(float((first - output(torch.ones(9, dtype=torch.bool))).norm()))
    assert float(deletion[1]) >= float(deletion_curve(output, order.flip(0))[1])
