import math

import numpy as np
import pytest
import torch

from medattn.geometry import VoxelGrid
from medattn.phantoms import Ellipsoid, Scene
from tests.geometry.grids import random_grid
from tests.phantoms.scenes import crowd, random_rotation

BALL = Ellipsoid((10, 20, 30), (5, 5, 5), 100.0, 3)
SPOT = Ellipsoid((10, 20, 32), (1, 1, 1), -50.0, 1)


def test_sample_gives_intensity_and_label_at_each_point() -> None:
    points = [[[10, 20, 30], [14.9, 20, 30]], [[15.1, 20, 30], [10, 20, 32]]]
    intensity, label = Scene(-1000.0, (BALL, SPOT)).sample(points)
    assert intensity.tolist() == [[100, 100], [-1000, -50]]
    assert label.tolist() == [[3, 3], [0, 1]]
    assert intensity.dtype == torch.float32 and label.dtype == torch.int64


def test_a_later_ellipsoid_paints_over_an_earlier_one() -> None:
    intensity, label = Scene(-1000.0, (SPOT, BALL)).sample([10, 20, 32])
    assert (intensity.item(), label.item()) == (100, 3)


def test_semi_axes_follow_the_rotation() -> None:
    quarter_about_s = ((0, -1, 0), (1, 0, 0), (0, 0, 1))
    scene = Scene(0.0, (Ellipsoid((0, 0, 0), (9, 3, 1), 1.0, rotation=quarter_about_s),))
    assert scene.sample([[0, 8, 0], [0, -8, 0], [8, 0, 0], [0, 0, 2]])[0].tolist() == [1, 1, 0, 0]


def test_points_on_the_surface_are_inside_from_every_direction() -> None:
    rng = np.random.default_rng(0)
    points = np.stack([random_rotation(rng) @ [1.5, 2.0, 0.0] for _ in range(500)])
    _, label = Scene(0.0, (Ellipsoid((0, 0, 0), (2.5,) * 3, 1.0, 1),)).sample(points)
    assert label.tolist() == [1] * 500


def test_an_empty_scene_is_background_without_label() -> None:
    scene, grid = Scene(-1000.0, ()), VoxelGrid.from_spacing((2, 3, 4), 1.0)
    image, labels = scene.render(grid)
    assert torch.equal(image, torch.full((1, 2, 3, 4), -1000.0))
    assert torch.equal(labels, torch.zeros(1, 2, 3, 4, dtype=torch.int64))
    assert scene.sample([0, 0, 0])[0].item() == -1000


def test_the_text_of_a_scene_is_the_whole_scene() -> None:
    scene = crowd(0, random_grid(0))
    names = {"Scene": Scene, "Ellipsoid": Ellipsoid}
    assert eval(repr(scene), names) == scene
    nudged = Ellipsoid((math.nextafter(10, 11), 20, 30), (5, 5, 5), 100.0, 3)
    assert repr(Scene(0.0, (nudged,))) != repr(Scene(0.0, (BALL,)))


def test_bad_points_and_backgrounds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"points_mm must have shape \(..., 3\), got \(4, 2\)"):
        Scene(0.0, ()).sample(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="background must be finite, got nan"):
        Scene(math.nan, ())


@pytest.mark.parametrize("supersample", [0, -1, 1.5, (2, 2), True])
def test_supersample_must_be_positive_integers(supersample: object) -> None:
    with pytest.raises(ValueError, match="supersample must be positive integers"):
        Scene(0.0, ()).render(VoxelGrid.from_spacing((2, 3, 4), 1.0), supersample=supersample)
