"""Fourier features and the coordinate perceptron, by their formulas."""

import math

import pytest
import torch
from torch.nn import functional as F

from medattn import create_encoding

SIZES = {"dim": 7, "num_heads": 1}


def coords() -> torch.Tensor:
    return 60 * torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_features_are_cosines_then_sines_of_the_places_along_the_vectors() -> None:
    encoding = create_encoding("fourier", frame="index", reference_spacing_mm=(1.0, 2.0, 3.0), **SIZES)
    vectors, found = encoding.frequencies_per_mm.double(), encoding(coords()).additive
    assert vectors.shape == (3, 3)
    for b, n, p in torch.cartesian_prod(torch.arange(2), torch.arange(5), torch.arange(3)).tolist():
        x = coords()[b, n] * torch.tensor([1.0, 2.0, 3.0])
        angle = 2 * math.pi * float(x @ vectors[p])
        assert float(found[b, n, p]) == pytest.approx(math.cos(angle), abs=1e-6)
        assert float(found[b, n, 3 + p]) == pytest.approx(math.sin(angle), abs=1e-6)
    assert bool((found[..., 6] == 0).all())


def test_frequencies_have_the_stated_spread_on_each_axis() -> None:
    encoding = create_encoding("fourier", dim=4000, num_heads=1, frame="mm", wavelength_mm=(10.0, 20.0, 50.0))
    torch.testing.assert_close(encoding.frequencies_per_mm.std(0), torch.tensor([0.1, 0.05, 0.02]), rtol=0.05, atol=0)


def test_fixed_vectors_are_part_of_the_state_and_learned_ones_are_parameters() -> None:
    fixed, learned = (create_encoding("fourier", frame="mm", learned=value, **SIZES) for value in (False, True))
    assert list(fixed.parameters()) == []
    assert [name for name, _ in learned.named_parameters()] == ["frequencies_per_mm"]
    assert list(fixed.state_dict()) == list(learned.state_dict()) == ["frequencies_per_mm"]
    learned(coords()).additive[..., :6].sum().backward()
    assert float(learned.frequencies_per_mm.grad.abs().min()) > 0


def test_a_perceptron_can_follow() -> None:
    plain = create_encoding("fourier", frame="mm", **SIZES)
    deep = create_encoding("fourier", frame="mm", hidden_dim=5, **SIZES)
    deep.load_state_dict(plain.state_dict(), strict=False)
    assert sum(p.numel() for p in deep.parameters()) > 0
    assert not torch.allclose(plain(coords()).additive, deep(coords()).additive, atol=1e-2)
    assert deep.signal_macs((5, 2, 1)) > plain.signal_macs((5, 2, 1)) == 10 * 9


def test_the_coordinate_perceptron_is_two_layers_with_a_gelu() -> None:
    torch.manual_seed(0)
    encoding = create_encoding("mlp", frame="mm", hidden_dim=11, scale_mm=50.0, **SIZES)
    first, second = (m for m in encoding.modules() if isinstance(m, torch.nn.Linear))
    x = coords().float() / 50
    expected = F.linear(F.gelu(F.linear(x, first.weight, first.bias)), second.weight, second.bias)
    torch.testing.assert_close(encoding(coords()).additive.float(), expected, rtol=0, atol=1e-5)
    assert encoding.signal_macs((5, 2, 1)) == 10 * (3 * 11 + 11 * 7)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fourier", {"wavelength_mm": 0}),
        ("fourier", {"wavelength_mm": (1.0, float("nan"), 2.0)}),
        ("fourier", {"hidden_dim": 0}),
        ("fourier", {"reference_extent_mm": -1}),
        ("mlp", {"hidden_dim": 2.5}),
        ("mlp", {"scale_mm": 0.0}),
        ("mlp", {"reference_step_mm": float("inf")}),
    ],
)
def test_bad_options_are_named(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        create_encoding(name, frame="mm", **SIZES, **options)
