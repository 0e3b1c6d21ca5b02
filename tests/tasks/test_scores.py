import math

import pytest
import torch
from monai.metrics import compute_dice

from medattn.tasks.scores import confusion_matrix, score_classes
from medattn.tasks.subject import paired_classes

NAMES = ("liver", "kidney_left", "kidney_right", "aorta")


def test_pairs_are_found_by_name():
    assert paired_classes(NAMES) == {"kidney": (2, 3)}
    assert paired_classes(("kidney_left", "hip_right")) == {}


def test_confusion_matrix_counts_truth_in_rows():
    truth, prediction = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, 2, 2])
    assert confusion_matrix(truth, prediction, 3).tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 1]]


def test_worked_scores():
    truth = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2, 3, 3])
    prediction = torch.tensor([0, 1, 1, 1, 2, 3, 3, 0, 3, 2])
    liver, left, right, aorta = score_classes(truth, prediction, NAMES)
    assert liver.dice == liver.merged_dice == pytest.approx(4 / 5)
    assert (liver.pair, liver.side_voxels, liver.swapped_voxels) == ("", None, None)
    assert (left.truth_voxels, left.predicted_voxels, left.overlap_voxels) == (4, 2, 1)
    assert left.dice == pytest.approx(2 / 6) and right.dice == pytest.approx(2 / 5)
    assert left.merged_dice == right.merged_dice == pytest.approx(2 * 5 / (6 + 5))
    assert (left.side_voxels, left.swapped_voxels) == (3, 2)
    assert (right.side_voxels, right.swapped_voxels) == (2, 1)
    assert math.isnan(aorta.dice) and math.isnan(aorta.merged_dice)


def test_a_structure_that_is_only_missed_scores_zero_not_nan():
    scores = score_classes(torch.tensor([1, 0]), torch.tensor([0, 0]), ("liver",))
    assert scores[0].dice == 0.0


def test_dice_equals_monai():
    generator = torch.Generator().manual_seed(0)
    truth, prediction = (torch.randint(0, 5, (1, 6, 7, 8), generator=generator) for _ in range(2))
    onehot = [torch.nn.functional.one_hot(x, 5).movedim(-1, 1).float() for x in (prediction, truth)]
    expected = compute_dice(*onehot, include_background=False)[0]
    mine = [score.dice for score in score_classes(truth, prediction, NAMES)]
    torch.testing.assert_close(torch.tensor(mine), expected, atol=1e-6, rtol=0)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"one shape, got \(2,\), \(3,\)"):
        confusion_matrix(torch.zeros(2), torch.zeros(3), 2)
