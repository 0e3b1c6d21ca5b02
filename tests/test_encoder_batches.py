"""Volumes of any size, with grids of their own, in one batch."""

import pytest
import torch

from medattn import VolumeEncoder, VoxelGrid, token_coordinates
from tests.encoders import PATCH, Probe, close, grid_of, small_encoder, volume
from tests.geometry.grids import random_grid

SHAPES = [(4, 6, 3), (1, 1, 1), (5, 7, 2), (2, 3, 9), (3, 4, 1)]
ARMS = [
    ("none", "mm"),
    ("sincos", "mm"),
    ("rotary_axial", "patient_mm"),
    ("rotary_axial", "index"),
    ("sincos", "sequence"),
]


def probe(frame: str) -> VolumeEncoder:
    return VolumeEncoder(Probe(dim=24, num_heads=2, frame=frame), patch_size=PATCH, depth=1)


@pytest.mark.parametrize("token", [False, True], ids=["plain", "spacing token"])
@pytest.mark.parametrize(("encoding", "frame"), ARMS)
def test_a_padded_volume_is_the_volume_alone(encoding: str, frame: str, token: bool) -> None:
    encoder = small_encoder(encoding, frame, spacing_token=token)
    grids = [VoxelGrid(shape, random_grid(seed).affine) for seed, shape in enumerate(SHAPES)]
    volumes = [volume(shape, seed) for seed, shape in enumerate(SHAPES)]
    encoded = encoder(volumes, grids)
    assert encoded.mask.sum(1).tolist() == [12, 1, 18, 9, 4]
    for sample in range(len(SHAPES)):
        close(encoded[sample], encoder([volumes[sample]], [grids[sample]])[0])
    order = [3, 0, 4, 2, 1]
    again = encoder([volumes[n] for n in order], [grids[n] for n in order])
    for place, sample in enumerate(order):
        close(again[place], encoded[sample])


def test_padding_changes_no_gradient() -> None:
    def gradients(batches: list[list[int]]) -> list[torch.Tensor]:
        encoder = small_encoder("rotary_axial", spacing_token=True)
        for batch in batches:
            encoded = encoder([volume(SHAPES[n], n) for n in batch], [grid_of(SHAPES[n]) for n in batch])
            torch.stack(
                [encoded[b].square().mul(torch.arange(24.0)[:, None, None, None]).sum() for b in range(len(batch))]
            ).sum().backward()
        return [p.grad for p in encoder.parameters() if p.grad is not None]

    together, alone = gradients([[0, 1, 2]]), gradients([[0], [1], [2]])
    assert len(together) == len(alone) > 20
    for one, other in zip(together, alone, strict=True):
        assert bool(one.isfinite().all())
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_what_is_stored_in_one_volume_does_not_leak_into_another() -> None:
    encoder, grids = small_encoder("sincos"), [grid_of((4, 6, 3)), grid_of((2, 3, 2))]
    good = encoder([volume((4, 6, 3)), volume((2, 3, 2))], grids)
    with pytest.warns(UserWarning, match=r"not finite count as 0, patches of them are masked: \[0, 12\]"):
        bad = encoder([volume((4, 6, 3)), torch.full((1, 2, 3, 2), torch.nan)], grids)
    close(bad[0], good[0])
    assert bad.mask.tolist() == [[True] * 12, [False] * 12]


def test_a_batch_tensor_and_a_list_are_the_same_batch() -> None:
    encoder, grids = small_encoder("rotary_axial"), [grid_of(), grid_of(spacing_mm=2.0)]
    volumes = [volume((4, 6, 3), 0), volume((4, 6, 3), 1)]
    assert torch.equal(encoder(torch.stack(volumes), grids).tokens, encoder(volumes, grids).tokens)


def test_as_many_tokens_in_another_shape_need_no_padding_but_their_own_places() -> None:
    encoder = small_encoder("rotary_axial")
    grids = [grid_of((4, 6, 3)), grid_of((4, 9, 2)), grid_of((2, 3, 12))]
    volumes = [volume(grid.shape, seed) for seed, grid in enumerate(grids)]
    encoded = encoder(volumes, grids)
    assert bool(encoded.mask.all())
    for sample, grid in enumerate(grids):
        close(encoded[sample], encoder([volumes[sample]], [grid])[0])


# -- a grid per sample ---------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", ["mm", "patient_mm", "scanner_mm"])
def test_the_second_sample_of_twice_the_spacing_has_coordinates_doubled(frame: str) -> None:
    encoder = probe(frame)
    encoder(torch.randn(2, 1, 4, 6, 3), [grid_of(spacing_mm=1.0), grid_of(spacing_mm=2.0)])
    first, second = encoder.encoding.coords
    assert first.shape == (12, 3)
    close(second, 2 * first, atol=1e-12)
    assert float(first.abs().max()) == 1.5


@pytest.mark.parametrize("frame", ["index", "fraction"])
def test_frames_without_millimetres_do_not_see_the_spacing(frame: str) -> None:
    encoder = probe(frame)
    encoder(torch.randn(2, 1, 4, 6, 3), [grid_of(spacing_mm=1.0), grid_of(spacing_mm=2.0)])
    close(encoder.encoding.coords[0], encoder.encoding.coords[1], atol=1e-12)


@pytest.mark.parametrize("encoding", ["sincos", "rotary_axial"])
def test_two_spacings_in_one_batch_are_each_alone_and_differ(encoding: str) -> None:
    encoder, x = small_encoder(encoding), volume((4, 6, 3))
    grids = [grid_of(spacing_mm=s) for s in (1.0, (4.0, 5.0, 6.0))]
    encoded = encoder([x, x], grids)
    for sample, grid in enumerate(grids):
        close(encoded[sample], encoder([x], [grid])[0])
    assert (encoded[0] - encoded[1]).abs().max() > 1e-2


@pytest.mark.parametrize("frame", ["index", "fraction", "mm", "patient_mm", "scanner_mm"])
def test_a_crop_is_placed_in_the_whole_volume(frame: str) -> None:
    wholes = [random_grid(seed) for seed in (1, 2)]
    starts = [(0, 0, 1), (1, 1, 0)]
    crops = [w.crop((i, j, k), (i + 2, j + 3, k + 2)) for w, (i, j, k) in zip(wholes, starts, strict=True)]
    encoder = probe(frame)
    encoder(torch.randn(2, 1, 2, 3, 2), crops, references=wholes)
    for sample, (whole, start) in enumerate(zip(wholes, starts, strict=True)):
        voxels = token_coordinates(whole, 1, frame).reshape(*whole.shape, 3)
        i, j, k = start
        box = voxels[i : i + 2, j : j + 3, k : k + 2]  # two patches of (2, 3, 1), one after the other along k
        close(encoder.encoding.coords[sample], box.mean((0, 1)), atol=1e-9)


def test_each_sample_has_an_origin_of_its_own() -> None:
    grids, points = [grid_of(), grid_of(spacing_mm=2.0)], [(1.0, 2.0, 3.0), (-40.0, 0.0, 7.0)]
    encoder = probe("patient_mm")
    encoder(torch.randn(2, 1, 4, 6, 3), grids)
    centred = encoder.encoding.coords
    encoder(torch.randn(2, 1, 4, 6, 3), grids, origins_mm=points)
    close(centred - encoder.encoding.coords, torch.tensor(points).double()[:, None].expand(2, 12, 3), atol=1e-12)
