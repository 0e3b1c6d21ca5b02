"""A labelled volume as a subject."""

import math

import pytest
import torch

from medattn import VoxelGrid
from medattn.tasks.subject import VolumeSubject, paired_classes
from medattn.volumes import Volume


def turned(degrees: float) -> VoxelGrid:
    angle = math.radians(degrees)
    affine = torch.eye(4, dtype=torch.float64)
    affine[:2, :2] = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return VoxelGrid((6, 6, 6), affine)


def pair(image_grid: VoxelGrid, labels_grid: VoxelGrid) -> tuple[Volume, Volume]:
    labels = torch.arange(216).reshape(1, 6, 6, 6) % 4
    return Volume(labels.float(), image_grid, name="image"), Volume(labels, labels_grid, name="labels")


@pytest.mark.parametrize("noise", [1e-5, -1e-5, 0.0])
def test_rounding_in_the_affine_does_not_turn_labels_against_the_image(noise: float) -> None:
    """At 45 degrees the closest RAS axes of two affines that are equal to rounding may differ."""
    subject = VolumeSubject(*pair(turned(45.0), turned(45.0 + noise)), {"a": 1, "b": 2, "c": 3})
    scan = subject.acquire(subject.grid)
    assert torch.equal(scan.image, scan.labels.float())


def test_classes_are_numbered_in_the_order_given_and_the_rest_is_background() -> None:
    subject = VolumeSubject(*pair(turned(0), turned(0)), {"late": 3, "early": 1})
    scan = subject.acquire(subject.grid)
    expected = torch.tensor([0, 2, 0, 1])[scan.image.long()]
    assert torch.equal(scan.labels, expected)
    assert subject.class_names == ("late", "early")


def test_an_unknown_label_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"have no voxel of \{'spleen': 9\}; they hold \[0, 1, 2, 3\]"):
        VolumeSubject(*pair(turned(0), turned(0)), {"a": 1, "spleen": 9})


def test_image_and_labels_on_other_grids_are_an_error() -> None:
    with pytest.raises(ValueError, match="must lie on one grid"):
        VolumeSubject(*pair(turned(0), turned(10)), {"a": 1})


@pytest.mark.parametrize("classes", [{}, {"a": 1, "b": 1}, {"a": 0}])
def test_classes_are_distinct_labels_above_zero(classes) -> None:
    with pytest.raises(ValueError, match="distinct label values >= 1"):
        VolumeSubject(*pair(turned(0), turned(0)), classes)


def test_several_channels_and_nan_voxels_are_refused() -> None:
    image, labels = pair(turned(0), turned(0))
    with pytest.raises(ValueError, match="image must have one channel, got 2"):
        VolumeSubject(Volume(image.data.repeat(2, 1, 1, 1), image.grid), labels, {"a": 1})
    broken = image.data.clone()
    broken[0, 0, 0, 0] = math.nan
    with pytest.raises(ValueError, match="image must be finite"):
        VolumeSubject(Volume(broken, image.grid), labels, {"a": 1})


def test_the_fingerprint_follows_voxels_labels_place_classes_and_profile() -> None:
    image, labels = pair(turned(0), turned(0))
    moved = VoxelGrid((6, 6, 6), torch.diag(torch.tensor([1.0, 1.0, 2.0, 1.0])))
    prints = {
        VolumeSubject(image, labels, {"a": 1}).fingerprint,
        VolumeSubject(Volume(image.data + 1, image.grid), labels, {"a": 1}).fingerprint,
        VolumeSubject(image, Volume(labels.data.flip(3), image.grid), {"a": 1}).fingerprint,
        VolumeSubject(*pair(moved, moved), {"a": 1}).fingerprint,
        VolumeSubject(image, labels, {"b": 1}).fingerprint,
        VolumeSubject(image, labels, {"a": 1}, profile="gaussian").fingerprint,
    }
    assert len(prints) == 6
    assert VolumeSubject(image, labels, {"a": 1}).fingerprint in prints


def test_pairs_need_both_sides() -> None:
    assert paired_classes(("kidney_right", "liver", "kidney_left", "hip_left")) == {"kidney": (3, 1)}
