"""Self-attention and the pre-norm block against their formulas."""

import inspect
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medattn import PositionSignal, attend, create_encoding
from medattn.attention import causal_mask
from medattn.layers import Block, SelfAttention
from tests.attention.oracle import naive_attend
from tests.encoders import close

DIM, HEADS, N = 12, 2, 5
NOTHING = PositionSignal()


def tokens(seed: int = 0) -> Tensor:
    return torch.randn(2, N, DIM, generator=torch.Generator().manual_seed(seed))


def rotary() -> PositionSignal:
    coords = 20 * torch.randn(2, N, 3, generator=torch.Generator().manual_seed(1))
    return create_encoding("rotary_axial", dim=DIM, num_heads=HEADS, frame="mm")(coords)


def by_hand(layer: SelfAttention, x: Tensor, signal: PositionSignal, mask: Tensor | None = None) -> Tensor:
    q, k, v = (F.linear(x, w, b) for w, b in zip(layer.qkv.weight.chunk(3), layer.qkv.bias.chunk(3), strict=True))
    width = DIM // layer.num_heads
    q, k, v = (torch.stack(part.split(width, dim=-1), dim=1) for part in (q, k, v))
    heads = naive_attend(signal.rotate(q), signal.rotate(k), v, mask=mask)
    return layer.out(torch.cat(list(heads.unbind(1)), dim=-1).float())


@pytest.mark.parametrize("signal", [NOTHING, rotary()], ids=["none", "rotary"])
@pytest.mark.parametrize("heads", [1, HEADS])
def test_self_attention_is_its_formula(signal: PositionSignal, heads: int) -> None:
    torch.manual_seed(0)
    layer, x = SelfAttention(DIM, heads), tokens()
    mask = torch.rand(2, 1, N, N, generator=torch.Generator().manual_seed(2)) > 0.3
    close(layer(x, signal), by_hand(layer, x, signal))
    close(layer(x, signal, mask), by_hand(layer, x, signal, mask))


def test_a_block_normalises_first_and_adds_twice() -> None:
    torch.manual_seed(0)
    block, x, signal = Block(DIM, HEADS, 30), tokens(), rotary()
    for norm in (block.attention_norm, block.ffn_norm):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)

    def normed(x: Tensor, norm: nn.LayerNorm) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias

    middle = x + by_hand(block.attention, normed(x, block.attention_norm), signal)
    hidden = F.linear(normed(middle, block.ffn_norm), block.ffn[0].weight, block.ffn[0].bias)
    hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
    close(block(x, signal), middle + F.linear(hidden, block.ffn[2].weight, block.ffn[2].bias), atol=1e-5)


def test_parameters_of_a_block() -> None:
    count = sum(p.numel() for p in Block(8, 2, 32).parameters())
    assert count == (4 * 64 + 4 * 8) + (2 * 8 * 32 + 32 + 8) + 2 * 16


@pytest.mark.parametrize("training", [False, True])
def test_tokens_of_a_block_may_be_permuted_unless_a_mask_orders_them(training: bool) -> None:
    torch.manual_seed(0)
    block = Block(DIM, HEADS, 30).train(training)
    x, order = tokens(), torch.tensor([3, 0, 4, 1, 2])
    close(block(x[:, order], NOTHING), block(x, NOTHING)[:, order])
    padding = torch.tensor([[True, True, True, False, True], [True, False, True, True, True]])[:, None, None]
    close(block(x[:, order], NOTHING, padding[..., order]), block(x, NOTHING, padding)[:, order])
    causal = causal_mask(N, N)
    change = block(x[:, order], NOTHING, causal) - block(x, NOTHING, causal)[:, order]
    assert change.detach().abs().max() > 1e-2
    signal = rotary()
    assert (block(x[:, order], signal) - block(x, signal)[:, order]).detach().abs().max() > 1e-2


