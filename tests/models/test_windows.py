"""Labelling by windows: all voxels are covered, weighted alike, and placed in the whole volume's frame."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from medattn import SegmentationModel, VoxelGrid, predict_probabilities, token_coordinates
from medattn.models.windows import window_starts, windows
from tests.encoders import close, grid_of, small_encoder, volume
from tests.geometry.grids import random_grid

SIZES = [((4, 6, 3), 2, 1), ((3, 5, 1), 8, 8), ((7, 9, 5), (4, 3, 1), (3, 3, 1)), ((13, 1, 6), (4, 4, 5), (3, 1, 2))]
"""(shape, window, stride): smaller than the window, odd, one voxel thin."""


class Stub(nn.Module):
    """Called as a ``SegmentationModel`` is; ``scores(grid, reference, origin)`` gives what it answers."""

    def __init__(self, num_classes: int, scores: Any) -> None:
        super().__init__()
        self.num_classes, self.scores = num_classes, scores
        self.batches: list[int] = []

    def forward(
        self,
        volumes: Sequence[Tensor],
        grids: Sequence[VoxelGrid],
        *,
        references: Sequence[VoxelGrid] | None = None,
        origins_mm: Sequence[Any] | None = None,
    ) -> list[Tensor]:
        self.batches.append(len(volumes))
        assert all(tuple(v.shape[1:]) == g.shape for v, g in zip(volumes, grids, strict=True))
        places = zip(grids, references or grids, origins_mm or [None] * len(grids), strict=True)
        return [self.scores(grid, reference, origin) for grid, reference, origin in places]


def constant(grid: VoxelGrid, *_: Any) -> Tensor:
    return torch.tensor([0.0, math.log(3)]).reshape(2, 1, 1, 1).expand(2, *grid.shape)


def predicted(model: nn.Module, x: Tensor, grid: VoxelGrid, **options: Any) -> Tensor:
    return predict_probabilities(model, x, grid, **options)  # type: ignore[arg-type]


# -- where windows lie ---------------------------------------------------------------------------------


def test_the_last_window_is_flush_with_the_end() -> None:
    assert window_starts(300, 128, 96) == [0, 96, 172]
    assert window_starts(128, 128, 96) == [0]
    assert window_starts(129, 128, 96) == [0, 1]
    assert window_starts(224, 128, 96) == [0, 96]
    assert window_starts(100, 128, 96) == [0]
    assert window_starts(5, 1, 1) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("window", [1, 2, 5, 8])
def test_windows_cover_every_voxel_and_stay_inside(window: int) -> None:
    for size in range(1, 24):
        for stride in range(1, window + 1):
            starts = window_starts(size, window, stride)
            assert starts == sorted(set(starts))
            assert all(0 <= start <= max(size - window, 0) for start in starts)
            covered = {voxel for start in starts for voxel in range(start, min(start + window, size))}
            assert covered == set(range(size)), (size, window, stride)


def test_no_voxel_of_a_large_scan_is_missed() -> None:
    seen = torch.zeros(300, 300, 128, dtype=torch.bool)
    boxes = list(windows((300, 300, 128), (128, 128, 128), (96, 96, 96)))
    for (a, b, c), (d, e, f) in boxes:
        assert (d - a, e - b, f - c) == (128, 128, 128)
        seen[a:d, b:e, c:f] = True
    assert len(boxes) == 9
    assert bool(seen.all())


def test_a_window_larger_than_the_volume_is_cut_to_it() -> None:
    assert list(windows((3, 5, 1), (8, 4, 2), (8, 1, 2))) == [((0, 0, 0), (3, 4, 1)), ((0, 1, 0), (3, 5, 1))]


# -- what comes out ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "window", "stride"), SIZES, ids=str)
def test_a_constant_prediction_stays_constant(shape: tuple[int, int, int], window: Any, stride: Any) -> None:
    found = predicted(Stub(2, constant), volume(shape), grid_of(shape), window=window, stride=stride)
    assert found.shape == (2, *shape)
    close(found[0], torch.full(shape, 0.25), atol=1e-6)
    close(found[1], torch.full(shape, 0.75), atol=1e-6)


def test_overlapping_windows_are_averaged_as_probabilities() -> None:
    grid = VoxelGrid.from_spacing((6, 1, 1), 1.0)

    def scores(window: VoxelGrid, *_: Any) -> Tensor:
        first = float(window.origin_mm[0]) < -2  # .2 and .8 from the first window, .6 and .4 from the second
        odds = math.log(4) if first else math.log(2 / 3)
        return torch.tensor([0.0, odds]).reshape(2, 1, 1, 1).expand(2, *window.shape)

    found = predicted(Stub(2, scores), volume((6, 1, 1)), grid, window=(4, 1, 1), stride=(2, 1, 1))
    close(found[0].flatten(), [0.2, 0.2, 0.4, 0.4, 0.6, 0.6], atol=1e-6)
    close(found.sum(0), torch.ones(6, 1, 1), atol=1e-6)


@pytest.mark.parametrize("frame", ["index", "fraction", "mm", "patient_mm", "scanner_mm"])
@pytest.mark.parametrize("origin", [None, (10.0, -20.0, 5.0)], ids=["centre", "point"])
def test_windows_are_placed_in_the_whole_volume(frame: str, origin: Any) -> None:
    origin = None if frame == "scanner_mm" else origin
    grid = VoxelGrid((7, 5, 6), random_grid(1).affine)

    def where(window: VoxelGrid, reference: VoxelGrid, point: Any) -> Tensor:
        coords = token_coordinates(window, 1, frame, reference=reference, origin_mm=point).T.reshape(3, *window.shape)
        return torch.cat([coords / 100, coords.new_zeros(1, *window.shape)])

    found = predicted(
        Stub(4, where), volume((7, 5, 6)).double(), grid, window=(3, 5, 4), stride=(2, 5, 3), origin_mm=origin
    )
    expected = token_coordinates(grid, 1, frame, origin_mm=origin).T.reshape(3, 7, 5, 6)
    close(100 * (found[:3].log() - found[3].log()), expected, atol=1e-8)


@pytest.mark.parametrize("encoding", ["none", "sincos", "rotary_axial"])
def test_one_window_over_all_is_the_model_itself(encoding: str) -> None:
    model, grid, x = SegmentationModel(small_encoder(encoding), 3).eval(), grid_of((5, 7, 2)), volume((5, 7, 2))
    found = predict_probabilities(model, x, grid, window=8, stride=8)
    close(found, model([x], [grid])[0].softmax(0))
    assert not found.requires_grad


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_windows_side_by_side_are_crops_that_know_their_place(batch_size: int) -> None:
    model, grid = SegmentationModel(small_encoder("sincos"), 3).eval(), random_grid(2)
    grid, x = VoxelGrid((4, 6, 5), grid.affine), volume((4, 6, 5))
    found = predict_probabilities(
        model, x, grid, window=(2, 3, 5), stride=(2, 3, 5), batch_size=batch_size, origin_mm=(1.0, 2.0, 3.0)
    )
    for i in (0, 2):
        for j in (0, 3):
            crop = grid.crop((i, j, 0), (i + 2, j + 3, 5))
            part = x[:, i : i + 2, j : j + 3]
            (scores,) = model([part], [crop], references=[grid], origins_mm=[(1.0, 2.0, 3.0)])
            close(found[:, i : i + 2, j : j + 3], scores.softmax(0))


def test_batches_hold_as_many_windows_as_asked_for() -> None:
    stub = Stub(2, constant)
    predicted(stub, volume((7, 1, 1)), grid_of((7, 1, 1)), window=1, stride=1, batch_size=3)
    assert stub.batches == [3, 3, 1]


# -- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 4, "stride": 5}, r"stride must not exceed the window.*got \(5, 5, 5\) over \(4, 4, 4\)"),
        ({"window": (4, 4, 1), "stride": (4, 4, 2)}, r"stride must not exceed the window.*got \(4, 4, 2\)"),
        ({"window": 0, "stride": 1}, "window must be positive integers, .*got 0"),
        ({"window": (4, 4), "stride": 1}, r"window must be positive integers, .*got \(4, 4\)"),
        ({"window": 4, "stride": 2.5}, "stride must be positive integers, .*got 2.5"),
        *(
            ({"window": 4, "stride": 4, "batch_size": n}, f"batch_size must be a positive integer, got {n}")
            for n in (0, -1, 2.5, True)
        ),
    ],
    ids=str,
)
def test_bad_sizes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predicted(Stub(2, constant), volume((4, 6, 3)), grid_of(), **options)


@pytest.mark.parametrize("shape", [(1, 4, 6, 4), (4, 6, 3), (1, 1, 4, 6, 3)], ids=str)
def test_a_volume_off_its_grid_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=r"volume must be \(C, I, J, K\) on a grid of shape \(4, 6, 3\), got "
    ) as error:
        predicted(Stub(2, constant), torch.zeros(shape), grid_of(), window=4, stride=4)
    assert str(shape) in str(error.value)


def test_the_model_is_in_eval_mode_meanwhile_and_in_its_own_afterwards() -> None:
    modes = []

    class Watched(torch.nn.Module):
        num_classes = 2

        def forward(self, volumes: list[Tensor], *args: object, **kwargs: object) -> list[Tensor]:
            modes.append(self.training)
            return [torch.zeros(2, *volume.shape[1:]) for volume in volumes]

    grid = VoxelGrid.from_spacing((4, 4, 4), 1.0)
    for training in (True, False):
        model = Watched().train(training)
        predict_probabilities(model, torch.zeros(1, 4, 4, 4), grid, window=4, stride=4)  # type: ignore[arg-type]
        assert model.training is training
    assert modes == [False, False]
