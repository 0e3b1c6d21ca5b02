"""``PositionSignal`` and the turning of channel pairs."""

import math

import pytest
import torch
from torch import Tensor

from medattn import PositionSignal
from medattn.encodings.turning import rotate_pairs


def rotary_of(angles: Tensor) -> Tensor:
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


def turned_by_matrices(x: Tensor, angles: Tensor) -> Tensor:
    """Each pair times [[cos, -sin], [sin, cos]], one at a time; ``angles`` (B, 1 or H, N, P)."""
    out = x.double().clone()
    angles = angles.expand(x.shape[0], x.shape[1], *angles.shape[2:])
    for b, h, n, p in torch.cartesian_prod(*(torch.arange(size) for size in angles.shape)).tolist():
        c, s = math.cos(angles[b, h, n, p]), math.sin(angles[b, h, n, p])
        matrix = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        out[b, h, n, 2 * p : 2 * p + 2] = matrix @ out[b, h, n, 2 * p : 2 * p + 2]
    return out


def random_angles(heads: int, pairs: int) -> Tensor:
    return 10 * torch.randn(2, heads, 3, pairs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def inputs(layout: str, width: int, dtype: torch.dtype) -> Tensor:
    """(2, 3, 3, width): batch, heads, tokens, channels, laid out in memory in one way or another."""
    generator = torch.Generator().manual_seed(0)
    if layout == "packed":  # queries as they come out of a joint projection
        return (
            torch.randn(2, 3, 3 * 3 * width, generator=generator)
            .to(dtype)
            .unflatten(-1, (3, 3, -1))
            .permute(2, 0, 3, 1, 4)[1]
        )
    if layout == "strided":
        return torch.randn(2, 3, 3, 2 * width, generator=generator).to(dtype)[..., ::2]
    if layout == "transposed":
        return torch.randn(2, 3, width, 3, generator=generator).to(dtype).mT
    if layout == "offset":
        return torch.randn(2 * 3 * 3 * width + 1, generator=generator).to(dtype)[1:].view(2, 3, 3, width)
    return torch.randn(2, 3, 3, width, generator=generator).to(dtype)


@pytest.mark.parametrize("layout", ["contiguous", "packed", "strided", "transposed", "offset"])
@pytest.mark.parametrize(("width", "pairs"), [(6, 3), (7, 3), (9, 4), (8, 2), (5, 1)])
@pytest.mark.parametrize("heads", [1, 3])
def test_turning_is_a_rotation_matrix_on_each_pair(layout: str, width: int, pairs: int, heads: int) -> None:
    angles, x = random_angles(heads, pairs), inputs(layout, width, torch.float64)
    before = x.clone()
    found = rotate_pairs(x, rotary_of(angles))
    torch.testing.assert_close(found, turned_by_matrices(x, angles), rtol=0, atol=1e-12)
    assert torch.equal(found[..., 2 * pairs :], x[..., 2 * pairs :])
    assert torch.equal(x, before)


@pytest.mark.parametrize("layout", ["contiguous", "packed", "strided"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_turning_keeps_the_dtype_and_works_in_float32_or_better(layout: str, dtype: torch.dtype) -> None:
    angles, x = random_angles(3, 3), inputs(layout, 7, dtype)
    signal = PositionSignal(rotary=rotary_of(angles)).to(x.device, dtype)
    assert signal.rotary is not None
    assert signal.rotary.dtype == torch.float32
    found = signal.rotate(x)
    assert found.dtype == dtype
    expected = turned_by_matrices(x, angles)
    rounding = 0.51 * torch.finfo(dtype).eps * expected.abs()  # one, at the end
    assert bool(((found.double() - expected).abs() <= rounding + 1e-6).all())


def test_turning_is_differentiable_and_its_gradient_turns_back() -> None:
    angles, x = random_angles(1, 3), inputs("contiguous", 7, torch.float64).requires_grad_()
    direction = torch.randn(2, 3, 3, 7, dtype=torch.float64)
    (rotate_pairs(x, rotary_of(angles)) * direction).sum().backward()
    torch.testing.assert_close(x.grad, turned_by_matrices(direction, -angles), rtol=0, atol=1e-12)


def test_additive_parts_are_cast_and_rotary_parts_stay_exact() -> None:
    signal = PositionSignal(torch.rand(1, 2, 4).double(), rotary_of(random_angles(1, 3)))
    for dtype, kept in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        cast = signal.to(torch.device("cpu"), dtype)
        assert cast.additive is not None
        assert cast.rotary is not None
        assert (cast.additive.dtype, cast.rotary.dtype) == (dtype, kept)


def test_an_empty_signal_changes_nothing() -> None:
    x = torch.randn(1, 2, 3, 4)
    for signal in (PositionSignal(), PositionSignal().with_prefix(2), PositionSignal().to(x.device, torch.bfloat16)):
        assert signal.rotate(x) is x
        assert signal.add_to(x) is x


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("heads", [1, 3])
def test_prefix_tokens_are_neither_moved_nor_turned(count: int, heads: int) -> None:
    angles = random_angles(heads, 3)
    additive = torch.randn(2, 3, 7, dtype=torch.float64)
    signal = PositionSignal(additive, rotary_of(angles)).with_prefix(count)
    tokens = torch.randn(2, count + 3, 7, dtype=torch.float64)
    moved = signal.add_to(tokens)
    assert torch.equal(moved[:, :count], tokens[:, :count])
    assert torch.equal(moved[:, count:], tokens[:, count:] + additive)
    queries = torch.randn(2, 3, count + 3, 7, dtype=torch.float64)
    turned = signal.rotate(queries)
    assert torch.equal(turned[:, :, :count], queries[:, :, :count])
    torch.testing.assert_close(
        turned[:, :, count:], turned_by_matrices(queries[:, :, count:], angles), rtol=0, atol=1e-12
    )


def test_one_part_alone_can_have_a_prefix() -> None:
    turning = PositionSignal(rotary=rotary_of(random_angles(1, 3))).with_prefix(2)
    assert turning.additive is None
    assert turning.rotary is not None
    assert turning.rotary.shape == (2, 1, 5, 3, 2)
    adding = PositionSignal(torch.ones(2, 3, 7)).with_prefix(2)
    assert adding.rotary is None
    assert adding.additive is not None
    assert adding.additive[0, :, 0].tolist() == [0, 0, 1, 1, 1]
