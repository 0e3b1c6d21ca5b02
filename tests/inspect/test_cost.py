"""Costs: formulas against a counter of operations, memory against what is known to be held."""

import math
import os
from typing import Any

import pytest
import torch

from medattn import VoxelGrid, create_encoder, list_encodings
from medattn.attention import flop_counter
from medattn.encoder import VolumeEncoder
from medattn.inspect import cost_table
from medattn.inspect.memory import peak_bytes
from medattn.layers import LabelEmbed, PhysicalPatchEmbed

GRID = VoxelGrid.from_spacing((20, 16, 27), (3.0, 3.0, 4.0))
OPTIONS: dict[str, dict[str, Any]] = {"sum": {"parts": [{"name": "fourier"}, {"name": "rotary_mixed"}]}}
INDEX_ONLY = ("relative_table", "relative_decomposed", "peg")


def encoder(name: str = "none", **options: Any) -> VolumeEncoder:
    torch.manual_seed(0)
    frame = "index" if name in INDEX_ONLY else "fraction"
    settings = {"dim": 48, "num_heads": 3, "depth": 2, "ffn_ratio": 2.0, "patch_size": 4, "frame": frame}
    return create_encoder(settings, encoding=name, **options)


def counted_macs(model: VolumeEncoder, grid: VoxelGrid) -> float:
    volume = model.patch_embed.blank(grid)
    with flop_counter(display=False) as counter, torch.no_grad():
        model([volume], [grid])
    return counter.get_total_flops() / 2


@pytest.mark.parametrize("name", list_encodings())
@pytest.mark.parametrize("told", [{}, {"spacing_token": True, "spacing_modulation": True}], ids=["", "told"])
def test_total_is_what_a_counter_counts(name: str, told: dict[str, bool]) -> None:
    model = encoder(name, encoding_options=OPTIONS.get(name, {}), **told)
    (row,) = cost_table(model, GRID)
    assert row.total_macs == pytest.approx(counted_macs(model, GRID), rel=1e-3)


@pytest.mark.parametrize("generators", ["free", "commuting"])
def test_matrices_that_turn_are_counted(generators: str) -> None:
    model = encoder("rotary_lie", encoding_options={"generators": generators, "block_size": 2})
    assert cost_table(model, GRID)[0].total_macs == pytest.approx(counted_macs(model, GRID), rel=1e-3)


@pytest.mark.parametrize("embed", [LabelEmbed(5, 48, 4), PhysicalPatchEmbed(2, 48, 12.0, 2.0)], ids=["labels", "mm"])
def test_other_patch_embeddings_are_counted(embed: Any) -> None:
    model = VolumeEncoder(encoder().encoding, patch_size=embed, depth=1)
    assert cost_table(model, GRID)[0].total_macs == pytest.approx(counted_macs(model, GRID), rel=1e-3)


def test_the_backward_of_the_blocked_operator_is_counted() -> None:
    forward, both = [], []
    for name in ("none", "distance_slopes"):
        model = encoder(name)
        with flop_counter(display=False) as counter:
            tokens = model([model.patch_embed.blank(GRID)], [GRID]).tokens
            forward.append(counter.get_flop_counts()["Global"])
            tokens.sum().backward()
        both.append({str(op): flops for op, flops in counter.get_flop_counts()["Global"].items()})
    pairs = 2 * 2 * (5 * 4 * 7) ** 2 * 48 * 2  # flops of q k^T and of a v in two layers
    assert both[1]["medattn.blocked_attention"] == pairs
    assert both[1]["medattn.blocked_attention_backward"] == 2.5 * pairs  # q k^T again, and two products for each


def test_a_row_by_hand() -> None:
    (row,) = cost_table(encoder("relative_table", spacing_token=True), GRID)
    tokens = 1 + 5 * 4 * 7
    assert (row.name, row.encoding, row.frame) == ("relative_table", "relative_table", "index")
    assert (row.tokens, row.depth) == (tokens, 2)
    assert row.projection_macs == 4 * tokens * 48 * 48
    assert row.attention_macs == 2 * tokens * tokens * 48
    assert row.ffn_macs == 2 * tokens * 48 * 96
    assert row.once_macs == 140 * 64 * 48 + 12 * 48 + 48 * 48
    assert row.encoding_macs == 0
    assert row.total_macs == row.once_macs + 2 * (row.projection_macs + row.attention_macs + row.ffn_macs)
    assert row.encoding_parameters == 3 * 31**3
    assert row.parameters == sum(p.numel() for p in encoder("relative_table", spacing_token=True).parameters())
    assert row.bias_bytes == 4 * 3 * (9 * 7 * 13)
    assert row.dense_bias_bytes == 4 * 3 * 140**2
    assert (row.backend, row.reason) == ("blocked", "a bias by displacement is read from its table block by block")


def test_memory_of_a_call_is_the_most_it_holds_at_once() -> None:
    def run() -> torch.Tensor:
        one = torch.zeros(1000, 1000)  # 4 MB
        two = one + 1
        del one
        return two * 2

    assert peak_bytes(run, torch.device("cpu")) == pytest.approx(8e6, rel=1e-3)
    assert "KINETO_LOG_LEVEL" not in os.environ
    assert peak_bytes(run, torch.device("meta")) is None


def test_more_tokens_take_more_memory_and_layers_take_it_each() -> None:
    small, large = VoxelGrid.from_spacing((16, 16, 16), 1.0), VoxelGrid.from_spacing((32, 32, 32), 1.0)
    peaks = [cost_table(encoder(), grid)[0].peak_bytes for grid in (small, large)]
    assert peaks[0] is not None
    assert peaks[1] is not None
    assert 6 < peaks[1] / peaks[0] < 10  # 8 times the tokens
    kept = 4 * 512 * 48  # one float32 a channel of each token
    assert 2 * 6 * kept < peaks[1] < 2 * 40 * kept


def test_the_encoder_and_the_random_stream_are_as_before() -> None:
    model, grid = encoder("learned_table", dropout=0.5).eval(), GRID
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    cost_table(model, grid)
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_several_by_name() -> None:
    rows = cost_table({"plain": encoder(), "turned": encoder("rotary_axial")}, GRID)
    assert [row.name for row in rows] == ["plain", "turned"]
    assert [row.encoding for row in rows] == ["none", "rotary_axial"]
    assert {len(row) for row in rows} == {18}
    assert math.isclose(rows[0].total_macs, rows[1].total_macs)


@pytest.mark.parametrize("wrong", [None, [], "tiny", {"a": 1}])
def test_what_is_no_encoder_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="encoders must be a VolumeEncoder, or a mapping of names to them, got"):
        cost_table(wrong, GRID)
