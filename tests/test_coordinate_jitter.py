import pytest
import torch

from medattn.coordinates import CoordinateJitter, token_coordinates
from medattn.geometry import VoxelGrid
from tests.geometry.grids import SEEDS, close, random_grid
from tests.tokens import PATCH, lps_like, tokens


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_equal_generators_give_equal_draws_and_others_differ() -> None:
    jitter = CoordinateJitter(shift_mm=40.0, scale=0.1)
    whole = random_grid(0)
    (told, origin), (again, same), (_, other) = (jitter.draw(whole, generator(s)) for s in (7, 7, 8))
    assert torch.equal(told.affine, again.affine)
    assert torch.equal(origin, same)
    assert not torch.equal(origin, other)


def test_a_generator_goes_on_from_draw_to_draw_whatever_the_settings() -> None:
    left, right = generator(1), generator(1)
    CoordinateJitter().draw(random_grid(0), left)
    CoordinateJitter(40.0, 0.1).draw(random_grid(0), right)
    assert torch.equal(left.get_state(), right.get_state())
    assert not torch.equal(left.get_state(), generator(1).get_state())


def test_no_jitter_tells_the_truth() -> None:
    for seed in SEEDS:
        whole = random_grid(seed)
        told, origin = CoordinateJitter().draw(whole, generator(seed))
        assert told.is_close(whole, atol_mm=1e-9)
        close(origin, whole.fov_center_mm)


def test_jitter_stays_within_its_bounds_and_uses_them() -> None:
    whole, source = random_grid(3), generator(0)
    draws = [CoordinateJitter(shift_mm=40.0, scale=0.1).draw(whole, source) for _ in range(400)]
    shifts = torch.stack([origin for _, origin in draws]) - whole.fov_center_mm
    factors = torch.stack([told.spacing_mm for told, _ in draws]) / whole.spacing_mm
    for values, low, high in ((shifts, -40.0, 40.0), (factors, 1 / 1.1, 1.1)):
        assert ((values >= low - 1e-9) & (values <= high + 1e-9)).all()
        margin = 0.05 * (high - low)
        assert (values.amin(0) < low + margin).all()
        assert (values.amax(0) > high - margin).all()
    close(factors.log().mean(0), torch.zeros(3), atol=0.01)
    correlation = torch.corrcoef(torch.cat([shifts, factors], dim=1).T)  # six independent numbers a draw
    assert float((correlation - torch.eye(6)).abs().max()) < 0.2


def test_jitter_keeps_centre_shape_and_direction() -> None:
    for seed in SEEDS:
        whole = random_grid(seed)
        told, _ = CoordinateJitter(shift_mm=40.0, scale=0.1).draw(whole, generator(seed))
        assert told.shape == whole.shape
        close(told.fov_center_mm, whole.fov_center_mm)
        close(told.direction, whole.direction)


def test_a_told_spacing_leaves_the_index_frame_alone_and_scales_mm() -> None:
    for seed in SEEDS:
        whole = VoxelGrid((8, 12, 9), random_grid(seed).affine)
        told, origin = CoordinateJitter(scale=0.1).draw(whole, generator(seed))
        factors = told.spacing_mm / whole.spacing_mm
        for frame, expected in (("index", torch.ones(3)), ("fraction", torch.ones(3)), ("mm", factors)):
            crop = told.crop((2, 4, 3), (8, 12, 6))
            seen = tokens(crop, (2, 4, 3), frame, reference=told, origin_mm=origin)
            close(seen, tokens(whole, (2, 4, 3), frame)[1:, 1:, 1:2] * expected)


def test_a_shift_moves_each_frame_by_the_same_millimetres() -> None:
    whole = lps_like()
    told, origin = CoordinateJitter(shift_mm=40.0).draw(whole, generator(5))
    shift = origin - whole.fov_center_mm
    assert float(shift.abs().min()) > 0.5
    along_axes = shift * torch.tensor([-1.0, 1.0, 1.0])  # axis 0 of this grid runs to the left
    for frame, expected in (("patient_mm", shift), ("mm", along_axes), ("index", along_axes / whole.spacing_mm)):
        moved = token_coordinates(told, PATCH, frame, origin_mm=origin)
        close(moved, token_coordinates(whole, PATCH, frame) - expected)


def test_rescaling_about_the_centre_multiplies_the_spacing() -> None:
    grid = lps_like().with_spacing(lps_like().spacing_mm * torch.tensor([2.0, 0.5, 1.0]))
    assert grid.spacing_mm.tolist() == [4.0, 0.5, 5.0]
    close(grid.fov_center_mm, [93.0, 55.5, 37.5])
    close(grid.to_world([0, 0, 0]), [93 + 14, 55.5 - 2.75, 20.0])


@pytest.mark.parametrize("name", ["shift_mm", "scale"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_jitter_settings_are_finite_and_not_negative(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be finite and >= 0, got {value!r}"):
        CoordinateJitter(**{name: value})
