"""Every backend, with every kind of bias and mask, against the float64 reference: outputs and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from medattn import TokenLayout, attend, attention_weights, create_encoding
from medattn.attention import axis_causal_mask, choose_backend, record_backends
from medattn.attention.table_rows import add_rows, backward_rows, blocks, bounds
from medattn.encodings.bias import PairBias, SumBias, TableBias
from medattn.layers import Block

SHAPE, PREFIX, HEADS, WIDTH = (3, 4, 5), 2, 2, 6
COUNT = 3 * 4 * 5
N = PREFIX + COUNT + 3
"""Two tokens without a place, a grid, and three of padding."""


def leaves(dtype: torch.dtype) -> dict[str, Tensor]:
    """q, k, v, two tables, coordinates and a slope, as parameters of ``dtype`` (positions: float32 or better)."""
    generator = torch.Generator().manual_seed(0)
    fine = torch.promote_types(dtype, torch.float32)

    def draw(kind: torch.dtype, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).to(kind).requires_grad_()

    return {
        **{name: draw(dtype, 2, HEADS, N, WIDTH) for name in "qkv"},
        "one": draw(fine, HEADS, 5, 7, 9),
        "other": draw(fine, HEADS, 5, 7, 9),
        "coords": draw(fine, 2, N - PREFIX, 3),
        "slope": draw(fine, HEADS),
        "channels_q": draw(dtype, 2, HEADS, N, 3),
        "channels_k": draw(dtype, 1, 1, N, 3),
        "dense": draw(dtype, 1, HEADS, N, N),
    }


def bias_of(kind: str, x: dict[str, Tensor]) -> Any:
    shared = TableBias((x["one"],), (SHAPE,), N - PREFIX, PREFIX)
    pairs = PairBias(x["coords"], lambda d: d.square().sum(-1, keepdim=True).add(0.1).sqrt() * x["slope"], PREFIX)
    return {
        "none": None,
        "dense": x["dense"],
        "table": shared,
        "tables": TableBias((x["one"], x["other"]), (SHAPE, SHAPE), N - PREFIX, PREFIX),
        "pairs": pairs,
        "sum": SumBias((shared, pairs)),
        "channels": None,
    }[kind]


def masks() -> dict[str, dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    rows = torch.rand(2, 1, N, N, generator=generator) > 0.5
    rows[0, :, 4] = False  # may attend to nothing
    return {
        "none": {},
        "keys": {"mask": (torch.rand(2, 1, 1, N, generator=generator) > 0.3)},
        "rows": {"mask": rows},
        "flat": {"mask": torch.arange(N) != 7},
        "causal": {"causal": True},
        "both": {"mask": rows, "causal": True},
    }


def computed(kind: str, mask: str, dtype: torch.dtype, **options: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Output and gradients, in float64."""
    x = leaves(dtype)
    channels = (x["channels_q"], x["channels_k"]) if kind == "channels" else None
    out = attend(x["q"], x["k"], x["v"], bias=bias_of(kind, x), channels=channels, **masks()[mask], **options)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (out.double() * weight).sum().backward()
    return out.detach().double(), {name: leaf.grad.double() for name, leaf in x.items() if leaf.grad is not None}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", list(masks()))
@pytest.mark.parametrize("kind", ["none", "dense", "table", "tables", "pairs", "sum", "channels"])
@pytest.mark.parametrize("backend", ["auto", "fused", "blocked", "reference"])
def test_outputs_and_gradients_agree(backend: str, kind: str, mask: str, dtype: torch.dtype) -> None:
    if kind == "channels" and dtype == torch.bfloat16:
        pytest.skip("plain channels are rounded; those of encodings are split for it, and tested there")
    reference, gradients = computed(kind, mask, torch.float64, backend="reference")
    if dtype == torch.bfloat16:  # the same rounded numbers, computed exactly
        exact = leaves(dtype)
        reference, gradients = _exactly(exact, kind, mask)
    out, found = computed(kind, mask, dtype, backend=backend, temperature=1.0)
    atol = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(out, reference, rtol=0, atol=atol)
    assert set(found) == set(gradients)
    for name, gradient in gradients.items():
        scale = max(1.0, float(gradient.abs().max())) * (2 if name == "slope" else 1)  # a sum over all pairs
        torch.testing.assert_close(
            found[name] / scale, gradient / scale, rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )
    if mask == "rows":
        assert not out[0, :, 4].any()


