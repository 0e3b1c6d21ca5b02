"""NaN and infinite voxels: counted, masked by patch, never spread."""

import math

import pytest
import torch

from tests.encoders import PATCH, close, grid_of, small_encoder, volume


def test_a_patch_without_a_finite_voxel_is_masked_and_changes_nothing_else() -> None:
    encoder, grid, x = small_encoder("rotary_axial").eval(), grid_of(), volume((4, 6, 3))
    holed = x.clone()
    holed[:, :2, :3, 0] = math.nan  # token (0, 0, 0)
    with pytest.warns(UserWarning, match=r"not finite count as 0, patches of them are masked: \[6\]"):
        encoded = encoder([holed], [grid])
    assert encoded.mask.tolist() == [[False] + [True] * 11]
    assert encoded.nonfinite_voxels.tolist() == [6]
    assert bool(encoded.tokens.isfinite().all())
    for content in (math.inf, -math.inf):
        other = holed.clone()
        other[:, :2, :3, 0] = content
        with pytest.warns(UserWarning, match="not finite count as 0"):
            close(encoder([other], [grid]).tokens[:, 1:], encoded.tokens[:, 1:].detach(), atol=0)
    assert not torch.allclose(encoder([x], [grid]).tokens[:, 1:], encoded.tokens[:, 1:], atol=1e-3)


def test_in_a_patch_that_is_partly_finite_the_rest_counts_as_zero() -> None:
    encoder, grid, x = small_encoder("sincos").eval(), grid_of(), volume((4, 6, 3))
    holed, zeroed = x.clone(), x.clone()
    holed[:, 0, 0, 0], zeroed[:, 0, 0, 0] = math.nan, 0.0
    with pytest.warns(UserWarning, match=r"masked: \[1\]"):
        encoded = encoder([holed], [grid])
    assert bool(encoded.mask.all())
    close(encoded.tokens, encoder([zeroed], [grid]).tokens.detach(), atol=1e-6)


def test_gradients_stay_finite() -> None:
    encoder, x = small_encoder("rotary_axial"), volume((4, 6, 3))
    x[:, :2, :3] = math.nan
    with pytest.warns(UserWarning, match="not finite count as 0"):
        encoder([x], [grid_of()]).tokens.square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in encoder.parameters())


@pytest.mark.filterwarnings("error")
def test_finite_volumes_are_not_touched() -> None:
    encoded = small_encoder().eval()([volume((4, 6, 3))], [grid_of()])
    assert encoded.nonfinite_voxels.tolist() == [0]
    assert encoded.tokens.shape == (1, 12, 24)
    assert PATCH == (2, 3, 1)
