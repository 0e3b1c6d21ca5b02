import math

import pytest
import torch
from monai.metrics import compute_dice

from medattn.tasks.scores import merge_sides, score_classes
from medattn.tasks.subject import paired_classes

NAMES = ("liver", "kidney_left", "kidney_right", "aorta")


def test_pairs_are_found_by_name():
    assert paired_classes(NAMES) == {"kidney": (2, 3)}
    assert paired_classes(("kidney_left", "hip_right")) == {}


def probabilities_of(chosen, classes=5):
    return torch.nn.functional.one_hot(chosen, classes).movedim(-1, 0).float()


def test_worked_scores():
    truth = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2, 3, 3]).reshape(10, 1, 1)
    chosen = torch.tensor([0, 1, 1, 1, 2, 3, 3, 0, 3, 2]).reshape(10, 1, 1)
    liver, left, right, aorta = score_classes(truth, probabilities_of(chosen), NAMES)
    assert liver.dice == liver.merged_dice == pytest.approx(4 / 5)
    assert (liver.pair, liver.side_voxels, liver.swapped_voxels) == ("", None, None)
    assert (left.truth_voxels, left.predicted_voxels, left.overlap_voxels) == (4, 2, 1)
    assert left.dice == pytest.approx(2 / 6) and right.dice == pytest.approx(2 / 5)
    assert left.merged_dice == right.merged_dice == pytest.approx(2 * 5 / (6 + 5))
    assert (left.side_voxels, left.swapped_voxels) == (3, 2)
    assert (right.side_voxels, right.swapped_voxels) == (2, 1)
    assert math.isnan(aorta.dice) and math.isnan(aorta.merged_dice)


def test_a_structure_split_between_its_sides_is_found_though_neither_side_wins():
    truth = torch.tensor([2, 3]).reshape(2, 1, 1)
    split = torch.tensor([0.4, 0.0, 0.31, 0.29, 0.0])[:, None, None, None].expand(5, 2, 1, 1)
    left, right = score_classes(truth, split, NAMES)[1:3]
    assert left.dice == right.dice == 0.0
    assert left.merged_dice == right.merged_dice == 1.0
    assert (left.side_voxels, left.swapped_voxels, right.side_voxels, right.swapped_voxels) == (1, 0, 1, 1)


def test_a_structure_that_is_not_there_has_no_dice_whether_predicted_or_not():
    truth = torch.tensor([0, 1]).reshape(2, 1, 1)
    for chosen in (torch.tensor([0, 1]), torch.tensor([4, 1])):
        aorta = score_classes(truth, probabilities_of(chosen.reshape(2, 1, 1)), NAMES)[3]
        assert math.isnan(aorta.dice) and math.isnan(aorta.merged_dice)
    assert (aorta.truth_voxels, aorta.predicted_voxels) == (0, 1)


def test_merging_adds_each_pair_and_nothing_else():
    merged = merge_sides(torch.tensor([0.1, 0.2, 0.3, 0.25, 0.15]), NAMES)
    torch.testing.assert_close(merged, torch.tensor([0.1, 0.2, 0.55, 0.0, 0.15]))


def test_a_structure_that_is_only_missed_scores_zero_not_nan():
    truth = torch.tensor([1, 0]).reshape(2, 1, 1)
    assert score_classes(truth, probabilities_of(torch.zeros_like(truth), 2), ("liver",))[0].dice == 0.0


def test_dice_equals_monai():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 5, (6, 7, 8), generator=generator)
    probabilities = torch.rand(5, 6, 7, 8, generator=generator)
    prediction = probabilities_of(probabilities.argmax(0))
    expected = compute_dice(prediction[None], probabilities_of(truth)[None], include_background=False)[0]
    mine = [score.dice for score in score_classes(truth, probabilities, NAMES)]
    torch.testing.assert_close(torch.tensor(mine), expected, atol=1e-6, rtol=0)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"probabilities must be \(2, 3, 1, 1\) for this truth, got \(3, 3, 1, 1\)"):
        score_classes(torch.zeros(3, 1, 1), torch.zeros(3, 3, 1, 1), ("liver",))
