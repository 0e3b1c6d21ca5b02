import math

import pytest
import torch
from torch import Tensor

from medattn.acquisition import add_noise, change_contrast, window

SHAPE = (1, 64, 48, 80)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def values(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def close(actual: Tensor, *expected: float) -> None:
    torch.testing.assert_close(actual, values(*expected).to(actual.dtype), atol=1e-9, rtol=0)


# -- noise ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sd", [0.5, 30.0])
def test_noise_has_mean_0_and_the_sd_asked_for(sd: float) -> None:
    noise = add_noise(torch.full(SHAPE, 40.0, dtype=torch.float64), sd, seeded()) - 40
    assert noise.mean().item() == pytest.approx(0, abs=0.01 * sd)  # 5 standard errors
    assert noise.std().item() == pytest.approx(sd, rel=0.007)
    assert (noise.abs() < 2 * sd).double().mean().item() == pytest.approx(0.9545, abs=0.002)  # Gaussian


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_noise_is_white(axis: int) -> None:
    noise = add_noise(torch.zeros(SHAPE), 1.0, seeded())
    size = SHAPE[axis]
    product = noise.narrow(axis, 0, size - 1) * noise.narrow(axis, 1, size - 1)
    assert product.mean().item() == pytest.approx(0, abs=0.01)


def test_noise_of_sd_0_is_none_and_takes_as_many_numbers() -> None:
    image, quiet, loud = torch.rand(SHAPE, generator=seeded(1)), seeded(), seeded()
    assert torch.equal(add_noise(image, 0.0, quiet), image)
    add_noise(image, 30.0, loud)
    assert torch.equal(torch.rand(3, generator=quiet), torch.rand(3, generator=loud))


def test_the_generator_alone_decides_the_noise() -> None:
    image, state = torch.zeros(SHAPE), torch.get_rng_state()
    first = add_noise(image, 1.0, seeded(3))
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(1)
    assert torch.equal(add_noise(image, 1.0, seeded(3)), first)
    assert not torch.equal(add_noise(image, 1.0, seeded(4)), first)
    assert torch.equal(image, torch.zeros(SHAPE))


def test_noise_scales_with_sd_and_adds_to_the_image() -> None:
    image = torch.rand(SHAPE, generator=seeded(1), dtype=torch.float64)
    once, thrice = (add_noise(image, sd, seeded()) - image for sd in (1.0, 3.0))
    torch.testing.assert_close(thrice, 3 * once)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_noise_keeps_the_dtype(dtype: torch.dtype) -> None:
    noisy = add_noise(torch.zeros(8, dtype=dtype), 1.0, seeded())
    assert noisy.dtype == dtype
    assert noisy.abs().min() > 0


@pytest.mark.gpu
def test_a_cpu_generator_gives_the_same_noise_on_a_gpu() -> None:
    noisy = add_noise(torch.zeros(SHAPE, device="cuda"), 1.0, seeded())
    assert noisy.is_cuda
    assert torch.equal(noisy.cpu(), add_noise(torch.zeros(SHAPE), 1.0, seeded()))


@pytest.mark.parametrize("sd", [-1.0, math.nan, math.inf])
def test_an_impossible_sd_is_refused(sd: float) -> None:
    with pytest.raises(ValueError, match=f"sd must be finite and >= 0, in the image's unit, got {sd}"):
        add_noise(torch.zeros(3), sd, seeded())


# -- window --------------------------------------------------------------------------------------------


def test_window_maps_its_limits_to_minus_1_and_1_and_clips_beyond() -> None:
    close(window(values(-1000, -250, -100, 50, 200, 350, 3000), -250, 350), -1, -1, -0.5, 0, 0.5, 1, 1)


def test_window_of_minus_1_to_1_changes_nothing() -> None:
    image = values(-1, -0.3, 0, 1 / 3, 1)
    assert torch.equal(window(image, -1, 1), image)


def test_window_leaves_nan_to_be_seen() -> None:
    assert window(values(0, math.nan), -1, 1).isnan().tolist() == [False, True]


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (math.nan, 1), (0, math.inf)])
def test_an_empty_or_endless_window_is_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match=f"window must have finite limits with low < high, got low {low}, high {high}"):
        window(torch.zeros(3), low, high)


# -- contrast ------------------------------------------------------------------------------------------


def test_gain_is_about_the_middle_of_the_window() -> None:
    close(change_contrast(values(-0.25, 0, 0.125, 0.75), gain=2.0), -0.5, 0, 0.25, 1)


def test_offset_is_added_and_clipped() -> None:
    close(change_contrast(values(-1, 0, 0.25, 0.75), offset=0.5), -0.5, 0.5, 0.75, 1)


def test_gamma_bends_the_middle_and_leaves_black_and_white() -> None:
    close(change_contrast(values(-1, -0.5, 0, 0.5, 1), gamma=2.0), -1, -0.875, -0.5, 0.125, 1)
    close(change_contrast(values(-1, -0.875, -0.5, 0.125, 1), gamma=0.5), -1, -0.5, 0, 0.5, 1)


def test_gain_comes_before_offset_and_both_before_gamma() -> None:
    close(change_contrast(values(0.125), gain=2.0, offset=0.25, gamma=2.0), 0.125)


def test_no_change_is_bit_for_bit_none() -> None:
    image = 2 * torch.rand(SHAPE, generator=seeded()) - 1
    assert torch.equal(change_contrast(image), image)


@pytest.mark.parametrize("gamma", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(("gain", "offset"), [(3.0, 0.9), (0.2, -0.95)])
def test_contrast_stays_in_the_window_and_keeps_the_order(gain: float, offset: float, gamma: float) -> None:
    changed = change_contrast(torch.linspace(-1, 1, 101), gain=gain, offset=offset, gamma=gamma)
    assert changed.min() >= -1 and changed.max() <= 1
    assert (changed.diff() >= 0).all() and changed[-1] > changed[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 0.0}, "gamma must be finite and > 0, got 0.0"),
        ({"gamma": -1.0}, "gamma must be finite and > 0, got -1.0"),
        ({"gain": 0.0}, "gain must be finite and > 0, got 0.0"),
        ({"gain": math.nan}, "gain must be finite and > 0, got nan"),
        ({"offset": math.inf}, "offset must be finite, got inf"),
    ],
)
def test_impossible_contrast_is_refused_with_its_name(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change_contrast(torch.zeros(3), **change)


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8, torch.bool])
def test_images_must_be_floating_point(dtype: torch.dtype) -> None:
    image = torch.zeros(3, dtype=dtype)
    for change in (
        lambda: add_noise(image, 1.0, seeded()),
        lambda: window(image, 0, 1),
        lambda: change_contrast(image),
    ):
        with pytest.raises(TypeError, match=f"image must be floating point, got {dtype}"):
            change()
