import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from medattn.coordinates import SCANNER_ORIGIN_MM, Frame, token_coordinates
from medattn.geometry import VoxelGrid
from tests.geometry.grids import SEEDS, close, random_grid
from tests.tokens import PATCH, lps_like, tokens

SPATIAL = ("index", "fraction", "mm", "patient_mm", "scanner_mm")
CENTRED = ("index", "fraction", "mm", "patient_mm")


# -- what each frame says ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "first", "second", "last"),
    [
        ("index", (-2, -4, -3), (-2, -4, -1), (2, 4, 3)),
        ("fraction", (-1 / 4, -1 / 3, -3 / 8), (-1 / 4, -1 / 3, -1 / 8), (1 / 4, 1 / 3, 3 / 8)),
        ("mm", (-4, -4, -15), (-4, -4, -5), (4, 4, 15)),
        ("patient_mm", (4, -4, -15), (4, -4, -5), (-4, 4, 15)),
        ("scanner_mm", (97, 51.5, 22.5), (97, 51.5, 32.5), (89, 59.5, 52.5)),
    ],
)
def test_each_frame_on_a_non_cubic_grid(
    frame: str, first: Sequence[float], second: Sequence[float], last: Sequence[float]
) -> None:
    coords = token_coordinates(lps_like(), PATCH, frame)
    assert (coords.shape, coords.dtype) == ((24, 3), torch.float64)
    close(coords[0], first)
    close(coords[1], second)
    close(coords[-1], last)


def test_the_sequence_frame_counts_tokens() -> None:
    coords = token_coordinates(lps_like(), PATCH, "sequence")
    assert coords.dtype == torch.float64
    assert coords.tolist() == [[float(n)] for n in range(24)]


def test_token_centres_of_a_thick_slice_scan() -> None:
    grid = VoxelGrid((8, 12, 8), torch.diag(torch.tensor([1.0, 1.0, 5.0, 1.0])))
    coords = token_coordinates(grid, PATCH, Frame.SCANNER_MM)
    assert coords[0].tolist() == [1.5, 1.5, 2.5]
    assert coords[1].tolist() == [1.5, 1.5, 12.5]


@pytest.mark.parametrize("frame", SPATIAL)
def test_token_k_is_the_patch_that_raster_order_puts_there(frame: str) -> None:
    grid = lps_like()
    coords = token_coordinates(grid, PATCH, frame)
    steps = torch.stack([coords[12] - coords[0], coords[4] - coords[0], coords[1] - coords[0]])  # along i, j, k
    for k in range(24):
        i, j, n = np.unravel_index(k, (2, 3, 4))
        close(coords[k], coords[0] + i * steps[0] + j * steps[1] + n * steps[2])
    assert coords.unique(dim=0).shape == (24, 3)


@pytest.mark.parametrize("frame", SPATIAL)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_tokens_coordinate_is_the_mean_of_its_voxels(seed: int, frame: str) -> None:
    grid = VoxelGrid((4, 9, 4), random_grid(seed).affine)
    voxels = tokens(grid, (1, 1, 1), frame).reshape(2, 2, 3, 3, 1, 4, 3)
    close(tokens(grid, (2, 3, 4), frame), voxels.mean(dim=(1, 3, 5)))


@pytest.mark.parametrize("frame", SPATIAL)
def test_two_patch_sizes_agree_where_the_same_point_is(frame: str) -> None:
    grid = VoxelGrid((8, 16, 24), random_grid(1).affine)
    fine, coarse = tokens(grid, (4, 8, 2), frame), tokens(grid, (8, 16, 6), frame)
    close(fine.reshape(1, 2, 1, 2, 4, 3, 3).mean(dim=(1, 3, 5)), coarse)


@pytest.mark.parametrize("frame", CENTRED)
@pytest.mark.parametrize("seed", SEEDS)
def test_coordinates_are_centred_on_the_field_of_view(seed: int, frame: str) -> None:
    close(token_coordinates(random_grid(seed), 1, frame).mean(0), torch.zeros(3))


@pytest.mark.parametrize("shape", [(4, 5, 6), (1, 2, 8)])
def test_the_fraction_runs_from_minus_to_plus_a_half_edge_to_edge(shape: tuple[int, int, int]) -> None:
    coords = token_coordinates(VoxelGrid(shape, random_grid(2).affine), 1, "fraction")
    half_a_voxel = 0.5 / torch.tensor(shape, dtype=torch.float64)
    close(coords[0] - half_a_voxel, [-0.5, -0.5, -0.5])
    close(coords[-1] + half_a_voxel, [0.5, 0.5, 0.5])


