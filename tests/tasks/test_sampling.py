import pytest
import torch

from medattn import VoxelGrid, token_coordinates
from medattn.coordinates import CoordinateJitter
from medattn.tasks.acquisitions import ToldScan
from medattn.tasks.lookup import PositionLookup
from medattn.tasks.sampling import Appearance, CropSampler, evaluation_case, generator_for, training_batch
from medattn.tasks.subject import Scan

PLAIN = Appearance((-1.0, 1.0))


def coordinate_scan(shape=(30, 20, 12), spacing=(3.0, 4.0, 5.0)):
    """An image whose value is the R coordinate (scaled into the window); label 1 on the patient's right."""
    grid = VoxelGrid.from_spacing(shape, spacing, center_mm=(10.0, 20.0, 30.0))
    right = grid.to_world(grid.indices())[..., 0]
    image = (right / 100)[None].float()
    return Scan(image, (right > 10).long()[None], grid)


def sampler(**changes):
    settings = dict(appearance=PLAIN, jitter=CoordinateJitter(), crop=8, foreground=0.5, flip_probability=0.5)
    return CropSampler(**{**settings, **changes})


def test_generator_depends_on_its_key_alone():
    draws = [torch.rand(1, generator=generator_for(*key)).item() for key in [("a", 1), ("a", 1), ("a", 2), ("b", 1)]]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


def test_batches_are_functions_of_seed_and_step():
    scans = [coordinate_scan()]
    first, again, later = (training_batch(sampler(), scans, 3, 7, step) for step in (0, 0, 1))
    assert all(torch.equal(a.image, b.image) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a.image, b.image) for a, b in zip(first, later, strict=True))


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_crops_know_where_they_are_flipped_or_not(flip):
    for example in training_batch(sampler(flip_probability=flip), [coordinate_scan()], 6, 0, 0):
        where = example.told.to_world(example.told.indices())[..., 0]
        torch.testing.assert_close(example.image[0].double() * 100, where, atol=1e-4, rtol=0)
        assert torch.equal(example.labels[0], (where > 10).long())
        assert example.told.affine[0, 0] == (-3.0 if flip else 3.0)
        assert example.reference.fov_center_mm.tolist() == pytest.approx([10, 20, 30])
        assert example.origin_mm.tolist() == pytest.approx([10, 20, 30])


def test_coordinates_of_a_crop_lie_in_the_frame_of_the_whole_volume():
    example = training_batch(sampler(flip_probability=0.0), [coordinate_scan()], 1, 0, 0)[0]
    coords = token_coordinates(example.told, 4, "patient_mm", reference=example.reference, origin_mm=example.origin_mm)
    patches = example.told.patch_grid(4)
    assert torch.equal(coords[0] + example.origin_mm, patches.to_world((0, 0, 0)))


def test_a_scan_thinner_than_the_crop_gives_its_whole_axis():
    example = training_batch(sampler(crop=16), [coordinate_scan()], 1, 0, 0)[0]
    assert example.image.shape == (1, 16, 16, 12)


def test_foreground_one_centres_every_crop_on_a_class():
    scan = coordinate_scan()
    labels = torch.zeros_like(scan.labels)
    labels[0, 25, 15, 6] = 1
    scan = Scan(scan.image, labels, scan.grid)
    for example in training_batch(sampler(foreground=1.0), [scan], 5, 0, 0):
        assert example.labels.sum() == 1


def test_jitter_moves_the_frame_and_not_the_picture():
    still = training_batch(sampler(), [coordinate_scan()], 4, 0, 0)
    moved = training_batch(sampler(jitter=CoordinateJitter(40.0, 0.1)), [coordinate_scan()], 4, 0, 0)
    for a, b in zip(still, moved, strict=True):
        assert torch.equal(a.image, b.image) and torch.equal(a.labels, b.labels)
        shift = (b.origin_mm - a.origin_mm).abs()
        assert 0 < float(shift.max()) <= 40
        ratio = b.reference.spacing_mm / a.reference.spacing_mm
        assert float(ratio.min()) >= 1 / 1.1 - 1e-9 and float(ratio.max()) <= 1.1 + 1e-9


def test_appearance_without_changes_is_the_window():
    image = torch.tensor([-300.0, -250.0, 50.0, 350.0, 400.0]).reshape(1, 5, 1, 1)
    shown = Appearance((-250.0, 350.0)).show(image, generator_for("x"))
    torch.testing.assert_close(shown.flatten(), torch.tensor([-1.0, -1.0, 0.0, 1.0, 1.0]))


def test_appearance_noise_and_contrast_change_the_picture():
    image = torch.zeros(1, 4, 4, 4)
    for settings in ({"noise_sd_hu": 30.0}, {"contrast": 0.2}):
        shown = Appearance((-250.0, 350.0), **settings).show(image, generator_for("x"))
        assert not torch.equal(shown, Appearance((-250.0, 350.0)).show(image, generator_for("x")))


def test_evaluation_cases_are_the_same_for_every_arm_and_differ_by_case():
    told = ToldScan(coordinate_scan(), coordinate_scan().grid)
    look, jitter = Appearance((-1.0, 1.0), noise_sd_hu=0.1), CoordinateJitter(40.0, 0.1)
    a, b, c = (evaluation_case(told, look, jitter, 0, "iso", case) for case in (0, 0, 1))
    assert torch.equal(a.image, b.image) and torch.equal(a.origin_mm, b.origin_mm)
    assert not torch.equal(a.image, c.image) and not torch.equal(a.origin_mm, c.origin_mm)


def test_lookup_is_an_atlas_in_the_exact_frame_and_poor_in_a_jittered_one():
    scan, told = coordinate_scan((30, 20, 12)), coordinate_scan((30, 20, 12)).grid
    exact = PositionLookup([scan], 2, CoordinateJitter())
    found = exact.predict(told, told.fov_center_mm).argmax(0)
    assert (found == scan.labels[0]).float().mean() > 0.95
    shifted = exact.predict(told, told.fov_center_mm + torch.tensor([40.0, 0.0, 0.0], dtype=torch.float64)).argmax(0)
    assert (shifted == scan.labels[0]).float().mean() < 0.75


def test_lookup_sees_no_voxel_and_follows_the_patient_not_the_array():
    scan = coordinate_scan()
    flipped = scan.grid.flip(0)
    atlas = PositionLookup([scan], 2, CoordinateJitter())
    assert torch.equal(
        atlas.predict(flipped, flipped.fov_center_mm), atlas.predict(scan.grid, scan.grid.fov_center_mm).flip(1)
    )


def test_noise_differs_from_scan_to_scan():
    image = torch.zeros(1, 20, 20, 20)
    look = Appearance((-250.0, 350.0), noise_sd_hu=30.0)
    sds = [float(look.show(image, generator_for("x", n)).std()) * 300 for n in range(40)]
    assert 0 <= min(sds) < 8 and 22 < max(sds) <= 31


def test_an_examples_reference_is_the_told_grid_of_the_whole_volume():
    scan = coordinate_scan()
    for example in training_batch(sampler(jitter=CoordinateJitter(40.0, 0.1)), [scan], 4, 0, 0):
        assert example.reference.shape == scan.grid.shape
        torch.testing.assert_close(example.reference.spacing_mm, example.told.spacing_mm)
        assert not torch.allclose(example.reference.spacing_mm, scan.grid.spacing_mm)