def _exactly(x: dict[str, Tensor], kind: str, mask: str) -> tuple[Tensor, dict[str, Tensor]]:
    x = {name: leaf.detach().double().requires_grad_() for name, leaf in x.items()}
    out = attend(x["q"], x["k"], x["v"], bias=bias_of(kind, x), **masks()[mask], backend="reference")
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (out * weight).sum().backward()
    return out.detach(), {name: leaf.grad for name, leaf in x.items() if leaf.grad is not None}


@pytest.mark.parametrize("kind", ["none", "dense", "table", "tables", "pairs", "sum", "channels"])
@pytest.mark.parametrize("mask", list(masks()))
def test_weights_are_those_of_the_output_and_can_be_had_for_some_queries(kind: str, mask: str) -> None:
    x = leaves(torch.float64)
    terms: dict[str, Any] = {"bias": bias_of(kind, x), **masks()[mask], "temperature": 0.7}
    if kind == "channels":
        terms["channels"] = (x["channels_q"], x["channels_k"])
    weights = attention_weights(x["q"], x["k"], **terms)
    torch.testing.assert_close(weights @ x["v"], attend(x["q"], x["k"], x["v"], **terms), rtol=0, atol=1e-10)
    some = torch.tensor([0, 7, 4, N - 1])
    torch.testing.assert_close(attention_weights(x["q"], x["k"], queries=some, **terms), weights[:, :, some])


