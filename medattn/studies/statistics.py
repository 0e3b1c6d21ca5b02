"""What n paired differences can show: the exact sign-flip test, its floor, and an interval for the mean.

The units are seeds (or cases), never voxels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_EXACT = 20  # 2^20 sign patterns: under a second
MIN_INTERVAL = 3  # an interval from two values is wider than it is informative


def sign_flip_p(differences: ArrayLike) -> float:
    """Exact two-sided p-value of the mean of paired differences under random signs.

    Under the null each difference is as likely to have the other sign. All 2^n sign patterns are counted: p is the
    share of them whose mean is at least as far from 0 as the one observed. Means closer than 1e-12 of the mean
    magnitude count as equal.

    Args:
        differences: (n,) finite values, 1 <= n <= 20.

    Raises:
        ValueError: for a wrong shape, a value that is not finite, or n outside 1 to 20.
    """
    values = _checked(differences)
    if len(values) > MAX_EXACT:
        raise ValueError(f"an exact sign-flip test takes at most {MAX_EXACT} differences, got {len(values)}")
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    slack = 1e-12 * float(np.abs(values).sum())
    return float(np.mean(np.abs(sums) >= abs(float(values.sum())) - slack))


def smallest_attainable_p(n: int) -> float:
    """2 / 2^n: what the sign-flip test gives if all ``n`` differences have one sign.

    Raises:
        ValueError: for n < 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    return 2.0 / 2.0**n


def seeds_needed(level: float) -> int:
    """The fewest differences with which the sign-flip test can reach p <= ``level``: 6 for 0.05."""
    if not 0 < level <= 1:
        raise ValueError(f"level must be in (0, 1], got {level}")
    return max(1, math.ceil(1 - math.log2(level)))


def mean_interval(differences: ArrayLike, level: float = 0.95) -> tuple[float, float] | None:
    """Student's t interval of the mean, mean +- t s / sqrt(n); ``None`` for fewer than 3 differences.

    It speaks of the variation among the units given (seeds), and assumes that they scatter like a normal distribution.
    """
    values = _checked(differences)
    n = len(values)
    if n < MIN_INTERVAL:
        return None
    half = student_t_quantile(0.5 + level / 2, n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return float(values.mean()) - half, float(values.mean()) + half


def student_t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t for a probability in [0.5, 1).

    With t = sqrt(degrees) tan(a), P(|T| < t) is the share of the integral of cos^(degrees - 1) over [0, pi/2] that lies
    below a; the integral is taken by the trapezoid rule on 200,001 points.
    """
    if not 0.5 <= probability < 1 or degrees < 1:
        raise ValueError(f"need 0.5 <= probability < 1 and degrees >= 1, got {probability} and {degrees}")
    angles = np.linspace(0, np.pi / 2, 200_001)
    density = np.cos(angles) ** (degrees - 1)
    area = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.sqrt(degrees) * math.tan(float(np.interp(2 * probability - 1, area / area[-1], angles)))


@dataclass(frozen=True)
class PairedDifference:
    """First minus second, seed by seed, over the seeds that both have.

    Attributes:
        seeds: in ascending order, (n,).
        first, second, values: (n,) scores and their differences.
    """

    seeds: tuple[int, ...]
    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(a - b for a, b in zip(self.first, self.second, strict=True))

    @property
    def mean(self) -> float:
        """Mean difference; NaN without a seed in common."""
        return float(np.mean(self.values)) if self.seeds else math.nan

    @property
    def p(self) -> float | None:
        """Exact sign-flip p; ``None`` where the test is not defined (no seed in common, or more than 20)."""
        return sign_flip_p(self.values) if 1 <= len(self.seeds) <= MAX_EXACT else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean; ``None`` for fewer than 3 seeds."""
        return mean_interval(self.values) if len(self.seeds) >= MIN_INTERVAL else None

    @property
    def agrees(self) -> bool:
        """Every seed's difference has the same sign."""
        return len({float(np.sign(v)) for v in self.values}) == 1


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> PairedDifference:
    """Pair two arms' scores by seed; seeds that one lacks, or where a score is NaN, are left out."""
    seeds = sorted(s for s in first.keys() & second.keys() if math.isfinite(first[s]) and math.isfinite(second[s]))
    return PairedDifference(tuple(seeds), tuple(first[s] for s in seeds), tuple(second[s] for s in seeds))


def mean_of(values: Sequence[float]) -> float:
    """Mean of the finite ones of ``values``; NaN if there is none."""
    finite = [v for v in values if math.isfinite(v)]
    return sum(finite) / len(finite) if finite else math.nan


def _checked(differences: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(f"differences must be a non-empty list of finite numbers, got {differences!r}")
    return values
