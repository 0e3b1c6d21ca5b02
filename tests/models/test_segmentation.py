"""Voxel labels: each token's scores land on its own voxels, for volumes of any size."""

import pytest
import torch
from torch import Tensor, nn

from medattn import SegmentationModel, VoxelGrid
from tests.encoders import PATCH, close, grid_of, small_encoder, volume
from tests.geometry.grids import random_grid

CLASSES = 3


def small_model(encoding: str = "none", **options: object) -> SegmentationModel:
    return SegmentationModel(small_encoder(encoding, **options), CLASSES)


@pytest.mark.parametrize("shape", [(4, 6, 3), (5, 7, 2), (1, 1, 1), (3, 3, 9)], ids=str)
def test_scores_have_the_volume_s_size(shape: tuple[int, int, int]) -> None:
    (scores,) = small_model("rotary_axial")([volume(shape)], [grid_of(shape)])
    assert scores.shape == (CLASSES, *shape)


@pytest.mark.parametrize("shape", [(4, 6, 3), (5, 7, 2)], ids=str)
def test_each_voxel_gets_the_entry_of_its_own_token_and_place(shape: tuple[int, int, int]) -> None:
    model, grid, x = small_model("sincos"), grid_of(shape), volume(shape)
    (scores,) = model([x], [grid])
    tokens = model.encoder([x], [grid])[0]  # (24, i, j, k)
    for i, j, k in torch.cartesian_prod(*(torch.arange(n) for n in shape)).tolist():
        entries = model.head(tokens[:, i // 2, j // 3, k]).reshape(CLASSES, *PATCH)
        close(scores[:, i, j, k], entries[:, i % 2, j % 3, 0], atol=1e-5)


def test_the_order_of_a_head_s_outputs_is_class_then_voxel() -> None:
    model = small_model()
    nn.init.zeros_(model.head.weight)
    model.head.bias.data = torch.arange(18.0)
    (scores,) = model([volume((3, 4, 2))], [grid_of((3, 4, 2))])
    assert scores[0, :, :, 0].tolist() == [[0, 1, 2, 0], [3, 4, 5, 3], [0, 1, 2, 0]]
    assert torch.equal(scores[1] - scores[0], torch.full((3, 4, 2), 6.0))
    assert torch.equal(scores[..., 1], scores[..., 0])


@pytest.mark.parametrize("encoding", ["none", "sincos", "rotary_axial"])
def test_a_batch_of_unequal_volumes_is_each_alone(encoding: str) -> None:
    model = small_model(encoding, spacing_token=True)
    grids = [VoxelGrid(shape, random_grid(n).affine) for n, shape in enumerate([(4, 6, 3), (5, 2, 2), (2, 3, 7)])]
    volumes = [volume(grid.shape, seed) for seed, grid in enumerate(grids)]
    for scores, x, grid in zip(model(volumes, grids), volumes, grids, strict=True):
        close(scores, model([x], [grid])[0], atol=5e-6)


def test_references_and_origins_reach_the_encoder() -> None:
    model, whole = small_model("sincos", frame="patient_mm"), grid_of((8, 9, 6))
    crop, x = whole.crop((4, 3, 2), (8, 9, 5)), volume((4, 6, 3))
    alone, placed = model([x], [crop])[0], model([x], [crop], references=[whole])[0]
    assert (alone - placed).abs().max() > 1e-2
    close(model([x], [crop], origins_mm=[whole.fov_center_mm])[0], placed)


def gradients(model: SegmentationModel, volumes: list[Tensor], grids: list[VoxelGrid]) -> dict[str, Tensor]:
    model.zero_grad()
    torch.stack([part.square().mean() for part in model(volumes, grids)]).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_every_parameter_learns_and_the_gradient_is_the_sum_over_samples() -> None:
    model = small_model("rotary_axial", spacing_token=True)
    grids = [grid_of((4, 6, 3)), grid_of((3, 5, 2), 2.0)]
    volumes = [volume(grid.shape, seed) for seed, grid in enumerate(grids)]
    together = gradients(model, volumes, grids)
    assert set(together) == {name for name, _ in model.named_parameters()}
    alone = [gradients(model, [x], [grid]) for x, grid in zip(volumes, grids, strict=True)]
    for name, gradient in together.items():
        assert bool((gradient != 0).any()), name
        torch.testing.assert_close(gradient, alone[0][name] + alone[1][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [1, 0, -3, 2.0, True])
def test_the_number_of_classes_must_be_two_or_more(value: object) -> None:
    with pytest.raises(ValueError, match=f"num_classes must be an integer >= 2, got {value!r}"):
        SegmentationModel(small_encoder(), value)  # type: ignore[arg-type]
