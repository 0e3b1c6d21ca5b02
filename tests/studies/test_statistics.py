"""The sign-flip test and the interval against numbers worked by hand and against scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from medattn.studies.statistics import (
    mean_interval,
    mean_of,
    paired_difference,
    seeds_needed,
    sign_flip_p,
    smallest_attainable_p,
    student_t_quantile,
)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([1.0, 2.0, 3.0], 0.25),  # only +++ and --- reach |sum| = 6: 2 of 8
        ([1.0, -1.0], 1.0),
        ([0.0, 0.0, 0.0], 1.0),
        ([0.5], 1.0),
        ([0.1, 0.2], 0.5),
        ([1.0, 2.0, -1.0], 0.75),  # |sum| >= 2: sums are 2, 4, -2, 0, 0, 2, -4, -2
        ([0.0, 1.0, 2.0], 0.5),  # a zero doubles every pattern: 4 of 8
        ([3.0, 3.0, 3.0, 3.0, 3.0, 3.0], 0.03125),
    ],
)
def test_sign_flip_p_counts_sign_patterns(differences: list[float], expected: float) -> None:
    assert sign_flip_p(differences) == expected


@pytest.mark.parametrize("n", [2, 3, 5, 8, 10])
def test_sign_flip_p_is_scipys_exact_permutation_test(n: int) -> None:
    rng = np.random.default_rng(n)
    first, second = rng.normal(0.3, 1, n), rng.normal(0, 1, n)
    reference = stats.permutation_test(
        (first, second), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip_p(first - second) == pytest.approx(reference.pvalue, abs=1e-12)


def test_sign_flip_p_ignores_order_sign_and_scale() -> None:
    values = np.random.default_rng(0).normal(0.4, 1, 7)
    p = sign_flip_p(values)
    assert 0 < p < 1
    assert sign_flip_p(values[::-1]) == p
    assert sign_flip_p(-values) == p
    assert sign_flip_p(1e-9 * values) == p


def test_equal_differences_that_rounding_tells_apart_count_as_equal() -> None:
    assert sign_flip_p([0.1, 0.2, 0.3]) == 0.25  # .1 + .2 + .3 differs from .3 + .2 + .1 in the last bit
    assert sign_flip_p([0.1, 0.2, -0.3]) == 1.0


@pytest.mark.parametrize(("n", "p"), [(1, 1.0), (2, 0.5), (3, 0.25), (5, 0.0625), (6, 0.03125), (10, 0.001953125)])
def test_smallest_p_is_reached_when_all_signs_agree(n: int, p: float) -> None:
    assert smallest_attainable_p(n) == p
    assert sign_flip_p(np.arange(1.0, n + 1)) == p


@pytest.mark.parametrize(("level", "n"), [(1.0, 1), (0.5, 2), (0.25, 3), (0.1, 5), (0.05, 6), (0.01, 8), (0.001, 11)])
def test_seeds_needed_is_the_first_n_whose_floor_is_below_the_level(level: float, n: int) -> None:
    assert seeds_needed(level) == n
    assert smallest_attainable_p(n) <= level
    assert n == 1 or smallest_attainable_p(n - 1) > level


@pytest.mark.parametrize("differences", [[], [[1.0, 2.0]], [1.0, math.nan], [math.inf], [1.0] * 21])
def test_what_cannot_be_tested_is_refused(differences: list[float]) -> None:
    with pytest.raises(ValueError, match="difference"):
        sign_flip_p(differences)


def test_smallest_p_needs_a_difference() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        smallest_attainable_p(0)


@pytest.mark.parametrize("degrees", [1, 2, 3, 9, 40])
def test_student_quantile_is_scipys(degrees: int) -> None:
    for probability in (0.5, 0.75, 0.975, 0.995):
        assert student_t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-6)


def test_interval_by_hand() -> None:
    # mean 2, s = 1, n = 3: half width = 4.302653 / sqrt(3) = 2.484138
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((-0.484138, 4.484138), abs=1e-5)


def test_no_interval_from_fewer_than_three() -> None:
    assert mean_interval([1.0, 2.0]) is None


def test_pairs_are_made_by_seed() -> None:
    pair = paired_difference({0: 0.5, 1: 0.75, 3: 1.0}, {1: 0.5, 0: 0.375, 2: 0.0})
    assert pair.seeds == (0, 1)
    assert pair.values == (0.125, 0.25)
    assert pair.mean == 0.1875
    assert pair.p == 0.5
    assert pair.interval is None
    assert pair.agrees


def test_a_missing_score_takes_its_pair_out() -> None:
    pair = paired_difference({0: math.nan, 1: 0.5}, {0: 0.5, 1: 0.75})
    assert (pair.seeds, pair.values) == ((1,), (-0.25,))


def test_no_seed_in_common_gives_no_number() -> None:
    pair = paired_difference({0: 0.5}, {1: 0.5})
    assert pair.seeds == ()
    assert math.isnan(pair.mean)
    assert pair.p is None


def test_seeds_disagree_when_signs_differ_or_one_is_zero() -> None:
    assert not paired_difference({0: 0.5, 1: 0.25}, {0: 0.25, 1: 0.5}).agrees
    assert not paired_difference({0: 0.5, 1: 0.5}, {0: 0.25, 1: 0.5}).agrees


def test_mean_of_leaves_out_what_is_missing() -> None:
    assert mean_of([1.0, math.nan, 2.0]) == 1.5
    assert math.isnan(mean_of([]))
