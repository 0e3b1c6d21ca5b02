"""Convolutional positions: the neighbourhood sum, written out."""

import itertools

import pytest
import torch
from torch import Tensor

from medattn import TokenLayout, create_encoding

SHAPES = ((2, 3, 4), (1, 5, 2), (3, 1, 1))
LONGEST = 24


def encoding() -> torch.nn.Module:
    torch.manual_seed(0)
    return create_encoding("peg", dim=6, num_heads=2, frame="index").double()


def tokens(batch: int, count: int) -> Tensor:
    return torch.randn(batch, count, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def signal(peg: torch.nn.Module, shapes: tuple[tuple[int, int, int], ...]) -> object:
    layout = TokenLayout(shapes, torch.eye(3, dtype=torch.float64).expand(len(shapes), 3, 3))
    return peg(torch.zeros(len(shapes), LONGEST, 3, dtype=torch.float64), layout)


def written_out(peg: torch.nn.Module, volume: Tensor) -> Tensor:
    """(I, J, K, D) -> the same, one neighbour at a time."""
    weight, bias = peg.convolution.weight.double(), peg.convolution.bias.double()
    out = volume + bias
    for place in itertools.product(*(range(n) for n in volume.shape[:3])):
        for offset in itertools.product((-1, 0, 1), repeat=3):
            other = tuple(a + o for a, o in zip(place, offset, strict=True))
            if all(0 <= a < n for a, n in zip(other, volume.shape[:3], strict=True)):
                out[place] = out[place] + weight[(slice(None), 0, *(o + 1 for o in offset))] * volume[other]
    return out


@pytest.mark.parametrize("prefix", [0, 2])
def test_each_sample_is_mixed_on_its_own_grid_and_the_rest_is_left_alone(prefix: int) -> None:
    peg, x = encoding(), tokens(3, prefix + LONGEST)
    found = signal(peg, SHAPES).with_prefix(prefix).add_to(x).detach()
    for sample, shape in enumerate(SHAPES):
        count = shape[0] * shape[1] * shape[2]
        grid = x[sample, prefix : prefix + count].reshape(*shape, 6)
        expected = written_out(peg, grid).reshape(count, 6).detach()
        torch.testing.assert_close(found[sample, prefix : prefix + count], expected, rtol=0, atol=1e-12)
        assert torch.equal(found[sample, :prefix], x[sample, :prefix])
        assert torch.equal(found[sample, prefix + count :], x[sample, prefix + count :])


def test_a_batch_of_one_shape_is_each_alone() -> None:
    peg, x = encoding(), tokens(2, LONGEST)
    both = signal(peg, SHAPES[:1] * 2).add_to(x)
    for sample in (0, 1):
        alone = signal(peg, SHAPES[:1]).add_to(x[sample : sample + 1])
        torch.testing.assert_close(both[sample], alone[0], rtol=0, atol=1e-12)


def test_without_grids_and_in_mm_it_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="'peg' needs the grids of the tokens: pass a TokenLayout as layout"):
        encoding()(torch.zeros(1, 4, 3))
    with pytest.raises(ValueError, match=r"'peg' is not defined in frame 'mm', only in index: .*use 'rotary_axial'"):
        create_encoding("peg", dim=6, num_heads=2, frame="mm")


def test_costs() -> None:
    peg = encoding()
    assert sum(p.numel() for p in peg.parameters()) == 28 * 6
    assert peg.signal_macs((5, 2, 1)) == 27 * 10 * 6