# -- dropout, and every argument -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
def test_dropout_acts_in_training_and_never_in_eval(name: str) -> None:
    torch.manual_seed(0)
    block, plain = Block(DIM, HEADS, 30, **{name: 0.5}), Block(DIM, HEADS, 30)
    plain.load_state_dict(block.state_dict())
    x = tokens()
    assert (block(x, NOTHING) - block(x, NOTHING)).detach().abs().max() > 1e-2
    assert torch.equal(plain(x, NOTHING), plain(x, NOTHING))
    block.eval()
    assert torch.equal(block(x, NOTHING), block(x, NOTHING))
    assert torch.equal(block(x, NOTHING), plain(x, NOTHING))


def test_attention_dropout_drops_weights_and_dropout_drops_channels() -> None:
    torch.manual_seed(0)
    one_token = torch.randn(200, 1, DIM)  # its only weight is 1: kept and doubled, or dropped
    layer = SelfAttention(DIM, 1, dropout=0.5)
    value = F.linear(one_token, layer.qkv.weight[2 * DIM :], layer.qkv.bias[2 * DIM :])
    out = layer(one_token, NOTHING)
    kept, dropped = layer.out(2 * value), layer.out(torch.zeros_like(value))
    is_kept = ((out - kept).abs().amax((1, 2)) < 1e-5).sum()
    is_dropped = ((out - dropped).abs().amax((1, 2)) < 1e-5).sum()
    assert is_kept + is_dropped == 200
    assert 60 < int(is_kept) < 140
    block = Block(DIM, 1, 30, dropout=0.5)
    for part in (block.ffn[2].weight, block.ffn[2].bias):
        nn.init.zeros_(part)  # what is left is the attention's update
    update = block(one_token, NOTHING) - one_token
    ratio = update / block.attention(block.attention_norm(one_token), NOTHING)
    assert (ratio.abs() < 1e-4).float().mean() == pytest.approx(0.5, abs=0.05)
    close(ratio[ratio.abs() > 1e-4], torch.full(ratio[ratio.abs() > 1e-4].shape, 2.0), atol=2e-2)


@pytest.mark.parametrize("layer", [SelfAttention, Block])
def test_every_argument_has_an_effect(layer: type[nn.Module]) -> None:
    base: dict[str, Any] = {"dim": DIM, "num_heads": HEADS, **({"ffn_dim": 30} if layer is Block else {})}
    other = {"dim": 24, "num_heads": 3, "ffn_dim": 31, "dropout": 0.5, "attention_dropout": 0.5}

    def output(**settings: Any) -> Tensor:
        torch.manual_seed(0)
        built = layer(**settings)
        return built(torch.randn(2, N, settings["dim"], generator=torch.Generator().manual_seed(0)), NOTHING)

    reference = output(**base)
    names = [name for name in inspect.signature(layer).parameters]
    assert set(base) <= set(names) <= set(other)
    for name in names:
        found = output(**{**base, name: other[name]})
        assert found.shape != reference.shape or not torch.allclose(found, reference, atol=1e-3), name


@pytest.mark.parametrize("value", [1, -0.1, 1.5, math.nan])
def test_dropout_must_be_a_probability_below_one(value: float) -> None:
    with pytest.raises(ValueError, match=rf"dropout must be in \[0, 1\), got {value}"):
        SelfAttention(DIM, HEADS, dropout=value)
    with pytest.raises(ValueError, match=rf"^dropout must be in \[0, 1\), got {value}"):
        Block(DIM, HEADS, 30, dropout=value)
    with pytest.raises(ValueError, match=rf"attention dropout must be in \[0, 1\), got {value}"):
        Block(DIM, HEADS, 30, attention_dropout=value)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="dim must be a multiple of num_heads, got dim=10, num_heads=4"):
        SelfAttention(10, 4)


def test_attention_keeps_the_magnitude_of_equal_values() -> None:
    q, k = torch.randn(2, 1, 2, N, 6)
    close(attend(q, k, torch.ones(1, 2, N, 3)), torch.ones(1, 2, N, 3))
