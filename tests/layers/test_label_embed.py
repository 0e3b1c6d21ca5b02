"""Tokens of label volumes: table rows, which one-hot volumes would give."""

import pytest
import torch
from torch.nn import functional as F

from medattn import VolumeEncoder, create_encoding
from medattn.layers import LabelEmbed, create_patch_embed
from medattn.layers.patch_embed import pad_to_patches, to_patches
from tests.encoders import close, grid_of


def labels(shape: tuple[int, ...], count: int = 5) -> torch.Tensor:
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(3))


def test_patches_of_one_voxel_are_rows_of_the_table() -> None:
    embed, volume = LabelEmbed(5, 6), labels((2, 3, 4, 2))
    expected = F.one_hot(volume.flatten(1), 5).float() @ embed.table[0]
    close(embed(volume), expected.detach(), atol=1e-6)
    close(embed(volume[:, None]), expected.detach(), atol=1e-6)


@pytest.mark.parametrize("patch", [(2, 3, 1), (2, 2, 2), 3])
def test_larger_patches_are_the_linear_embedding_of_the_one_hot_volume(patch: object) -> None:
    embed, volume = LabelEmbed(5, 6, patch), labels((2, 3, 4, 5))
    padded = pad_to_patches(volume[:, None].float(), embed.patch_size)
    patches = to_patches(padded, embed.patch_size).long()  # (B, N, voxels)
    expected = F.one_hot(patches, 5).float().flatten(2) @ embed.table.flatten(0, 1)
    close(embed(volume), expected.detach(), atol=1e-5)


@pytest.mark.parametrize("wrong", [5, -1, 255])
def test_a_label_without_a_row_is_named(wrong: int) -> None:
    volume = labels((1, 3, 4, 2))
    volume[0, 1, 2, 1] = wrong
    with pytest.raises(ValueError, match=f"labels must be between 0 and 4, got {wrong}"):
        LabelEmbed(5, 6)(volume)


def test_what_is_no_label_map_is_refused() -> None:
    with pytest.raises(TypeError, match=r"labels must be integers, got torch\.float32"):
        LabelEmbed(5, 6)(torch.zeros(1, 2, 2, 2))
    with pytest.raises(ValueError, match=r"labels must be \(B, I, J, K\) or \(B, 1, I, J, K\), got \(1, 2, 2, 2, 2\)"):
        LabelEmbed(5, 6)(torch.zeros(1, 2, 2, 2, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="num_labels must be a positive integer, got 0"):
        LabelEmbed(0, 6)


def test_an_encoder_takes_label_maps() -> None:
    encoding = create_encoding("rotary_axial", dim=24, num_heads=2, frame="mm")
    encoder = VolumeEncoder(encoding, patch_size=LabelEmbed(5, 24, (2, 3, 1)), depth=1)
    encoded = encoder([labels((1, 4, 6, 3))], [grid_of()])
    assert encoded.tokens.shape == (1, 12, 24)
    encoded.tokens[..., 0].sum().backward()
    assert bool((encoder.patch_embed.table.grad != 0).any())


def test_embeddings_by_name_list_what_they_take() -> None:
    assert isinstance(create_patch_embed("labels", dim=6, num_labels=5), LabelEmbed)
    assert create_patch_embed("voxels", dim=6, patch_size=2).in_channels == 1
    with pytest.raises(ValueError, match="patch embedding must be one of voxels, mm, labels, got 'pixels'"):
        create_patch_embed("pixels", dim=6)
    with pytest.raises(ValueError, match="'labels' lacks num_labels; its options are num_labels, patch_size"):
        create_patch_embed("labels", dim=6)
    with pytest.raises(ValueError, match="'voxels' has no option size; its options are in_channels, patch_size"):
        create_patch_embed("voxels", dim=6, patch_size=2, size=3)
