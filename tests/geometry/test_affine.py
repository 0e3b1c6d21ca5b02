import nibabel as nib
import numpy as np
import pytest
import torch

from medattn.geometry import affine as ga
from tests.geometry.grids import SEEDS, random_affine

PERMUTED = np.array([[0, 0, 3, 10], [1, 0, 0, 20], [0, 2, 0, 30], [0, 0, 0, 1]])


def test_a_valid_affine_becomes_float64_and_is_the_callees_own() -> None:
    source = np.diag([1, 2, 3, 1]).astype(np.int16)
    kept = ga.validated_affine(source)
    source[0, 0] = 99
    assert kept.dtype == torch.float64
    assert kept.tolist() == [[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 3, 0], [0, 0, 0, 1]]


def test_the_callees_affine_does_not_share_memory_with_a_float64_tensor() -> None:
    source = torch.eye(4, dtype=torch.float64)
    kept = ga.validated_affine(source)
    source[0, 3] = 5.0
    assert kept[0, 3] == 0.0


def _eye_with(row: int, column: int, value: float) -> np.ndarray:
    matrix = np.eye(4)
    matrix[row, column] = value
    return matrix


@pytest.mark.parametrize(
    ("affine", "message"),
    [
        (np.eye(3), r"shape \(4, 4\), got \(3, 3\)"),
        (np.zeros((1, 4, 4)), r"shape \(4, 4\), got \(1, 4, 4\)"),
        (_eye_with(1, 2, float("nan")), "must be finite, got .*nan"),
        (_eye_with(0, 3, float("inf")), "must be finite, got .*inf"),
        (_eye_with(3, 0, 0.1), r"last row must be \(0, 0, 0, 1\), got \[0.1"),
        (_eye_with(3, 3, 2.0), r"last row must be \(0, 0, 0, 1\)"),
        (_eye_with(0, 0, 0.0), "singular: its column for axis i is zero"),
        (_eye_with(1, 1, 0.0), "singular: its column for axis j is zero"),
        (_eye_with(2, 2, 0.0), "singular: its column for axis k is zero"),
        (np.array([[1, 2, 0, 0], [1, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]), "singular: its columns are not indep"),
        (np.zeros((4, 4)) + np.diag([0, 0, 0, 1]), "singular"),
    ],
)
def test_an_unusable_affine_is_refused_with_its_reason(affine: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ga.validated_affine(affine)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_singularity_does_not_depend_on_the_unit(scale: float) -> None:
    affine = np.diag([scale, scale, scale, 1.0])
    assert torch.equal(ga.validated_affine(affine), torch.from_numpy(affine))


def test_spacing_is_column_norms_and_not_row_norms() -> None:
    assert ga.column_norms(torch.tensor(PERMUTED, dtype=torch.float64)).tolist() == [1.0, 2.0, 3.0]


def test_points_map_through_the_affine_whatever_their_batch_shape() -> None:
    affine = torch.tensor(PERMUTED, dtype=torch.float64)
    assert ga.apply_affine(affine, [1, 0, 0]).tolist() == [10.0, 21.0, 30.0]
    assert ga.apply_affine(affine, [0, 1, 0]).tolist() == [10.0, 20.0, 32.0]
    assert ga.apply_affine(affine, [0, 0, 1]).tolist() == [13.0, 20.0, 30.0]
    assert ga.apply_affine(affine, torch.zeros(2, 5, 3)).shape == (2, 5, 3)
    assert ga.apply_affine(affine, torch.zeros(0, 3)).shape == (0, 3)


def test_a_points_result_does_not_depend_on_the_points_beside_it() -> None:
    rng = np.random.default_rng(0)
    affine = torch.from_numpy(random_affine(rng))
    points = torch.from_numpy(rng.normal(size=(57, 3)) * 100)
    together = ga.apply_affine(affine, points)
    assert all(torch.equal(ga.apply_affine(affine, p), w) for p, w in zip(points, together, strict=True))


@pytest.mark.parametrize("shape", [(2,), (3, 2), (3, 4), ()])
def test_points_must_end_in_three(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"points must have shape \(\.\.\., 3\), got"):
        ga.apply_affine(torch.eye(4, dtype=torch.float64), torch.zeros(shape))


@pytest.mark.parametrize(
    ("columns", "codes"),
    [
        (np.diag([1, 1, 1]), ("R", "A", "S")),
        (np.diag([-1, -1, 1]), ("L", "P", "S")),
        (np.diag([2, -3, -4]), ("R", "P", "I")),
        (PERMUTED[:3, :3], ("A", "S", "R")),
        (np.array([[0, 0, -1], [0, -2, 0], [3, 0, 0]]), ("S", "P", "L")),
    ],
)
def test_axis_codes_name_the_end_an_axis_points_to(columns: np.ndarray, codes: tuple[str, ...]) -> None:
    assert ga.axis_codes(torch.tensor(columns, dtype=torch.float64)) == codes


@pytest.mark.parametrize("shear", [0.0, 0.3])
def test_axis_codes_agree_with_nibabel_on_any_affine(shear: float) -> None:
    rng = np.random.default_rng(7)
    affines = [random_affine(rng, shear=shear) for _ in range(300)]
    differing = [a for a in affines if ga.axis_codes(torch.from_numpy(a)) != nib.orientations.aff2axcodes(a)]
    assert differing == []


@pytest.mark.parametrize("seed", SEEDS)
def test_axis_codes_follow_a_permutation_and_a_flip_of_the_axes(seed: int) -> None:
    affine = torch.from_numpy(random_affine(np.random.default_rng(seed)))
    i, j, k = ga.axis_codes(affine)
    opposite = dict(zip("RLAPSI", "LRPAIS", strict=True))
    assert ga.axis_codes(affine[:, [2, 0, 1, 3]]) == (k, i, j)
    assert ga.axis_codes(affine * torch.tensor([1.0, -1.0, 1.0, 1.0])) == (i, opposite[j], k)


def test_axis_codes_are_read_from_words_tuples_and_lower_case() -> None:
    assert ga.parse_axis_codes("RAS") == [(0, 1), (1, 1), (2, 1)]
    assert ga.parse_axis_codes(("S", "L", "P")) == [(2, 1), (0, -1), (1, -1)]
    assert ga.parse_axis_codes("lpi") == [(0, -1), (1, -1), (2, -1)]


@pytest.mark.parametrize("codes", ["RA", "RAA", "RLA", "RASS", "XYZ", "", "RASX", (1, 2, 3)])
def test_codes_that_name_no_three_axes_are_refused(codes: object) -> None:
    with pytest.raises(ValueError, match="axcodes must be one of each of L/R, P/A and I/S, such as 'RAS', got"):
        ga.parse_axis_codes(codes)


def test_scaling_and_translation_are_the_affines_they_say() -> None:
    assert ga.apply_affine(ga.translation((1, 2, 3)), (10, 10, 10)).tolist() == [11.0, 12.0, 13.0]
    assert ga.apply_affine(ga.scaling_translation((2, 3, -1), (1, 0, 5)), (10, 10, 10)).tolist() == [21.0, 30.0, -5.0]
