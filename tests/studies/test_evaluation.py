"""What an arm is told at evaluation, and which way up the report's slices are."""

import pytest
import torch

from medattn import VoxelGrid
from medattn.coordinates import CoordinateJitter
from medattn.studies.build import build_data, build_subject
from medattn.studies.evaluation import _aspect, _slices, evaluate, lookup_rows
from medattn.tasks.sampling import Example
from tests.studies.tiny import tiny_run


class Recorder(torch.nn.Module):
    """Calls everything background, and keeps what it was told."""

    num_classes = 16

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[VoxelGrid, VoxelGrid, torch.Tensor]] = []
        self.images: list[torch.Tensor] = []

    def forward(self, volumes, grids, references, origins_mm):
        self.told += zip(grids, references, origins_mm, strict=True)
        self.images += volumes
        scores = [torch.zeros(16, *v.shape[1:]) for v in volumes]
        for score in scores:
            score[0] = 9.0
        return scores


@pytest.fixture(scope="module")
def data():
    config = tiny_run().config
    subject, _ = build_subject(config["data"])
    return build_data(subject, config)


def evaluated(data, *overrides):
    model = Recorder()
    rows, slices, aspects = evaluate(model, data, tiny_run(*overrides), "tiny", lambda: None)
    return model, rows, slices, aspects


def test_windows_are_told_the_header_and_rows_tell_the_truth(data):
    model, rows, _, _ = evaluated(data, "task.jitter_shift_mm=0", "task.jitter_scale=0")
    headers = {tuple(round(s) for s in reference.spacing_mm.tolist()) for _, reference, _ in model.told}
    assert headers == {(12, 12, 12), (24, 12, 12)}
    truths = {(row["evaluation"], row["spacing_i_mm"], row["spacing_k_mm"]) for row in rows}
    assert truths == {("iso_4_5", 12.0, 12.0), ("wrong_header", 12.0, 24.0)}


def test_windows_lie_in_the_whole_volume_and_measure_from_its_centre(data):
    model, *_ = evaluated(data, "task.jitter_shift_mm=0", "task.jitter_scale=0")
    for grid, reference, origin in model.told:
        torch.testing.assert_close(origin, reference.fov_center_mm)
        start = reference.to_index(grid.origin_mm)
        torch.testing.assert_close(start, start.round(), atol=1e-6, rtol=0)
        assert grid.shape <= reference.shape
    assert len({tuple(grid.origin_mm.tolist()) for grid, _, _ in model.told}) == len(model.told)


def test_the_frame_is_jittered_at_evaluation_as_in_training(data):
    model, *_ = evaluated(data)
    off = torch.stack([origin - reference.fov_center_mm for _, reference, origin in model.told]).abs()
    assert 0 < float(off.max()) <= 40
    factors = {round(float(reference.spacing_mm[0]) / 12, 4) for _, reference, _ in model.told}
    assert all(0.9 < f < 1.1 or 1.8 < f < 2.2 for f in factors) and not factors & {1.0, 2.0}


def test_every_arm_and_seed_is_shown_the_same_cases(data):
    first, again = (evaluated(data, *overrides)[0] for overrides in ((), ("model.depth=2",)))
    assert all(torch.equal(a, b) for a, b in zip(first.images, again.images, strict=True))


def test_all_background_scores_zero_and_counts_what_was_missed(data):
    _, rows, _, _ = evaluated(data)
    assert len(rows) == 2 * 15
    assert {row["dice"] for row in rows} == {0.0}
    assert all(row["truth_voxels"] > 0 and row["predicted_voxels"] == row["overlap_voxels"] == 0 for row in rows)
    assert all(row["side_voxels"] == 0 for row in rows if row["pair"])


@pytest.mark.parametrize("codes", ["RAS", "LPS", "SAL", "PIR"])
def test_slices_show_superior_up_and_the_patients_right_at_the_left(codes):
    grid = VoxelGrid.from_spacing((6, 5, 8), (2.0, 3.0, 4.0)).reoriented(codes)
    world = grid.to_world(grid.indices())
    right, superior = (world[..., 0] > 0).long(), (world[..., 2] > 0).long()
    labels = (right + 2 * superior)[None]
    probabilities = torch.nn.functional.one_hot(labels[0], 4).movedim(-1, 0).float()
    example = Example(labels.float(), labels, grid, grid, grid.fov_center_mm)
    slices = _slices("x", example, probabilities, grid)
    assert _aspect(grid) == "2.0"
    for name in ("image", "truth", "prediction"):
        shown = slices[f"x/{name}"]
        assert shown.shape == (8, 6)
        corners = [int(shown[row, column]) for row in (0, -1) for column in (0, -1)]
        assert corners == [3, 2, 1, 0]  # right and up, left and up, right and down, left and down


def test_lookups_see_no_image_and_are_told_what_the_arms_are(data):
    rows = lookup_rows(data, tiny_run().config, "tiny")
    scores = {(r["arm"], r["evaluation"], r["class"]): r["merged_dice"] for r in rows}
    assert {r["kind"] for r in rows} == {"baseline"}
    assert scores["lookup_exact", "iso_4_5", "liver"] > 0.5 > scores["lookup_exact", "wrong_header", "liver"]
    assert scores["lookup_exact", "iso_4_5", "liver"] > scores["lookup", "iso_4_5", "liver"]


def test_cases_of_one_evaluation_differ(data):
    model = evaluated(data, "evaluation.cases=2", "evaluation.window=64", "evaluation.stride=64")[0]
    assert len(model.images) == 4
    assert not torch.equal(model.images[0], model.images[1])
    assert not torch.equal(model.told[0][2], model.told[1][2])


def test_the_jittered_lookup_strays_in_making_and_in_use(data):
    made, used = [], []
    draw = CoordinateJitter.draw

    def spy(jitter, whole, generator):
        (used if jitter.shift_mm else made).append(jitter)
        return draw(jitter, whole, generator)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoordinateJitter, "draw", spy)
        lookup_rows(data, tiny_run().config, "tiny")
    assert len(used) == len(made) == 3 + 2  # three training grids, two evaluations: once with jitter and once without