@pytest.mark.parametrize("width", [1, 6, 16])
def test_channels_add_their_inner_product_whatever_width_and_temperature(width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 2, 5, width, generator=generator, dtype=torch.float64) for _ in range(2))
    extra = tuple(torch.randn(1, 2, 5, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    v = torch.randn(1, 2, 5, 4, generator=generator, dtype=torch.float64)
    for temperature in (1.0, 0.3):
        expected = attend(q, k, v, bias=extra[0] @ extra[1].mT, temperature=temperature, backend="reference")
        for backend in ("auto", "fused", "blocked", "reference"):
            found = attend(q, k, v, channels=extra, temperature=temperature, backend=backend)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["table", "pairs"])
def test_dropout_is_dropout_also_block_by_block(kind: str) -> None:
    x = leaves(torch.float64)
    plain = attend(x["q"], x["k"], x["v"], bias=bias_of(kind, x))
    torch.manual_seed(0)
    draws = torch.stack([attend(x["q"], x["k"], x["v"], bias=bias_of(kind, x), dropout=0.5) for _ in range(400)])
    assert not torch.equal(draws[0], draws[1])
    error = (draws.mean(0) - plain).abs() / (draws.std(0) / 20 + 1e-9)
    assert float(error.median()) < 1.5
    torch.manual_seed(1)
    out = attend(x["q"], x["k"], x["v"], bias=bias_of(kind, x), dropout=0.5)
    (gradient,) = torch.autograd.grad(out.sum(), x["v"])  # sum of the kept weights, if the mask is drawn again alike
    direction = torch.randn_like(x["v"])
    torch.manual_seed(1)
    moved = attend(x["q"], x["k"], x["v"] + direction, bias=bias_of(kind, x), dropout=0.5)
    torch.testing.assert_close((moved - out).sum(), (gradient * direction).sum(), rtol=1e-9, atol=1e-9)


# -- tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4), (1, 5, 2), (4, 1, 1), (4, 4, 4)])
@pytest.mark.parametrize("most", [1, 4, 7, 20, 100])
def test_rows_of_a_table_and_their_adjoint(shape: tuple[int, int, int], most: int) -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(2, *(2 * n - 1 for n in shape), generator=generator, dtype=torch.float64, requires_grad=True)
    count = shape[0] * shape[1] * shape[2]
    dense = TableBias((table,), (shape,), count).dense()[0]
    weight = torch.randn(dense.shape, generator=generator, dtype=torch.float64)
    (dense * weight).sum().backward()
    gradient, seen = torch.zeros_like(table), []
    for block in blocks(shape, most):
        start, stop = bounds(block, shape)
        rows = backward_rows(table.detach(), shape, block)
        assert torch.equal(rows.flip(1), dense[:, start:stop].detach())
        add_rows(gradient, shape, block, weight[:, start:stop].flip(1))
        seen += range(start, stop)
    assert seen == list(range(count))
    torch.testing.assert_close(gradient, table.grad)


# -- choices -------------------------------------------------------------------------------------------


def test_the_choice_is_told_with_its_reason() -> None:
    x = leaves(torch.float32)
    with record_backends() as outer:
        attend(x["q"], x["k"], x["v"])
        with record_backends() as inner:
            attend(x["q"], x["k"], x["v"], bias=bias_of("table", x))
            attend(x["q"], x["k"], x["v"], bias=bias_of("pairs", x), backend="fused")
    attend(x["q"], x["k"], x["v"])
    assert [choice.name for choice in outer] == ["fused", "blocked", "fused"]
    assert [choice.name for choice in inner] == ["blocked", "fused"]
    assert "table block by block" in inner[0].reason
    assert inner[1].reason == "asked for by name"
    assert choose_backend(bias_of("pairs", x)).name == "blocked"
    assert choose_backend(x["dense"]).name == "fused"


def test_slabs_along_an_axis_see_what_came_before() -> None:
    mask = axis_causal_mask((2, 1, 3), 2)
    assert mask.int().tolist() == [[1, 0, 0] * 2, [1, 1, 0] * 2, [1, 1, 1] * 2] * 2
    assert torch.equal(axis_causal_mask((3, 1, 1), 0), torch.ones(3, 3, dtype=torch.bool).tril())
    with pytest.raises(ValueError, match="axis must be 0, 1 or 2, got 3"):
        axis_causal_mask((2, 1, 3), 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": torch.zeros(1, HEADS, N, WIDTH)}, r"k and v must have the same batch and heads, got k \(2, .* v \(1, "),
        (
            {"bias": TableBias((torch.zeros(1, 5, 7, 9),), (SHAPE,), COUNT)},
            f"as many tokens as q and k, got {COUNT} for",
        ),
        (
            {"channels": (torch.zeros(2, HEADS, N, 3), torch.zeros(2, HEADS, N, 4))},
            r"channels must be \(B, H, N, C\) and",
        ),
        (
            {"channels": (torch.zeros(2, HEADS, 3, 3), torch.zeros(2, HEADS, N, 3))},
            r"channels must be \(B, H, N, C\) and",
        ),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    x = {name: leaf.detach() for name, leaf in leaves(torch.float32).items() if name in "qkv"}
    with pytest.raises(ValueError, match=message):
        attend(**{**x, **change})


# -- compiled ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["rotary_mixed", "rotary_lie", "gaussian", "fourier", "mlp", "distance_slopes", "continuous_bias"]
)
def test_ten_grids_need_two_compilations_whatever_the_signal(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    counter = CompileCounter()
    block, positions = Block(24, 2, 48), create_encoding(name, dim=24, num_heads=2, frame="mm")

    def forward(x: Tensor, coords: Tensor, layout: TokenLayout | None) -> Tensor:
        return block(x, positions(coords, layout).to(x.device, x.dtype))

    compiled = torch.compile(forward, backend=counter, fullgraph=True)
    gridded = name in ("distance_slopes", "continuous_bias")
    for n in range(5, 15):
        shape = (2, n, 3)
        x, coords = torch.randn(2, 6 * n, 24), 50 * torch.randn(2, 6 * n, 3)
        layout = TokenLayout((shape, shape), torch.eye(3, dtype=torch.float64).expand(2, 3, 3)) if gridded else None
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, coords, layout), forward(x, coords, layout), rtol=0, atol=1e-5)
    assert counter.frame_count <= 2
