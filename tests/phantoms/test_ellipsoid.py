import math

import numpy as np
import pytest
import torch

from medattn.phantoms import Ellipsoid

SIN, COS = math.sin(0.3), math.cos(0.3)


def test_numbers_of_any_kind_become_plain_floats_and_ints() -> None:
    plain = Ellipsoid((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), 7.0, 8, ((0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)))
    swap = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    other = Ellipsoid(np.array([1, 2, 3]), torch.tensor([4, 5, 6]), np.float32(7), np.int64(8), swap)
    assert other == plain
    assert repr(other) == repr(plain)


def test_unit_sphere_map_divides_by_the_radii_along_the_rotated_axes() -> None:
    turned = Ellipsoid((0, 0, 0), (2, 4, 8), 0.0, rotation=((COS, -SIN, 0), (SIN, COS, 0), (0, 0, 1)))
    ends = torch.tensor([[2 * COS, 2 * SIN, 0], [-4 * SIN, 4 * COS, 0], [0, 0, 8]], dtype=torch.float64)
    mapped = ends @ turned.to_unit_sphere().T
    torch.testing.assert_close(mapped, torch.eye(3, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"center_mm": (0, 0)}, r"center_mm must be three numbers, got \(0, 0\)"),
        ({"center_mm": (0, math.nan, 0)}, "center_mm must be finite, got nan"),
        ({"radii_mm": (1, 0, 1)}, r"radii_mm must be positive, got \(1.0, 0.0, 1.0\)"),
        ({"radii_mm": (1, -2, 1)}, "radii_mm must be positive"),
        ({"radii_mm": (1, math.inf, 1)}, "radii_mm must be finite, got inf"),
        ({"intensity": math.nan}, "intensity must be finite, got nan"),
        ({"label": -1}, "label must be an integer >= 0, got -1"),
        ({"label": 1.5}, "label must be an integer >= 0, got 1.5"),
        ({"label": True}, "label must be an integer >= 0, got True"),
        ({"rotation": ((1, 0, 0), (0, 2, 0), (0, 0, 1))}, "rotation must be .* orthonormal"),
        ({"rotation": ((1, 0, 0), (0, 1, 0))}, r"rotation must be a \(3, 3\)"),
    ],
)
def test_an_impossible_ellipsoid_is_refused_with_its_field(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ellipsoid(**{"center_mm": (0, 0, 0), "radii_mm": (1, 1, 1), "intensity": 0.0, **change})
