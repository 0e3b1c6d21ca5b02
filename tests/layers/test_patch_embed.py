"""Patches to tokens and back, in raster order."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from medattn import VoxelGrid, token_coordinates
from medattn.layers import PatchEmbed
from medattn.layers.patch_embed import from_patches, pad_to_patches, to_patches
from tests.encoders import close


def test_token_k_is_the_patch_at_its_unravelled_index() -> None:
    token_shape, patch = (2, 3, 4), (4, 4, 2)
    volume = torch.arange(2 * 8 * 12 * 8, dtype=torch.float64).reshape(1, 2, 8, 12, 8)
    tokens = to_patches(volume, patch)
    assert tokens.shape == (1, 24, 2 * 4 * 4 * 2)
    for k in range(24):
        i, j, m = (int(n) * p for n, p in zip(np.unravel_index(k, token_shape), patch, strict=True))
        expected = volume[0, :, i : i + 4, j : j + 4, m : m + 2].flatten()  # (c, i, j, k)
        assert torch.equal(tokens[0, k], expected)


def test_the_first_tokens_of_a_thick_sliced_scan_lie_where_their_voxels_are() -> None:
    grid = VoxelGrid((8, 12, 8), torch.diag(torch.tensor([1.0, 1.0, 5.0, 1.0])))
    coords = token_coordinates(grid, (4, 4, 2), "scanner_mm")
    close(coords[0], [1.5, 1.5, 2.5])
    close(coords[1], [1.5, 1.5, 12.5])  # the last axis runs fastest
    world = grid.to_world(grid.indices()).permute(3, 0, 1, 2)[None]
    means = to_patches(world, (4, 4, 2)).unflatten(-1, (3, -1)).mean(-1)[0]
    close(means, coords, atol=1e-9)  # every token's coordinate is the mean of its voxels'


@pytest.mark.parametrize("patch", [(1, 1, 1), (2, 3, 1), (1, 2, 4), (4, 1, 3)], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_patches_go_back_to_where_they_came_from(patch: tuple[int, int, int], channels: int) -> None:
    shape = tuple(n * p for n, p in zip((2, 3, 5), patch, strict=True))
    volume = torch.randn(2, channels, *shape)
    assert torch.equal(from_patches(to_patches(volume, patch), (2, 3, 5), patch), volume)


def test_the_embedding_is_a_strided_convolution() -> None:
    torch.manual_seed(0)
    embed, patch = PatchEmbed(2, 5, (2, 3, 1)), (2, 3, 1)
    convolution = nn.Conv3d(2, 5, patch, stride=patch)
    convolution.weight.data = embed.projection.weight.data.reshape(5, 2, *patch)
    convolution.bias.data = embed.projection.bias.data
    volume = torch.randn(2, 2, 4, 9, 5)
    close(embed(volume), convolution(volume).flatten(2).mT)


def test_sizes_that_are_no_multiple_are_continued_with_their_edge() -> None:
    volume = torch.tensor([[1.0, 2.0, 3.0]]).reshape(1, 1, 1, 1, 3)
    padded = pad_to_patches(volume, (2, 1, 2))
    assert padded.shape == (1, 1, 2, 1, 4)
    assert padded.flatten().tolist() == [1, 2, 3, 3, 1, 2, 3, 3]
    whole = torch.randn(1, 1, 4, 6, 2)
    assert pad_to_patches(whole, (2, 3, 1)) is whole


@pytest.mark.parametrize("shape", list(itertools.product((1, 4, 5), (1, 3, 7), (1, 2))), ids=str)
def test_any_size_gives_the_tokens_of_its_patch_grid(shape: tuple[int, int, int]) -> None:
    embed = PatchEmbed(1, 5, (4, 3, 2))
    tokens = embed(torch.randn(2, 1, *shape)).shape[1]
    assert tokens == VoxelGrid.from_spacing(shape, 1.0).patch_grid((4, 3, 2)).indices()[..., 0].numel()


@pytest.mark.parametrize("value", [0, -1, 2.5, True, (4, 4), (4, 4, 0), "4", None], ids=repr)
def test_the_patch_size_must_be_positive_integers(value: object) -> None:
    with pytest.raises(ValueError, match="patch_size must be positive integers, one or three of them, got ") as error:
        PatchEmbed(1, 5, value)  # type: ignore[arg-type]
    assert repr(value) in str(error.value)


@pytest.mark.parametrize("shape", [(1, 2, 4, 4, 4), (1, 4, 4, 4), (4, 4, 4)], ids=str)
def test_a_volume_of_another_rank_or_number_of_channels_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"volume must be \(B, 1, I, J, K\), got ") as error:
        PatchEmbed(1, 5, 2)(torch.zeros(shape))
    assert str(shape) in str(error.value)


@pytest.mark.parametrize("dtype", [torch.int16, torch.float64, torch.bfloat16, torch.bool])
def test_a_volume_of_another_dtype_than_the_weights_is_an_error_that_names_both(dtype: torch.dtype) -> None:
    embed = PatchEmbed(1, 8, 2)
    with pytest.raises(TypeError, match=f"volume must be torch.float32 like the model's weights, got {dtype}"):
        embed(torch.ones(1, 1, 4, 4, 4).to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert embed(torch.ones(1, 1, 4, 4, 4, dtype=torch.bfloat16)).shape == (1, 8, 8)
