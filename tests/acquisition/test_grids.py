import math

import pytest
import torch
from torch import Tensor

from medattn.acquisition import flip_array, permuted_spacing_header, truncate
from medattn.geometry import VoxelGrid
from tests.geometry.grids import SEEDS, random_grid, world_of

OPPOSITE = {"L": "R", "R": "L", "P": "A", "A": "P", "I": "S", "S": "I"}
AXIS_OF = {"L": 0, "R": 0, "P": 1, "A": 1, "I": 2, "S": 2}


def places(grid: VoxelGrid) -> Tensor:
    """(3, I, J, K): data that say where each voxel is."""
    return world_of(grid).movedim(-1, 0)


def agrees(data: Tensor, grid: VoxelGrid) -> None:
    """Assert that every voxel of ``places`` data is where ``grid`` says."""
    torch.testing.assert_close(data, places(grid), atol=1e-9, rtol=0)


# -- flips ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_flip_keeps_every_value_in_its_place(seed: int, axis: int) -> None:
    grid = random_grid(seed)
    data, flipped = flip_array(places(grid), grid, axis)
    agrees(data, flipped)
    assert torch.equal(data, places(grid).flip(axis + 1))
    back, original = flip_array(data, flipped, axis)
    assert torch.equal(back, places(grid)) and original.is_close(grid, atol_mm=1e-9)


@pytest.mark.parametrize("axis", [-1, 3])
def test_a_flip_needs_an_array_axis(axis: int) -> None:
    grid = random_grid(0)
    with pytest.raises(ValueError, match=f"axis must be 0, 1 or 2, got {axis}"):
        flip_array(places(grid), grid, axis)


# -- truncation ----------------------------------------------------------------------------------------


def test_the_top_third_is_dropped_and_the_centre_moves_down() -> None:
    grid = VoxelGrid.from_spacing((4, 5, 12), (2.0, 2.0, 3.0), center_mm=(10, 20, 30))
    data, cut = truncate(places(grid), grid)
    assert cut.shape == (4, 5, 8)
    assert torch.equal(data, places(grid)[..., :8])
    assert cut.fov_center_mm.tolist() == pytest.approx([10, 20, 24])


@pytest.mark.parametrize("code", list(OPPOSITE))
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_left_keeps_its_place_and_what_is_gone_was_at_the_named_end(seed: int, code: str) -> None:
    grid = random_grid(seed)
    data, cut = truncate(places(grid), grid, axis_code=code, fraction=0.4)
    agrees(data, cut)
    assert cut.axcodes == grid.axcodes
    sign, world = (1 if code in "RAS" else -1), AXIS_OF[code]
    assert sign * (grid.fov_center_mm - cut.fov_center_mm)[world] > 0
    axis = next(a for a, letter in enumerate(grid.axcodes) if letter in (code, OPPOSITE[code]))
    expected = list(grid.shape)
    expected[axis] -= math.floor(0.4 * expected[axis] + 0.5)
    assert list(cut.shape) == expected


@pytest.mark.parametrize("codes", ["RAS", "LPI", "SAR", "IPL", "ARS"])
def test_the_same_slices_stay_however_the_array_is_stored(codes: str) -> None:
    grid = VoxelGrid.from_spacing((4, 5, 9), (2.0, 3.0, 4.0))
    axes, flips = grid.orientation_to(codes)
    stored = places(grid).permute(0, *(a + 1 for a in axes)).flip([f + 1 for f in flips])
    data, cut = truncate(stored, grid.reoriented(codes), axis_code="S", fraction=1 / 3)
    heights = torch.unique(data[2])
    assert heights.tolist() == [-16, -12, -8, -4, 0, 4]
    agrees(data, cut)


@pytest.mark.parametrize(("slices", "fraction", "left"), [(5, 0.5, 2), (16, 1 / 3, 11), (9, 0.0, 9), (3, 0.1, 3)])
def test_the_number_of_slices_is_rounded_a_half_up(slices: int, fraction: float, left: int) -> None:
    grid = VoxelGrid.from_spacing((2, 2, slices), 1.0)
    data, cut = truncate(places(grid), grid, fraction=fraction)
    assert data.shape == (3, 2, 2, left) and cut.shape == (2, 2, left)


@pytest.mark.parametrize("fraction", [1.0, -0.1, math.nan])
def test_a_fraction_must_leave_something(fraction: float) -> None:
    grid = random_grid(0)
    with pytest.raises(ValueError, match=f"fraction must be >= 0 and < 1, got {fraction}"):
        truncate(places(grid), grid, fraction=fraction)


def test_a_fraction_that_rounds_to_everything_is_refused() -> None:
    grid = VoxelGrid.from_spacing((2, 2, 1), 1.0)
    with pytest.raises(ValueError, match="fraction must leave at least one of the 1 slices along S, got 0.6"):
        truncate(places(grid), grid, fraction=0.6)


@pytest.mark.parametrize("code", ["s", "X", "", "RAS"])
def test_an_unknown_end_is_refused_with_the_valid_ones(code: str) -> None:
    grid = random_grid(0)
    with pytest.raises(ValueError, match=f"axis_code must be one of L, R, P, A, I, S, got '{code}'"):
        truncate(places(grid), grid, axis_code=code)


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 3, 4, 6), (1, 1, 3, 4, 5)])
def test_data_must_be_c_i_j_k_on_the_grid(shape: tuple[int, ...]) -> None:
    grid, data = VoxelGrid.from_spacing((3, 4, 5), 1.0), torch.zeros(shape)
    for change in (lambda: flip_array(data, grid, 0), lambda: truncate(data, grid)):
        with pytest.raises(ValueError, match=r"data must be \(C, I, J, K\) on a grid of shape \(3, 4, 5\), got"):
            change()


# -- wrong headers -------------------------------------------------------------------------------------


def test_a_wrong_header_tells_4_4_12_mm_as_12_4_4() -> None:
    grid = VoxelGrid.from_spacing((6, 7, 8), (4.0, 4.0, 12.0), center_mm=(1, 2, 3))
    told = permuted_spacing_header(grid)
    assert told.spacing_mm.tolist() == pytest.approx([12, 4, 4])
    assert told.shape == (6, 7, 8)
    assert told.fov_center_mm.tolist() == pytest.approx([1, 2, 3])


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 0, 2), (0, 2, 1), (1, 2, 0)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_wrong_header_permutes_the_spacing_and_nothing_else(seed: int, order: tuple[int, int, int]) -> None:
    grid = random_grid(seed)
    told = permuted_spacing_header(grid, order)
    torch.testing.assert_close(told.spacing_mm, grid.spacing_mm[list(order)])
    torch.testing.assert_close(told.direction, grid.direction, atol=1e-12, rtol=0)
    torch.testing.assert_close(told.fov_center_mm, grid.fov_center_mm, atol=1e-9, rtol=0)
    assert told.shape == grid.shape


@pytest.mark.parametrize("seed", SEEDS)
def test_three_cyclic_lies_tell_the_truth(seed: int) -> None:
    grid = told = random_grid(seed)
    for _ in range(3):
        told = permuted_spacing_header(told, (2, 0, 1))
    assert told.is_close(grid, atol_mm=1e-9)


@pytest.mark.parametrize("order", [(0, 1, 1), (1, 2, 3)])
def test_the_order_must_be_a_permutation(order: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"order must be a permutation of \(0, 1, 2\), got"):
        permuted_spacing_header(random_grid(0), order)


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 2.0), (-1, 0, 1)])
def test_the_order_must_be_three_axes(order: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="order must be >= 0 integers, one or three of them, got"):
        permuted_spacing_header(random_grid(0), order)
