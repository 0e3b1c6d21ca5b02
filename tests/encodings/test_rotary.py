"""Rotary encoding: how pairs are shared over axes, and what turning does to logits."""

import math

import pytest
import torch
from torch import Tensor

from medattn import VoxelGrid, create_encoding, token_coordinates
from medattn.encodings.frequencies import split_pairs


def table(coords: object, *, head_dim: int, frame: str = "mm", **options: object) -> Tensor:
    """(N, P, 2) cosines and sines for one head of width ``head_dim``."""
    encoding = create_encoding("rotary_axial", dim=head_dim, num_heads=1, frame=frame, **options)
    rotary = encoding(torch.as_tensor(coords, dtype=torch.float64)[None]).rotary
    assert rotary is not None
    return rotary[0, 0]


def pairs_of_each_axis(name: str, width: int) -> list[int]:
    """Channel pairs that a step along each axis changes, for a head (rotary) or token (sincos) width."""
    encoding = create_encoding(name, dim=width, num_heads=1, frame="mm")
    coords = torch.cat([torch.zeros(1, 3, dtype=torch.float64), 0.7 * torch.eye(3, dtype=torch.float64)])
    signal = encoding(coords[None])
    code = signal.additive[0] if signal.rotary is None else signal.rotary[0, 0].flatten(1)  # type: ignore[index]
    changed = (code[1:] - code[0]).abs() > 1e-6
    return [len({channel // 2 for channel in row.nonzero()[:, 0].tolist()}) for row in changed]


@pytest.mark.parametrize("name", ["sincos", "rotary_axial"])
def test_64_channels_are_shared_11_11_10(name: str) -> None:
    assert pairs_of_each_axis(name, 64) == [11, 11, 10]


@pytest.mark.parametrize("name", ["sincos", "rotary_axial"])
@pytest.mark.parametrize("width", range(6, 41))
def test_every_axis_of_every_width_has_its_even_share(name: str, width: int) -> None:
    shares = pairs_of_each_axis(name, width)
    assert sum(shares) == width // 2
    assert min(shares) >= 1
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


def test_pairs_are_shared_first_axes_first() -> None:
    assert split_pairs(32, 3, owner="x", width="dim") == [11, 11, 10]
    assert split_pairs(4, 3, owner="x", width="dim") == [2, 1, 1]
    assert split_pairs(3, 3, owner="x", width="dim") == [1, 1, 1]
    assert split_pairs(5, 1, owner="x", width="dim") == [5]


@pytest.mark.parametrize("head_dim", range(1, 6))
def test_a_head_too_narrow_for_three_axes_is_refused_with_the_smallest_width(head_dim: int) -> None:
    with pytest.raises(ValueError, match=rf"rotary_axial needs head_dim >= 6 .*3 axes.*got {head_dim - head_dim % 2}$"):
        create_encoding("rotary_axial", dim=4 * head_dim, num_heads=4, frame="mm")
    with pytest.raises(ValueError, match=r"sincos needs dim >= 6 "):
        create_encoding("sincos", dim=head_dim, num_heads=1, frame="index")


def test_a_sequence_needs_a_width_of_two() -> None:
    assert table([[0.0], [1.0]], head_dim=2, frame="sequence").shape == (2, 1, 2)
    with pytest.raises(ValueError, match="head_dim >= 2"):
        create_encoding("rotary_axial", dim=1, num_heads=1, frame="sequence")


def test_worked_angles() -> None:
    found = table([[12.5, 0.0, 25.0]], head_dim=6, wavelengths_mm=(10, 250))  # one wave of 50 mm an axis
    expected = torch.tensor([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found[0], expected, rtol=0, atol=1e-12)
    sequence = table([[3.0]], head_dim=4, frame="sequence")[0]
    literal = [[math.cos(3), math.sin(3)], [math.cos(0.03), math.sin(0.03)]]
    torch.testing.assert_close(sequence, torch.tensor(literal, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 4, 4), (3, 4, 5), (1, 2, 7), (2, 9, 3)], ids=str)
@pytest.mark.parametrize("frame", ["index", "fraction", "mm", "patient_mm", "scanner_mm"])
@pytest.mark.parametrize("name", ["sincos", "rotary_axial"])
def test_there_are_as_many_codes_as_tokens(name: str, frame: str, shape: tuple[int, int, int]) -> None:
    coords = token_coordinates(VoxelGrid.from_spacing(shape, (1.0, 2.0, 3.0)), 1, frame)
    signal = create_encoding(name, dim=12, num_heads=1, frame=frame)(coords[None])
    code = signal.additive[0] if signal.rotary is None else signal.rotary[0, 0].flatten(1)  # type: ignore[index]
    count = shape[0] * shape[1] * shape[2]
    assert len(code.mul(1e4).round().unique(dim=0)) == count == len(coords)


def test_logits_depend_on_the_displacement_and_on_no_axis_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(12, generator=generator, dtype=torch.float64).expand(1, 1, 1, 12) for _ in range(2))
    encoding = create_encoding("rotary_axial", dim=12, num_heads=1, frame="mm")

    def logit(a: list[float], b: list[float]) -> float:
        where = [encoding(torch.tensor([[p]], dtype=torch.float64)) for p in (a, b)]
        return float((where[0].rotate(q) @ where[1].rotate(k).mT).squeeze())

    here = logit([1, 2, 3], [4, -5, 6])
    assert logit([11, -18, 33], [14, -25, 36]) == pytest.approx(here, abs=1e-12)  # the same displacement
    others = ([1, 2, 3], [7, -8, 6]), ([1, 2, 3], [4, 6, -5]), ([4, -5, 6], [1, 2, 3])  # the same sum, swapped axes
    assert all(abs(logit(a, b) - here) > 1e-3 for a, b in others)
    assert logit([0, 0, 0], [0, 0, 0]) == pytest.approx(float((q * k).sum()), abs=1e-12)


def test_two_patch_sizes_agree_about_the_place_of_one_point() -> None:
    grid = VoxelGrid.from_spacing((9, 9, 9), (1.0, 2.0, 4.0), center_mm=(3.0, -7.0, 11.0))
    for name in ("sincos", "rotary_axial"):
        for frame in ("index", "fraction", "mm", "patient_mm", "scanner_mm"):
            encoding = create_encoding(name, dim=12, num_heads=1, frame=frame)
            found = []
            for patch, token in ((1, (1, 4, 7)), (3, (0, 1, 2))):  # both centred on voxel (1, 4, 7)
                shape = grid.patch_grid(patch).shape
                coords = token_coordinates(grid, patch, frame).reshape(*shape, 3)[token]
                signal = encoding(coords[None, None])
                found.append(signal.additive if signal.rotary is None else signal.rotary)
            torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [(1.0, 3.0), (3.0, 1.0)], ids=str)
@pytest.mark.parametrize("name", ["sincos", "rotary_axial"])
def test_a_second_spacing_of_the_same_shape_gets_its_own_angles(name: str, order: tuple[float, float]) -> None:
    def build() -> torch.nn.Module:
        return create_encoding(name, dim=12, num_heads=1, frame="mm")

    used = build()
    found = []
    for spacing in order:
        coords = token_coordinates(VoxelGrid.from_spacing((4, 6, 8), spacing), 2, "mm")[None]
        one, other = used(coords), build()(coords)
        found.append(one.additive if one.rotary is None else one.rotary)
        assert torch.equal(found[-1], other.additive if other.rotary is None else other.rotary)
    assert float((found[0] - found[1]).abs().max()) > 0.1
