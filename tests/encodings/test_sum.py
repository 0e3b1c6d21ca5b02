"""Sums of encodings do what their parts do."""

from typing import Any

import pytest
import torch

from medattn import Invariance, create_encoding
from medattn.encodings.signal import PositionSignal, sum_of_signals
from tests.contracts.position import DIM, HEADS, coordinates, layout_of, logits_of, random_tokens, two_grids

PARTS = [{"name": "sincos"}, {"name": "rotary_axial", "options": {"wavelengths_mm": (20.0, 300.0)}}]


def build(parts: Any, frame: str = "mm") -> Any:
    torch.manual_seed(0)
    return create_encoding("sum", dim=DIM, num_heads=HEADS, frame=frame, parts=parts)


def test_it_adds_and_turns_as_its_parts_do() -> None:
    coords, layout = coordinates("mm", two_grids()), layout_of("mm", two_grids())
    total, tokens = build(PARTS)(coords, layout), random_tokens(2, 36)
    sincos, rotary = (
        create_encoding(p["name"], dim=DIM, num_heads=HEADS, frame="mm", **p.get("options", {}))(coords) for p in PARTS
    )
    assert torch.equal(total.additive, sincos.additive)
    assert torch.equal(total.rotary, rotary.rotary)
    by_hand = PositionSignal(additive=sincos.additive, rotary=rotary.rotary)
    assert torch.equal(logits_of(total, tokens), logits_of(by_hand, tokens))


def test_two_turns_follow_each_other() -> None:
    coords = coordinates("mm", two_grids())
    once, twice = (build([{"name": "rotary_axial"}] * n)(coords) for n in (1, 2))
    torch.testing.assert_close(twice.rotary, build([{"name": "rotary_axial"}])(2 * coords).rotary, rtol=0, atol=1e-12)
    assert not torch.allclose(once.rotary, twice.rotary, atol=0.1)


def test_parts_of_a_kind_differ_in_what_they_draw() -> None:
    one, other = build([{"name": "mlp"}, {"name": "mlp"}]).encodings
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


def test_it_is_invariant_to_what_all_parts_are_invariant_to() -> None:
    assert build([{"name": "rotary_axial"}, {"name": "none"}]).invariances == {Invariance.TRANSLATION}
    assert build(PARTS).invariances == frozenset()
    assert build([{"name": "rotary_axial"}, {"name": "peg"}], frame="index").needs_layout


def test_turns_by_matrices_do_not_mix_with_others() -> None:
    turn = PositionSignal(matrices=torch.eye(2).expand(1, 1, 3, 4, 2, 2))
    with pytest.raises(ValueError, match="at most one encoding of a sum may turn by matrices"):
        sum_of_signals([turn, turn])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], r"parts of a sum must be a list of at least one .*got \[\]"),
        ({"name": "sincos"}, "parts of a sum must be a list"),
        ("sincos", "parts of a sum must be a list"),
        ([{"name": "sincos"}, {"nam": "sincos"}], r"part 1 of a sum must be .*got \{'nam'"),
        ([{"name": "sinus"}], r"part 0 \('sinus'\) of a sum: encoding must be one of"),
        ([{"name": "sincos", "options": {"base": 1.0, "wave": 2}}], r"part 0 \('sincos'\) of a sum: .*no option wave"),
        ([{"name": "sum", "options": {"parts": [{"name": "x"}]}}], r"part 0 \('sum'\) of a sum: part 0 \('x'\)"),
    ],
)
def test_what_cannot_be_summed_is_named(parts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(parts)