@pytest.mark.parametrize("seed", SEEDS)
def test_mm_is_index_times_spacing_and_patient_mm_is_its_direction(seed: int) -> None:
    grid = random_grid(seed)
    index, mm, patient = (token_coordinates(grid, (2, 1, 3), f) for f in ("index", "mm", "patient_mm"))
    close(mm, index * grid.spacing_mm)
    close(patient, mm @ grid.direction.T)


def test_distances_of_a_sheared_scan_are_right_in_the_patient_only() -> None:
    affine = torch.eye(4, dtype=torch.float64)
    affine[1, 2] = 1.0  # k advances by (0, 1, 1) mm, i.e. sqrt(2) mm
    grid = VoxelGrid((1, 2, 2), affine)
    first, second = tokens(grid, (1, 1, 1), "mm")[0, 1, 0], tokens(grid, (1, 1, 1), "mm")[0, 0, 1]
    assert float((first - second).norm()) == pytest.approx(math.sqrt(3))
    first, second = tokens(grid, (1, 1, 1), "patient_mm")[0, 1, 0], tokens(grid, (1, 1, 1), "patient_mm")[0, 0, 1]
    assert float((first - second).norm()) == pytest.approx(1.0)


# -- crops, flips, permutations, oblique scans ---------------------------------------------------------


@pytest.mark.parametrize("frame", SPATIAL)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_crop_has_the_coordinates_it_has_in_the_whole(seed: int, frame: str) -> None:
    whole = VoxelGrid((8, 12, 9), random_grid(seed).affine)
    crop = whole.crop((2, 4, 3), (8, 12, 6))
    close(tokens(crop, (2, 4, 3), frame, reference=whole), tokens(whole, (2, 4, 3), frame)[1:, 1:, 1:2])


@pytest.mark.parametrize("frame", CENTRED)
def test_a_crop_without_its_reference_is_centred_on_itself(frame: str) -> None:
    whole = lps_like()
    crop = whole.crop((0, 0, 0), (4, 12, 8))
    close(token_coordinates(crop, PATCH, frame).mean(0), torch.zeros(3))
    shifted = token_coordinates(crop, PATCH, frame, reference=whole).mean(0)
    assert float(shifted.abs().max()) > 0.2


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_flipped_scan_keeps_patient_mm_and_negates_mm(seed: int, axis: int) -> None:
    grid = VoxelGrid((4, 6, 8), random_grid(seed).affine)
    sign = torch.ones(3)
    sign[axis] = -1.0
    for frame in ("patient_mm", "scanner_mm"):
        close(tokens(grid.flip(axis), (2, 3, 4), frame).flip(axis), tokens(grid, (2, 3, 4), frame))
    for frame in ("index", "fraction", "mm"):
        close(tokens(grid.flip(axis), (2, 3, 4), frame).flip(axis), tokens(grid, (2, 3, 4), frame) * sign)


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_a_permuted_scan_keeps_patient_mm_and_permutes_mm(axes: tuple[int, int, int]) -> None:
    grid, patch = VoxelGrid((4, 6, 8), random_grid(4).affine), (2, 3, 4)
    new_patch = [patch[a] for a in axes]
    for frame in ("patient_mm", "scanner_mm"):
        close(tokens(grid.permute(axes), new_patch, frame), tokens(grid, patch, frame).permute(*axes, 3))
    for frame in ("index", "fraction", "mm"):
        close(tokens(grid.permute(axes), new_patch, frame), tokens(grid, patch, frame).permute(*axes, 3)[..., axes])


def test_an_oblique_scan_of_the_same_head_keeps_patient_mm_at_the_same_physical_point() -> None:
    straight = VoxelGrid.from_spacing((9, 9, 9), 2.0, center_mm=(10, -40, 300))
    c, s = math.cos(math.pi / 6), math.sin(math.pi / 6)
    turn = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)
    affine = torch.eye(4, dtype=torch.float64)
    affine[:3, :3] = 2.0 * turn
    affine[:3, 3] = straight.fov_center_mm - affine[:3, :3] @ straight.center_index
    oblique = VoxelGrid((9, 9, 9), affine)
    close(token_coordinates(oblique, 1, "mm"), token_coordinates(straight, 1, "mm"))
    close(token_coordinates(oblique, 1, "patient_mm"), token_coordinates(straight, 1, "patient_mm") @ turn.T)
    physical = oblique.to_world([7, 2, 4])
    seen = tokens(oblique, (1, 1, 1), "patient_mm")[7, 2, 4]
    close(seen, physical - straight.fov_center_mm)
    close(seen, [2 * (3 * c + 2 * s), 2 * (3 * s - 2 * c), 0.0])


