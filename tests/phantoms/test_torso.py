import pytest
import torch
from torch import Tensor

from medattn.phantoms import TORSO_LABELS, Scene, torso_grid, torso_scene

PAIRS = ("kidney", "lung", "hip", "gluteus", "iliopsoas", "autochthon")
HU = {"liver": 60, "spleen": 50, "aorta": 150, "kidney": 140, "lung": -800, "hip": 500, "gluteus": 55}


@pytest.fixture(scope="module")
def torso() -> tuple[Tensor, Tensor]:
    """Image and labels (I, J, K) of seed 0 at 4.5 mm."""
    image, labels = torso_scene(0).render(torso_grid().resampled(4.5))
    return image[0], labels[0]


def centroid(labels: Tensor, name: str) -> list[float]:
    grid = torso_grid().resampled(4.5)
    return grid.to_world((labels == TORSO_LABELS[name]).nonzero()).mean(0).tolist()


def sided(scene: Scene, label: int) -> list[tuple[tuple[float, ...], tuple[float, ...], float]]:
    return [(e.center_mm, e.radii_mm, e.intensity) for e in scene.ellipsoids if e.label == label]


def test_field_of_view_is_360_x_300_x_330_mm_of_3_mm_voxels_about_0() -> None:
    grid = torso_grid()
    assert grid.shape == (120, 100, 110)
    assert grid.spacing_mm.tolist() == [3, 3, 3]
    assert grid.extent_mm.tolist() == [360, 300, 330]
    assert grid.fov_center_mm.tolist() == pytest.approx([0, 0, 0], abs=1e-12)
    assert grid.axcodes == ("R", "A", "S")


def test_there_are_15_labels_of_which_6_pairs() -> None:
    assert sorted(TORSO_LABELS.values()) == list(range(1, 16))
    assert set(TORSO_LABELS) == {"liver", "spleen", "aorta", *(f"{p}_{s}" for p in PAIRS for s in ("left", "right"))}


@pytest.mark.parametrize("seed", range(5))
def test_every_organ_has_100_voxels_at_4_5_mm_and_some_at_8_mm(seed: int) -> None:
    scene = torso_scene(seed)
    _, labels = scene.render(torso_grid().resampled(4.5))
    _, coarse = scene.render(torso_grid().resampled(8.0))
    counts, few = torch.bincount(labels.flatten(), minlength=16), torch.bincount(coarse.flatten(), minlength=16)
    assert len(counts) == len(few) == 16
    assert {name: int(counts[n]) for name, n in TORSO_LABELS.items() if counts[n] < 100} == {}
    assert {name: int(few[n]) for name, n in TORSO_LABELS.items() if few[n] < 1} == {}


@pytest.mark.parametrize("pair", PAIRS)
def test_left_is_where_r_is_negative(torso: tuple[Tensor, Tensor], pair: str) -> None:
    grid, (_, labels) = torso_grid().resampled(4.5), torso
    for name, sign in ((f"{pair}_left", -1), (f"{pair}_right", 1)):
        right = grid.to_world((labels == TORSO_LABELS[name]).nonzero())[:, 0] * sign
        assert right.min() > -5  # autochthon and psoas reach the spine
        assert right.mean() > 20


def test_organs_are_where_a_patient_has_them(torso: tuple[Tensor, Tensor]) -> None:
    _, labels = torso
    right, front, up = zip(*(centroid(labels, name) for name in TORSO_LABELS), strict=True)
    at = dict(zip(TORSO_LABELS, zip(right, front, up, strict=True), strict=True))
    assert at["liver"][0] > 30 and at["spleen"][0] < -70 and -25 < at["aorta"][0] < 0
    for side in ("left", "right"):
        heights = [at[f"{organ}_{side}"][2] for organ in ("lung", "kidney", "hip")]
        assert heights == sorted(heights, reverse=True)
        assert at[f"autochthon_{side}"][1] < at[f"kidney_{side}"][1] < at["liver"][1]
        assert at[f"gluteus_{side}"][1] < at[f"hip_{side}"][1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("pair", PAIRS)
def test_twins_mirror_each_other_to_1_mm_with_equal_size_and_intensity(pair: str, seed: int) -> None:
    scene = torso_scene(seed)
    left, right = (sided(scene, TORSO_LABELS[f"{pair}_{side}"]) for side in ("left", "right"))
    assert len(left) == len(right) > 0
    for (there, radii, intensity), (here, other_radii, other_intensity) in zip(left, right, strict=True):
        assert (radii, intensity) == (other_radii, other_intensity)
        assert there == pytest.approx((-here[0], here[1], here[2]), abs=1.0)


@pytest.mark.parametrize("pair", PAIRS)
def test_twins_look_alike_in_a_mirror(torso: tuple[Tensor, Tensor], pair: str) -> None:
    _, labels = torso  # a field of view that is symmetric about R = 0
    left, right = (labels == TORSO_LABELS[f"{pair}_left"], labels == TORSO_LABELS[f"{pair}_right"])
    overlap = 2 * int((left & right.flip(0)).sum()) / int(left.sum() + right.sum())
    assert overlap > 0.8


@pytest.mark.parametrize(("organ", "hu"), HU.items())
def test_organs_have_the_hu_of_their_tissue(torso: tuple[Tensor, Tensor], organ: str, hu: float) -> None:
    image, labels = torso
    for name in (organ, f"{organ}_left", f"{organ}_right"):
        if name in TORSO_LABELS:
            assert image[labels == TORSO_LABELS[name]].median().item() == hu


@pytest.mark.parametrize("seed", range(12))
def test_the_body_is_inside_the_field_of_view_on_all_four_sides(seed: int) -> None:
    grid, scene = torso_grid(), torso_scene(seed)
    (i, j, k), low = grid.shape, (0, 0, 0)
    for start, stop in ((low, (1, j, k)), ((i - 1, 0, 0), grid.shape), (low, (i, 1, k)), ((0, j - 1, 0), grid.shape)):
        image, _ = scene.render(grid.crop(start, stop))
        assert image.min() == image.max() == -1000


def test_the_body_is_cut_above_and_below(torso: tuple[Tensor, Tensor]) -> None:
    image, _ = torso
    for end in (image[..., 0], image[..., -1]):
        assert 0.3 < (end > -900).double().mean() < 0.7
    assert image.min() == -1000 and image.max() == 500


def test_the_seed_alone_decides_the_torso() -> None:
    before = torch.get_rng_state()
    first = torso_scene(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert torso_scene(3) == first
    assert torso_scene(4) != first
    assert torso_scene() == torso_scene(0)


def test_seeds_move_organs_by_a_few_mm() -> None:
    def liver(seed: int) -> Tensor:
        return torch.tensor(sided(torso_scene(seed), TORSO_LABELS["liver"])[0][0])

    moves = torch.stack([liver(seed) - liver(0) for seed in range(1, 9)]).abs()
    assert moves.max() < 12  # 2 x 3 mm, and 8 % of the distance to the centre
    assert moves.max(1).values.min() > 0.2
