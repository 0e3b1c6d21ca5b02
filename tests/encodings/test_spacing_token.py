"""The token that tells the spacing: its features, and what they distinguish."""

import math

import pytest
import torch

from medattn import SpacingToken, VoxelGrid


def permuted_grid() -> VoxelGrid:
    """Spacing (2, 1, 5) mm; the array axes run to A, S and L."""
    rows = [[0, 0, -5, 100], [2, 0, 0, 50], [0, 1, 0, 20], [0, 0, 0, 1]]
    return VoxelGrid((4, 5, 6), torch.tensor(rows))


def test_features_are_log_ratios_and_direction_cosines_row_by_row() -> None:
    found = SpacingToken(8, reference_spacing_mm=2.0).features([permuted_grid()])
    assert found.dtype == torch.float64
    expected = [0.0, math.log(0.5), math.log(2.5), 0, 0, -1, 1, 0, 0, 0, 1, 0]
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64), rtol=0, atol=1e-12)
    at_reference = SpacingToken(8, reference_spacing_mm=2.0).features([VoxelGrid.from_spacing((3, 4, 5), 2.0)])
    assert at_reference[0].tolist() == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]


def test_spacing_is_of_columns_also_for_permuted_axes() -> None:
    rows = [[0, 0, 3, 10], [1, 0, 0, 20], [0, 2, 0, 30], [0, 0, 0, 1]]
    found = SpacingToken(8).features([VoxelGrid((4, 5, 6), torch.tensor(rows))])
    torch.testing.assert_close(found[0, :3], torch.tensor([1.0, 2.0, 3.0]).double().log())


def test_each_grid_gets_a_token_of_its_own() -> None:
    token = SpacingToken(8)
    grids = [
        permuted_grid(),
        permuted_grid().permute((1, 0, 2)),
        permuted_grid().flip(0),
        permuted_grid().resampled((2, 1, 2.5)),
    ]
    found = token(grids).detach()
    assert found.shape == (4, 1, 8)
    for sample, grid in enumerate(grids):
        torch.testing.assert_close(found[sample : sample + 1], token([grid]), rtol=0, atol=1e-6)
    assert float(torch.pdist(found[:, 0]).min()) > 1e-3


def test_where_a_grid_is_and_how_large_it_is_are_not_told() -> None:
    token, grid = SpacingToken(8), permuted_grid()
    moved = VoxelGrid((9, 9, 9), grid.affine + torch.tensor([[0, 0, 0, 30.0]] * 3 + [[0, 0, 0, 0]]))
    assert torch.equal(token([grid]), token([moved]))


def test_its_parameters_are_two_layers_and_all_are_used() -> None:
    token = SpacingToken(8)
    assert sum(p.numel() for p in token.parameters()) == 12 * 8 + 8 + 8 * 8 + 8 == 176
    (token([permuted_grid()]) * torch.randn(8)).sum().backward()
    used = {name: bool((p.grad != 0).any()) for name, p in token.named_parameters() if p.grad is not None}
    assert used == {"mlp.0.weight": True, "mlp.0.bias": True, "mlp.2.weight": True, "mlp.2.bias": True}


def test_a_cast_token_has_the_dtype_of_its_weights() -> None:
    assert SpacingToken(8).bfloat16()([permuted_grid()]).dtype == torch.bfloat16
    assert SpacingToken(8).double()([permuted_grid()]).dtype == torch.float64


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan])
def test_the_reference_must_be_a_positive_spacing(value: float) -> None:
    with pytest.raises(ValueError, match=f"reference_spacing_mm must be positive and finite, got {value}"):
        SpacingToken(8, reference_spacing_mm=value)
