"""Rotary encodings with learned directions, extents, fractions and matrices, against their definitions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from medattn import PositionalEncoding, TokenLayout, VoxelGrid, attend, create_encoding, token_coordinates
from medattn.coordinates import token_steps
from medattn.encodings.rotary_layout import to_half, to_interleaved
from medattn.encodings.rotary_mixed import random_rotations
from medattn.encodings.turning import rotate_pairs
from tests.geometry.grids import random_grid

WIDTH, HEADS = 14, 2
"""Head width 14: 7 pairs, 3, 2 and 2 of them on the axes."""


def build(name: str, frame: str = "mm", *, dim: int = HEADS * WIDTH, **options: Any) -> PositionalEncoding:
    torch.manual_seed(0)
    return create_encoding(name, dim=dim, num_heads=HEADS, frame=frame, **options)


def layout_of(grid: VoxelGrid, patch: Any, frame: str) -> TokenLayout:
    return TokenLayout((grid.patch_grid(patch).shape,), token_steps(grid, patch, frame)[None])


# -- mixed ---------------------------------------------------------------------------------------------


def test_mixed_angles_are_inner_products_with_the_vectors_of_each_head() -> None:
    encoding = build("rotary_mixed", "index", reference_spacing_mm=(1.0, 2.0, 3.0))
    coords = 20 * torch.randn(2, 5, 3, dtype=torch.float64)
    found = encoding(coords).rotary.detach()
    assert found.shape == (2, HEADS, 5, 7, 2)
    vectors = encoding.frequency_vectors_mm().detach().double()
    for b, h, n, p in ((0, 0, 0, 0), (1, 1, 4, 6), (0, 1, 2, 3)):
        angle = float(coords[b, n] * torch.tensor([1.0, 2.0, 3.0]) @ vectors[h, p])
        assert found[b, h, n, p].tolist() == pytest.approx([math.cos(angle), math.sin(angle)], abs=1e-6)


def test_at_the_start_each_head_has_the_axial_lengths_in_directions_of_its_own() -> None:
    vectors = build("rotary_mixed", wavelengths_mm=(20.0, 200.0)).frequency_vectors_mm().detach().double()
    expected = [2 * math.pi / w for w in (20, math.sqrt(20 * 200), 200, 20, 200, 20, 200)]
    for head in range(HEADS):
        assert vectors[head].norm(dim=-1).tolist() == pytest.approx(expected, rel=1e-5)
        directions = vectors[head][[0, 3, 5]] / vectors[head][[0, 3, 5]].norm(dim=-1, keepdim=True)
        torch.testing.assert_close(directions @ directions.mT, torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-5)
    assert not torch.allclose(vectors[0], vectors[1], atol=1e-2)


def test_random_rotations_are_rotations_and_uniform() -> None:
    torch.manual_seed(0)
    rotations = random_rotations(4000, 3)
    torch.testing.assert_close(rotations @ rotations.mT, torch.eye(3).double().expand(4000, 3, 3), rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.linalg.det(rotations), torch.ones(4000).double(), rtol=0, atol=1e-12)
    assert float(rotations.mean(0).abs().max()) < 0.05
    assert float((rotations.square().mean(0) - 1 / 3).abs().max()) < 0.02


# -- extent --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", ["mm", "patient_mm", "index", "fraction"])
def test_the_signal_is_the_average_over_the_patch(frame: str) -> None:
    grid, patch = random_grid(3), (2, 3, 2)
    encoding = build("rotary_extent", frame, wavelengths_mm=(9.0, 60.0))
    coords = token_coordinates(grid, patch, frame)[None]
    found = encoding(coords, layout_of(grid, patch, frame)).rotary[0, 0]
    nodes, weights = (torch.tensor(x) for x in np.polynomial.legendre.leggauss(24))
    along = torch.cartesian_prod(nodes / 2, nodes / 2, nodes / 2)
    weight = torch.cartesian_prod(weights / 2, weights / 2, weights / 2).prod(-1)
    offsets = along @ token_steps(grid, patch, frame)
    for n in (0, len(found) // 2):
        angles = encoding.angles((coords[0, n] + offsets)[None])[0]  # everywhere in the box
        expected = torch.stack([weight @ angles.cos(), weight @ angles.sin()], dim=-1)
        torch.testing.assert_close(found[n], expected, rtol=0, atol=1e-9)


def test_small_patches_are_points_and_thick_slices_lose_the_fine_bands_along_their_normal_alone() -> None:
    encoding, plain = (build(name, wavelengths_mm=(16.0, 250.0)) for name in ("rotary_extent", "rotary_axial"))
    fine = VoxelGrid.from_spacing((2, 2, 2), 1e-3)
    coords = token_coordinates(fine, 1, "mm")[None]
    torch.testing.assert_close(
        encoding(coords, layout_of(fine, 1, "mm")).rotary, plain(coords).rotary, rtol=0, atol=1e-6
    )
    thick = VoxelGrid.from_spacing((2, 2, 2), (1.0, 1.0, 16.0))
    rotary = encoding(token_coordinates(thick, 1, "mm")[None], layout_of(thick, 1, "mm")).rotary
    length = rotary[0, 0, 0].square().sum(-1).sqrt()
    assert float(length[[0, 3]].min()) > 0.99  # 16 mm waves along i and j
    assert float(length[5]) == pytest.approx(0.0, abs=1e-12)  # along k one whole wave to a slice
    assert float(length[6]) == pytest.approx(math.sin(math.pi * 16 / 250) / (math.pi * 16 / 250), abs=1e-9)


# -- DINO ----------------------------------------------------------------------------------------------


def test_dino_angles_are_those_of_coordinates_from_minus_one_to_one() -> None:
    encoding = build("rotary_dino", "fraction", base=100.0).eval()
    grid = VoxelGrid.from_spacing((4, 2, 2), 3.0)
    found = encoding(token_coordinates(grid, 1, "fraction")[None]).rotary[0, 0]
    u = [-0.75, -0.5, -0.5]  # centre of the first patch
    periods = [(0, 1.0), (0, 100 ** (1 / 3)), (0, 100 ** (2 / 3)), (1, 1.0), (1, 10.0), (2, 1.0), (2, 10.0)]
    for pair, (axis, period) in enumerate(periods):
        angle = 2 * math.pi * u[axis] / period
        assert found[0, pair].tolist() == pytest.approx([math.cos(angle), math.sin(angle)], abs=1e-9)


@pytest.mark.parametrize("option", [{"shift": 0.5}, {"jitter": 1.5}, {"rescale": 2.0}])
def test_dino_changes_coordinates_in_training_alone_and_each_sample_apart(option: dict[str, float]) -> None:
    encoding, plain = build("rotary_dino", "fraction", **option), build("rotary_dino", "fraction")
    coords = (torch.rand(1, 9, 3, dtype=torch.float64) - 0.5).expand(2, 9, 3)
    torch.manual_seed(3)
    first, second = encoding(coords).rotary, encoding(coords).rotary
    torch.manual_seed(3)
    assert torch.equal(encoding(coords).rotary, first)
    assert not torch.allclose(first, second, atol=1e-3)
    assert not torch.allclose(first[0], first[1], atol=1e-3)
    assert torch.equal(encoding.eval()(coords).rotary, plain(coords).rotary)


def test_dino_changes_stay_in_their_ranges() -> None:
    encoding = build("rotary_dino", "fraction", shift=0.1, jitter=1.5, rescale=2.0)
    torch.manual_seed(0)
    places = torch.tensor([[[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]], dtype=torch.float64).expand(500, 2, 3)
    changed = encoding._changed(places)
    factors = changed[:, 1] - changed[:, 0]
    shifts = changed[:, 0] / factors
    assert 0.09 < float(shifts.abs().max()) <= 0.1
    ratio = factors.amax(1) / factors.amin(1)
    assert 1.5 < float(ratio.max()) <= 1.5**2 + 1e-9
    assert 1 / 3 - 1e-9 <= float(factors.min()) < 0.4
    assert 2.5 < float(factors.max()) <= 3 + 1e-9


# -- layouts -------------------------------------------------------------------------------------------


def half_split(x: Tensor, angles: Tensor) -> Tensor:
    """x cos + rotate_half(x) sin, as half-split models write it; (N, D) and (N, D / 2)."""
    low, high = x.chunk(2, dim=-1)
    cosine, sine = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    return x * cosine + torch.cat([-high, low], -1) * sine


def test_reordered_rows_make_interleaved_pairs_of_half_split_ones() -> None:
    weight, tokens, angles = torch.randn(24, 5).double(), torch.randn(7, 5).double(), torch.randn(7, 6).double()
    theirs = [half_split(x, angles) for x in (tokens @ weight.T).chunk(2, dim=-1)]
    ours = (tokens @ to_interleaved(weight, 2, "half").T).unflatten(-1, (2, -1)).transpose(0, 1)[None]
    turned = rotate_pairs(ours, torch.stack([angles.cos(), angles.sin()], -1)[None, None])[0]
    for head in range(2):
        expected = to_interleaved(theirs[head].T, 1, "half").T  # the same numbers, in our order
        torch.testing.assert_close(turned[head], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(turned[head] @ turned[head].T, theirs[head] @ theirs[head].T)
    assert torch.equal(to_half(to_interleaved(weight, 2, "half"), 2), weight)
    assert to_interleaved(weight, 2, "interleaved") is weight
    assert to_interleaved(torch.arange(6), 1, "half").tolist() == [0, 3, 1, 4, 2, 5]


def test_bad_layouts_are_named() -> None:
    with pytest.raises(ValueError, match="layout must be 'interleaved' or 'half', got 'split'"):
        to_interleaved(torch.zeros(4, 2), 1, "split")
    with pytest.raises(ValueError, match="projection must have a multiple of 2 x 2 heads rows, got 6"):
        to_interleaved(torch.zeros(6, 2), 2, "half")


# -- matrices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generators", ["commuting", "free"])
def test_matrices_are_rotations_of_their_generators(generators: str) -> None:
    encoding = build("rotary_lie", generators=generators, block_size=4)
    coords = 30 * torch.randn(2, 6, 3, dtype=torch.float64)
    found = encoding(coords).matrices.detach()
    assert found.shape == (2, HEADS, 6, 3, 4, 4)
    torch.testing.assert_close(found @ found.mT, torch.eye(4).double().expand_as(found), rtol=0, atol=1e-9)
    torch.testing.assert_close(torch.linalg.det(found), torch.ones(found.shape[:-2]).double(), rtol=0, atol=1e-9)
    h, g, n = 1, 2, 4
    if generators == "free":
        generator = torch.zeros(3, 4, 4, dtype=torch.float64)
        row, column = torch.triu_indices(4, 4, 1)
        generator[:, row, column] = encoding.frequencies[h, g].detach().double()
        generator = generator - generator.mT
    else:
        basis = torch.linalg.matrix_exp(
            encoding.basis[h, g].detach().double() - encoding.basis[h, g].detach().double().T
        )
        quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
        w = encoding.frequencies[h, g].detach().double()
        generator = torch.stack([basis @ torch.block_diag(*(quarter * x for x in w[:, a])) @ basis.T for a in range(3)])
    expected = torch.linalg.matrix_exp((coords[0, n, :, None, None] * generator).sum(0))
    torch.testing.assert_close(found[0, h, n, g], expected, rtol=0, atol=1e-9)


def test_commuting_blocks_of_two_are_mixed_pairs() -> None:
    lie = build("rotary_lie", block_size=2)
    coords = 30 * torch.randn(1, 5, 3, dtype=torch.float64)
    angles = torch.einsum("bna,hgpa->bhngp", coords, lie.frequencies.double())[..., 0]
    q = torch.randn(1, HEADS, 5, WIDTH, dtype=torch.float64)
    expected = rotate_pairs(q, torch.stack([angles.cos(), angles.sin()], -1))
    torch.testing.assert_close(lie(coords).rotate(q), expected, rtol=0, atol=1e-9)


# -- all of them ---------------------------------------------------------------------------------------

RELATIVE = [("rotary_axial", {}), ("rotary_mixed", {}), ("rotary_extent", {}), ("rotary_lie", {})]


@pytest.mark.parametrize(("name", "options"), RELATIVE)
def test_moving_all_coordinates_changes_no_output_in_half_precision(name: str, options: dict[str, Any]) -> None:
    encoding = build(name, "scanner_mm", **options)
    grid = VoxelGrid.from_spacing((3, 4, 2), (4.0, 5.0, 6.0))
    coords, layout = token_coordinates(grid, 1, "scanner_mm")[None], layout_of(grid, 1, "scanner_mm")
    q, k, v = torch.randn(3, 1, HEADS, 24, WIDTH).bfloat16()

    def output(coords: Tensor) -> Tensor:
        signal = encoding(coords, layout).to(q.device, torch.bfloat16)
        return attend(signal.rotate(q), signal.rotate(k), v).float().detach()

    assert float((output(coords + 890) - output(coords)).abs().max()) < 2e-2
    signal, moved = encoding(coords, layout), encoding(coords + 890, layout)
    a, b = q.double(), k.double()
    difference = moved.rotate(a) @ moved.rotate(b).mT - signal.rotate(a) @ signal.rotate(b).mT
    assert float(difference.detach().abs().max()) < 1e-3


@pytest.mark.parametrize("name", ["rotary_mixed", "rotary_extent", "rotary_dino"])
def test_a_head_too_narrow_for_three_axes_is_refused(name: str) -> None:
    frame = "fraction" if name == "rotary_dino" else "mm"
    with pytest.raises(ValueError, match=f"{name} needs head_dim >= 6 so that each of 3 axes has a pair, got 4"):
        build(name, frame, dim=8)
    build(name, frame, dim=12)


@pytest.mark.parametrize("shape", [(4, 4, 4), (2, 3, 4)])
@pytest.mark.parametrize("name", ["rotary_axial", "rotary_mixed", "rotary_extent", "rotary_lie"])
def test_no_two_tokens_have_one_code(name: str, shape: tuple[int, int, int]) -> None:
    encoding, grid = build(name), VoxelGrid.from_spacing(shape, 8.0)
    signal = encoding(token_coordinates(grid, 1, "mm")[None], layout_of(grid, 1, "mm"))
    code = signal.matrices if signal.rotary is None else signal.rotary
    rows = code[0].transpose(0, 1).flatten(1).detach()
    assert float((torch.cdist(rows, rows) + 9 * torch.eye(len(rows))).min()) > 0.05


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rotary_dino", {"base": 1.0}),
        ("rotary_dino", {"shift": -0.1}),
        ("rotary_dino", {"jitter": 0.9}),
        ("rotary_dino", {"rescale": float("inf")}),
        ("rotary_lie", {"generators": "some"}),
        ("rotary_lie", {"block_size": 3}),
        ("rotary_lie", {"block_size": 15}),
        ("rotary_lie", {"wavelengths_mm": (0.0, 1.0)}),
        ("rotary_mixed", {"wavelengths_mm": (5.0, 1.0)}),
    ],
)
def test_bad_options_are_named(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        build(name, "fraction" if name == "rotary_dino" else "mm", **options)


@pytest.mark.parametrize(
    ("name", "why"), [("rotary_dino", "its periods are"), ("rotary_extent", "has no extent along")]
)
def test_undefined_frames_are_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=rf"'{name}' is not defined in frame 'sequence'.*{why}"):
        build(name, "sequence")
