import math

import pytest
import torch

from medattn import VoxelGrid
from medattn.tasks.acquisitions import Acquisition, acquire, acquire_cached, training_spacings
from medattn.tasks.subject import Scan

PLAN = dict(range_mm=(3.5, 6.5), held_out_mm=(4.3, 4.7), stretched_fraction=2 / 3, max_stretch=2.5)


class CountingSubject:
    """Value of a voxel = its R coordinate in mm; label 1 where R > 0."""

    class_names = ("right",)
    fingerprint = "counting"

    def __init__(self):
        self.grid = VoxelGrid.from_spacing((24, 20, 16), 3.0)
        self.calls = 0

    def acquire(self, target):
        self.calls += 1
        image = target.to_world(target.indices())[..., 0][None].float()
        return Scan(image, (image > 0).long(), target)


def test_training_spacings_hold_out_the_gap_and_stretch_two_thirds_on_one_axis():
    spacings = training_spacings(60, seed=0, **PLAN)
    stretched = [s for s in spacings if len(set(s)) == 2]
    isotropic = [s for s in spacings if len(set(s)) == 1]
    assert (len(stretched), len(isotropic)) == (40, 20)
    for spacing in spacings:
        base = min(spacing)
        assert 3.5 <= base <= 6.5 and not 4.3 < base < 4.7
        assert max(spacing) / base <= 2.5
        assert sorted(spacing)[0] == sorted(spacing)[1]
    assert {s.index(max(s)) for s in stretched} == {0, 1, 2}


def test_training_spacings_depend_on_the_seed_alone():
    assert training_spacings(5, seed=3, **PLAN) == training_spacings(5, seed=3, **PLAN)
    assert training_spacings(5, seed=3, **PLAN) != training_spacings(5, seed=4, **PLAN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"range_mm": (6.5, 3.5)}, r"range_mm must be two positive numbers.*\[6.5, 3.5\]"),
        ({"held_out_mm": (3.0, 7.0)}, "held_out_mm .* leaves nothing"),
        ({"max_stretch": 0.5}, "max_stretch must be >= 1"),
        ({"stretched_fraction": 1.5}, r"stretched_fraction in \[0, 1\], got 2.5, 1.5"),
    ],
)
def test_training_spacings_say_what_is_wrong(change, message):
    with pytest.raises(ValueError, match=message):
        training_spacings(5, seed=0, **{**PLAN, **change})


def test_flipped_acquisition_stores_the_same_scan_from_the_other_side():
    subject = CountingSubject()
    plain = acquire(subject, Acquisition("plain", (3.0, 3.0, 3.0)), None)
    flipped = acquire(subject, Acquisition("flipped", (3.0, 3.0, 3.0), flip_axis=0), None)
    assert torch.equal(flipped.scan.image, plain.scan.image.flip(1))
    assert torch.equal(flipped.scan.labels, plain.scan.labels.flip(1))
    world = flipped.scan.grid.to_world(flipped.scan.grid.indices())[..., 0]
    torch.testing.assert_close(flipped.scan.image[0].double(), world, atol=1e-4, rtol=0)
    assert flipped.told is flipped.scan.grid


def test_truncated_acquisition_lacks_the_top_third_and_moves_its_centre_down():
    subject = CountingSubject()
    whole = acquire(subject, Acquisition("whole", (3.0, 3.0, 3.0)), None).scan
    cut = acquire(subject, Acquisition("cut", (3.0, 3.0, 3.0), drop_superior=0.375), None).scan
    assert cut.grid.shape == (24, 20, 10)
    assert torch.equal(cut.image, whole.image[..., :10])
    drop = whole.grid.fov_center_mm - cut.grid.fov_center_mm
    torch.testing.assert_close(drop, torch.tensor([0.0, 0.0, 9.0], dtype=torch.float64))


def test_wrong_header_changes_what_is_told_and_nothing_else():
    subject = CountingSubject()
    honest = acquire(subject, Acquisition("honest", (3.0, 3.0, 9.0)), None)
    lying = acquire(subject, Acquisition("lying", (3.0, 3.0, 9.0), header_order=(2, 0, 1)), None)
    assert torch.equal(lying.scan.image, honest.scan.image)
    assert lying.scan.grid.spacing_mm.tolist() == pytest.approx([3, 3, 9])
    assert lying.told.spacing_mm.tolist() == pytest.approx([9, 3, 3])
    assert lying.told.shape == lying.scan.grid.shape
    torch.testing.assert_close(lying.told.fov_center_mm, lying.scan.grid.fov_center_mm)


def test_cache_returns_what_was_acquired_and_knows_grids_and_subjects_apart(tmp_path):
    subject = CountingSubject()
    grid, other = subject.grid.resampled(4.0), subject.grid.resampled((4.0, 4.0, 4.001))
    first, again = acquire_cached(subject, grid, tmp_path), acquire_cached(subject, grid, tmp_path)
    assert subject.calls == 1
    assert torch.equal(first.image, again.image) and torch.equal(first.labels, again.labels)
    assert again.labels.dtype == first.labels.dtype == torch.int64
    acquire_cached(subject, other, tmp_path)
    assert subject.calls == 2
    subject.fingerprint = "another"
    acquire_cached(subject, grid, tmp_path)
    assert subject.calls == 3
    assert math.isclose(float(first.image.mean()), 0.0, abs_tol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spacing_mm": (4.0, 0.0, 4.0)}, "x: spacing_mm must be positive and finite"),
        ({"flip_axis": 3}, "x: flip_axis must be 0, 1, 2 or none, got 3"),
        ({"drop_superior": 1.0}, r"x: drop_superior must be at least 0 and below 1, got 1\.0"),
        ({"header_order": (0, 0, 1)}, r"x: header_order must be a permutation of 0, 1, 2, got \(0, 0, 1\)"),
        ({"header_order": (0, 1)}, r"x: header_order must be a permutation of 0, 1, 2, got \(0, 1\)"),
    ],
)
def test_an_acquisition_that_cannot_be_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Acquisition(**{"name": "x", "spacing_mm": (4.0, 4.0, 4.0), **change})