@pytest.mark.parametrize("frame", CENTRED)
@pytest.mark.parametrize("seed", SEEDS)
def test_where_the_scanner_puts_its_origin_does_not_matter(seed: int, frame: str) -> None:
    grid = random_grid(seed)
    moved = grid.affine.clone()
    moved[:3, 3] += torch.tensor([890.0, -445.0, 70.0])
    far = token_coordinates(VoxelGrid(grid.shape, moved), (2, 2, 1), frame)
    close(far, token_coordinates(grid, (2, 2, 1), frame))


# -- a chosen origin -----------------------------------------------------------------------------------


def test_the_scanners_origin_turns_patient_mm_into_scanner_mm() -> None:
    for seed in SEEDS:
        grid = random_grid(seed)
        patient = token_coordinates(grid, 2, "patient_mm", origin_mm=SCANNER_ORIGIN_MM)
        close(patient, token_coordinates(grid, 2, "scanner_mm"))


@pytest.mark.parametrize("frame", CENTRED)
def test_a_landmark_is_where_coordinates_are_zero(frame: str) -> None:
    for seed in SEEDS:
        grid = VoxelGrid((4, 6, 8), random_grid(seed).affine)
        landmark = grid.patch_grid((2, 3, 4)).to_world([1, 0, 1])
        shifted = tokens(grid, (2, 3, 4), frame, origin_mm=landmark)
        close(shifted[1, 0, 1], [0, 0, 0], atol=1e-9)
        plain = tokens(grid, (2, 3, 4), frame)
        close(shifted - shifted[0, 0, 0], plain - plain[0, 0, 0])


@pytest.mark.parametrize(
    ("frame", "first"),
    [
        ("index", (1.5, -4.5, -0.5)),
        ("fraction", (1.5 / 8, -4.5 / 12, -0.5 / 8)),
        ("mm", (3, -4.5, -2.5)),
        ("patient_mm", (-3, -4.5, -2.5)),
    ],
)
def test_coordinates_from_a_landmark(frame: str, first: Sequence[float]) -> None:
    close(token_coordinates(lps_like(), PATCH, frame, origin_mm=(100.0, 56.0, 25.0))[0], first)


@pytest.mark.parametrize("frame", CENTRED)
def test_an_origin_means_the_same_for_a_crop(frame: str) -> None:
    whole = VoxelGrid((8, 12, 9), random_grid(5).affine)
    crop = whole.crop((2, 4, 3), (8, 12, 6))
    point = whole.to_world([1.0, 2.0, 3.0])
    cropped = tokens(crop, (2, 4, 3), frame, reference=whole, origin_mm=point)
    close(cropped, tokens(whole, (2, 4, 3), frame, origin_mm=point)[1:, 1:, 1:2])


# -- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", ["millimetres", "MM", "", None, 3, ["mm"]])
def test_an_unknown_frame_is_refused_with_the_valid_ones(frame: object) -> None:
    valid = "sequence, index, fraction, mm, patient_mm, scanner_mm"
    with pytest.raises(ValueError, match=f"frame must be one of {valid}, got"):
        token_coordinates(lps_like(), PATCH, frame)


def test_a_frame_is_taken_by_name_or_as_itself() -> None:
    assert [frame.value for frame in Frame] == ["sequence", *SPATIAL]
    assert all(Frame.parse(frame.value) is frame and Frame.parse(frame) is frame for frame in Frame)
    assert [frame.value for frame in Frame if frame.is_array_aligned] == ["index", "fraction", "mm"]


@pytest.mark.parametrize("frame", ["sequence", "scanner_mm"])
def test_frames_with_an_origin_of_their_own_take_no_other(frame: str) -> None:
    with pytest.raises(ValueError, match=f"frame '{frame}' has its own origin; origin_mm must be None"):
        token_coordinates(lps_like(), PATCH, frame, origin_mm=(0, 0, 0))


@pytest.mark.parametrize("origin", [(1, 2), 5.0, (1, 2, float("nan")), (1, 2, float("inf")), torch.zeros(1, 3)])
def test_an_origin_is_one_finite_point(origin: object) -> None:
    with pytest.raises(ValueError, match=r"origin_mm must be one finite point \(3,\) in RAS\+ mm, got"):
        token_coordinates(lps_like(), PATCH, "mm", origin_mm=origin)


def test_a_patch_size_is_positive() -> None:
    with pytest.raises(ValueError, match="patch_size must be positive integers, one or three of them, got 0"):
        token_coordinates(lps_like(), 0, "mm")
