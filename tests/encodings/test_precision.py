"""Angles survive half precision, casts of the model, and origins far away."""

import math

import pytest
import torch
from torch import Tensor

from medattn import attend, create_encoding

CASTS = (
    [torch.bfloat16],
    [torch.float16],
    [torch.float64],
    [torch.bfloat16, torch.float32],
    [torch.float16, torch.bfloat16, torch.float64],
)


def near_a_thousand() -> Tensor:
    """(1, 10, 3) positions 1000 to 1009, which bfloat16 would merge into three."""
    steps = torch.arange(1000, 1010, dtype=torch.float64)
    assert len(steps.bfloat16().unique()) == 3
    return torch.stack([steps, -steps, steps / 2], dim=-1)[None]


@pytest.mark.parametrize("dtypes", CASTS, ids=str)
@pytest.mark.parametrize("name", ["sincos", "rotary_axial"])
def test_casting_a_model_leaves_its_angles_exact(name: str, dtypes: list[torch.dtype]) -> None:
    encoding = create_encoding(name, dim=24, num_heads=2, frame="mm")
    model = torch.nn.ModuleDict({"encoding": encoding, "other": torch.nn.Linear(2, 2)})
    coords = near_a_thousand()
    before = encoding(coords)
    frequencies = dict(encoding.named_buffers())["angles.frequency"].clone()
    for dtype in dtypes:
        model.to(dtype)
    assert model["other"].weight.dtype == dtypes[-1]
    assert torch.equal(dict(encoding.named_buffers())["angles.frequency"], frequencies)
    after = encoding(coords)
    for one, other in ((before.additive, after.additive), (before.rotary, after.rotary)):
        assert one is None or torch.equal(one, other)


@pytest.mark.parametrize("method", ["half", "bfloat16", "float", "double"])
def test_the_cast_methods_of_a_module_are_casts_too(method: str) -> None:
    encoding = create_encoding("rotary_axial", dim=24, num_heads=2, frame="mm")
    exact = create_encoding("rotary_axial", dim=24, num_heads=2, frame="mm")
    assert torch.equal(getattr(encoding, method)().angles.frequency, exact.angles.frequency)
    assert encoding.angles.axis.dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_angles_are_those_of_float64_to_a_ten_thousandth(dtype: torch.dtype) -> None:
    encoding = create_encoding("rotary_axial", dim=6, num_heads=1, frame="mm", wavelengths_mm=(16, 16)).bfloat16()
    coords = near_a_thousand()
    signal = encoding(coords.to(dtype)).to(coords.device, torch.bfloat16)
    assert signal.rotary is not None
    for n in range(10):
        for axis in range(3):
            angle = 2 * math.pi * float(coords[0, n, axis]) / 16
            cosine, sine = signal.rotary[0, 0, n, axis].tolist()
            assert cosine == pytest.approx(math.cos(angle), abs=1e-4)
            assert sine == pytest.approx(math.sin(angle), abs=1e-4)


@pytest.mark.parametrize("name", ["sincos", "rotary_axial"])
def test_autocast_touches_no_angle(name: str) -> None:
    encoding = create_encoding(name, dim=24, num_heads=2, frame="mm")
    coords = near_a_thousand().float()
    before = encoding(coords)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = encoding(coords)
    for one, other in ((before.additive, inside.additive), (before.rotary, inside.rotary)):
        assert one is None or torch.equal(one, other)


@pytest.mark.parametrize("offset", [890.0, -890.0])
def test_moving_all_coordinates_by_890_mm_changes_no_rotary_output(offset: float) -> None:
    torch.manual_seed(0)
    encoding = create_encoding("rotary_axial", dim=48, num_heads=2, frame="scanner_mm")
    coords, (q, k, v) = 100 * torch.randn(1, 20, 3, dtype=torch.float64), torch.randn(3, 1, 2, 20, 24)

    def output(coords: Tensor, dtype: torch.dtype) -> Tensor:
        signal = encoding(coords).to(q.device, dtype)
        return attend(signal.rotate(q.to(dtype)), signal.rotate(k.to(dtype)), v.to(dtype)).float()

    exact = output(coords, torch.float32)
    assert float((output(coords + offset, torch.float32) - exact).abs().max()) < 1e-5
    assert float((output(2 * coords, torch.float32) - exact).abs().max()) > 0.1
    for dtype in (torch.bfloat16, torch.float16):  # no further from the truth than rounding puts it anyway
        rounding = (output(coords, dtype) - exact).abs().max()
        assert float((output(coords + offset, dtype) - exact).abs().max()) < 2 * float(rounding)
