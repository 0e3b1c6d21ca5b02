"""Numbers about attention weights, on weights whose numbers are known."""

import math

import pytest
import torch

from medattn import attention_weights
from medattn.inspect import (
    attention_distance_mm,
    effective_rank,
    entropy,
    saturation,
    score_variance,
    sink_mass,
)
from tests.conformance import THEORY


def test_entropy_lies_between_one_memory_and_all_alike() -> None:
    weights = torch.tensor([[1.0, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0], [0, 0, 0, 0]], dtype=torch.float64)
    assert entropy(weights).tolist() == pytest.approx([0, math.log(4), math.log(2), 0])


def test_effective_rank_of_known_matrices() -> None:
    assert float(effective_rank(torch.eye(5))) == pytest.approx(5)
    assert float(effective_rank(torch.full((5, 3), 1 / 3))) == pytest.approx(1, abs=1e-4)
    two = torch.block_diag(torch.full((2, 2), 0.5), torch.full((2, 2), 0.5))
    assert float(effective_rank(two)) == pytest.approx(2, abs=1e-4)


def test_distances_leave_out_what_has_no_place() -> None:
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    queries = torch.zeros(3, 3, dtype=torch.float64)
    memories = torch.tensor([[math.nan] * 3, [3.0, 0, 4], [0, 0, 10]], dtype=torch.float64)
    placed = torch.tensor([False, True, True])
    found = attention_distance_mm(weights, queries, memories, placed)
    assert found[:2].tolist() == pytest.approx([7.5, 10.0])
    assert bool(found[2].isnan())  # looks at nothing that has a place
    assert float(attention_distance_mm(weights[:1, 1:], queries[:1], memories[1:])[0]) == pytest.approx(3.75 / 0.5)
    with pytest.raises(ValueError, match=r"must be those of weights \(3, 3\), got 3 queries and 2 memories"):
        attention_distance_mm(weights, queries, memories[1:])


@pytest.mark.parametrize("times", [1, 4])
def test_saturation_is_the_diagonal_of_the_jacobian(times: int) -> None:
    case = THEORY["softmax_jacobian"]
    logits = torch.tensor(case["logits"], dtype=torch.float64) * times
    weights = attention_weights(torch.ones(1, 1, 1, 1, dtype=torch.float64), logits[None, None, :, None])[0, 0]
    expected = case["diagonal" if times == 1 else "diagonal_times_4"]
    assert float(saturation(weights)[0]) == pytest.approx(expected, abs=1e-12)


def test_a_sink_takes_what_all_queries_give_it() -> None:
    assert float(sink_mass(torch.tensor([[0.8, 0.2], [0.6, 0.4]]))) == pytest.approx(0.7)
    assert float(sink_mass(torch.full((3, 4), 0.25))) == pytest.approx(0.25)


@pytest.mark.parametrize("width", THEORY["score_variance"]["d_k"])
def test_score_variance_is_the_width_and_one(width: int) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 400, width).double()
    raw, scaled = score_variance(q, k)
    assert float(raw) == pytest.approx(width, rel=THEORY["score_variance"]["rtol"])
    assert float(scaled) == pytest.approx(1, rel=THEORY["score_variance"]["rtol"])
