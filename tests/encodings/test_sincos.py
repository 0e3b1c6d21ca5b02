"""Worked values of the additive sinusoids, and the identities that they are chosen for."""

import math

import pytest
import torch
from torch import Tensor

from medattn import create_encoding
from tests.conformance import THEORY

SINUSOID = THEORY["sinusoid"]


def features(coords: object, *, dim: int, frame: str, **options: object) -> Tensor:
    """(N, dim) float64 features of ``coords`` (N, 1 or 3)."""
    encoding = create_encoding("sincos", dim=dim, num_heads=1, frame=frame, **options)
    additive = encoding(torch.tensor(coords, dtype=torch.float64)[None]).additive
    assert additive is not None
    return additive[0]


def close(actual: Tensor, expected: object, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=atol)


def test_the_worked_sequence_values() -> None:
    assert (SINUSOID["d"], SINUSOID["t"]) == (4, 1.0)
    found = features([[1.0]], dim=4, frame="sequence")
    close(found[0], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)])
    close(found[0], SINUSOID["value"])
    close(features([[0.0], [2.0]], dim=4, frame="sequence")[0], [0, 1, 0, 1])


def test_a_displacement_is_a_rotation_of_each_pair() -> None:
    t, delta = 3.7, 2.2
    for pair, omega in enumerate(10000.0 ** (-2 * i / 8) for i in range(4)):
        at = features([[t]], dim=8, frame="sequence")[0, 2 * pair : 2 * pair + 2]
        angle = omega * delta
        turn = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64
        )
        moved = features([[t + delta]], dim=8, frame="sequence")[0, 2 * pair : 2 * pair + 2]
        torch.testing.assert_close(moved, turn @ at, rtol=0, atol=1e-12)


def test_the_inner_product_is_the_cosine_of_the_displacement() -> None:
    t, u = features([[5.0], [1.5]], dim=8, frame="sequence")
    for pair, omega in enumerate(10000.0 ** (-2 * i / 8) for i in range(4)):
        product = float(t[2 * pair : 2 * pair + 2] @ u[2 * pair : 2 * pair + 2])
        assert product == pytest.approx(math.cos(omega * 3.5), abs=1e-12)


def test_base_sets_the_frequencies_of_the_sequence_frame() -> None:
    close(features([[1.0]], dim=4, frame="sequence", base=100.0)[0, 2:], [math.sin(0.1), math.cos(0.1)])


def test_one_pair_an_axis_has_the_geometric_mean_wavelength() -> None:
    found = features([[12.5, 0.0, 25.0]], dim=6, frame="mm", wavelengths_mm=(10, 250))  # 50 mm
    close(found[0], [1, 0, 0, 1, 0, -1])


def test_wavelengths_are_log_spaced_from_shortest_to_longest_on_each_axis() -> None:
    dim, longest_quarter = 18, 62.5
    for axis in range(3):
        coords = [[0.0] * 3, [0.0] * 3]
        coords[0][axis], coords[1][axis] = 2.5, longest_quarter  # a quarter of 10 and of 250 mm
        found = features(coords, dim=dim, frame="mm", wavelengths_mm=(10, 250)).reshape(2, 3, 3, 2)
        close(found[0, axis, 0], [1, 0])
        close(found[0, axis, 1], [math.sin(math.pi / 10), math.cos(math.pi / 10)])  # 50 mm
        close(found[1, axis, 2], [1, 0])
        others = [a for a in range(3) if a != axis]
        close(found[:, others], [[[[0, 1]] * 3] * 2] * 2)


def test_index_coordinates_count_the_reference_spacing() -> None:
    found = features(
        [[5.0, 5.0, 2.0]], dim=6, frame="index", wavelengths_mm=(50, 50), reference_spacing_mm=(2.5, 5, 6.25)
    )
    close(found[0], [1, 0, 0, -1, 1, 0])  # 12.5, 25 and 12.5 mm of a wave of 50 mm


def test_fractions_count_the_reference_extent_and_the_longest_wave_by_default() -> None:
    extents = features(
        [[0.25, 0.5, -0.125]], dim=6, frame="fraction", wavelengths_mm=(50, 50), reference_extent_mm=(50, 50, 100)
    )
    close(extents[0], [1, 0, 0, -1, -1, 0])
    once = features([[0.25, 0.0, -0.25]], dim=12, frame="fraction", wavelengths_mm=(10, 250)).reshape(3, 2, 2)
    close(once[:, 1], [[1, 0], [0, 1], [-1, 0]])  # the longest wave spans the field of view once


@pytest.mark.parametrize("dim", [7, 9, 13])
def test_an_odd_last_channel_stays_zero(dim: int) -> None:
    found = features([[1.0, 2.0, 3.0], [40.0, 5.0, 6.0]], dim=dim, frame="mm")
    assert found.shape == (2, dim)
    assert found[:, -1].tolist() == [0, 0]
    assert bool((found[:, :-1].abs().sum(0) > 0).all())


@pytest.mark.parametrize("option", ["wavelengths_mm", "reference_spacing_mm", "reference_extent_mm", "base"])
@pytest.mark.parametrize("name", ["sincos", "rotary_axial"])
def test_every_option_has_an_effect_in_its_frame(name: str, option: str) -> None:
    frame, value = {
        "wavelengths_mm": ("mm", (20.0, 100.0)),
        "reference_spacing_mm": ("index", 2.0),
        "reference_extent_mm": ("fraction", 100.0),
        "base": ("sequence", 100.0),
    }[option]
    coords = torch.rand(1, 5, 1 if frame == "sequence" else 3, dtype=torch.float64) + 0.5
    plain = create_encoding(name, dim=24, num_heads=2, frame=frame)(coords)
    other = create_encoding(name, dim=24, num_heads=2, frame=frame, **{option: value})(coords)
    for one, two in ((plain.additive, other.additive), (plain.rotary, other.rotary)):
        assert one is None or float((one - two).abs().max()) > 0.05
