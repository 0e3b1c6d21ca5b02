"""What an encoder knows of place: nothing without an encoding, displacements with rotary ones, and calibrated twins."""

from typing import Any

import pytest
import torch
from torch import Tensor

from medattn import VolumeEncoder, VoxelGrid, token_coordinates
from medattn.layers.patch_embed import from_patches, to_patches
from tests.encoders import PATCH, close, grid_of, small_encoder, volume
from tests.geometry.grids import random_grid

SHAPE, TOKENS = (4, 6, 3), (2, 2, 3)


def patches_permuted(x: Tensor, order: Tensor) -> Tensor:
    """``x`` (C, I, J, K) with its patches in another order."""
    return from_patches(to_patches(x[None], PATCH)[:, order], TOKENS, PATCH)[0]


def change_by_permutation(encoder: VolumeEncoder, x: Tensor, grid: VoxelGrid) -> float:
    """How far encoder(P x) is from P encoder(x), at most, over three permutations."""
    out = encoder([x], [grid]).tokens[0]
    changes = []
    for seed in range(3):
        order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
        changes.append((encoder([patches_permuted(x, order)], [grid]).tokens[0] - out[order]).abs().max())
    return float(torch.stack(changes).max().detach())


@pytest.mark.parametrize("token", [False, True], ids=["plain", "spacing token"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_without_position_permuted_patches_give_permuted_tokens(training: bool, token: bool) -> None:
    encoder = small_encoder("none", spacing_token=token).train(training)
    assert change_by_permutation(encoder, volume(SHAPE), grid_of()) < 1e-5


@pytest.mark.parametrize("frame", ["sequence", "index", "fraction", "mm", "patient_mm", "scanner_mm"])
@pytest.mark.parametrize("encoding", ["sincos", "rotary_axial"])
def test_with_position_they_do_not(encoding: str, frame: str) -> None:
    assert change_by_permutation(small_encoder(encoding, frame).eval(), volume(SHAPE), grid_of()) > 1e-2


def test_without_position_a_padded_volume_is_permuted_with_its_mask() -> None:
    encoder, grids = small_encoder("none"), [grid_of(SHAPE), grid_of((4, 6, 4))]
    x, other = volume(SHAPE), volume((4, 6, 4))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    out = encoder([x, other], grids)
    permuted = encoder([patches_permuted(x, order), other], grids)
    assert out.mask.sum(1).tolist() == [12, 16]
    close(permuted.tokens[0, :12], out.tokens[0, order], atol=1e-5)
    close(permuted[1], out[1])


# -- translation ---------------------------------------------------------------------------------------


def moved(grid: VoxelGrid, offset_mm: float) -> VoxelGrid:
    affine = grid.affine.clone()
    affine[:3, 3] += offset_mm
    return VoxelGrid(grid.shape, affine)


@pytest.mark.parametrize("encoding", ["sincos", "rotary_axial"])
@pytest.mark.parametrize("frame", ["index", "fraction", "mm", "patient_mm"])
@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "bfloat16"])
def test_a_scanner_origin_890_mm_away_changes_nothing(encoding: str, frame: str, autocast: bool) -> None:
    encoder, x, grid = small_encoder(encoding, frame, spacing_token=True).eval(), volume(SHAPE), random_grid(0)
    grid = VoxelGrid(SHAPE, grid.affine)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast), torch.no_grad():
        change = encoder([x], [moved(grid, 890.0)]).tokens - encoder([x], [grid]).tokens
    assert float(change.abs().max()) < 1e-3


@pytest.mark.parametrize("token", [False, True], ids=["no token", "spacing token"])
@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("frame", ["mm", "patient_mm", "scanner_mm"])
def test_rotary_outputs_do_not_depend_on_where_the_origin_is(frame: str, autocast: bool, token: bool) -> None:
    encoder, grid = small_encoder("rotary_axial", frame, spacing_token=token).eval(), grid_of()
    batch, grids = [volume(SHAPE), volume((3, 4, 2))], [grid, grid.crop((0, 0, 0), (3, 4, 2))]  # one is padded
    origin = (890.0, -890.0, 890.0)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast), torch.no_grad():
        here = encoder(batch, grids)
        if frame == "scanner_mm":
            there = encoder(batch, [moved(g, 890.0) for g in grids])
        else:
            there = encoder(batch, grids, origins_mm=[origin, origin])
    change = (there.tokens - here.tokens)[here.mask]
    assert float(change.abs().max()) < (1e-3 if autocast else 1e-5)


@pytest.mark.parametrize("frame", ["mm", "patient_mm", "scanner_mm"])
def test_sincos_outputs_do(frame: str) -> None:
    encoder, x, grid = small_encoder("sincos", frame).eval(), volume(SHAPE), grid_of()
    here = encoder([x], [grid]).tokens
    options: dict[str, Any] = {} if frame == "scanner_mm" else {"origins_mm": [(30.0, -20.0, 10.0)]}
    there = encoder([x], [moved(grid, 30.0) if frame == "scanner_mm" else grid], **options).tokens
    assert (there - here).abs().max() > 1e-2


def test_the_patient_frame_sees_a_flipped_scan_as_the_same_head_and_array_frames_do_not() -> None:
    x, grid = volume(SHAPE), grid_of()
    for encoding in ("sincos", "rotary_axial"):
        for frame, same in (("patient_mm", True), ("scanner_mm", True), ("mm", False), ("index", False)):
            encoder = small_encoder(encoding, frame, patch_size=1).eval()
            straight = encoder([x], [grid])[0]
            flipped = encoder([x.flip(1)], [grid.flip(0)])[0].flip(1)
            assert ((flipped - straight).abs().max() < 1e-4) == same, (encoding, frame)


# -- the spacing token ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoding", "frame"), [("none", "mm"), ("sincos", "index"), ("rotary_axial", "index")])
def test_the_spacing_token_tells_spacing_and_direction(encoding: str, frame: str) -> None:
    x, grids = volume(SHAPE), [grid_of(spacing_mm=s) for s in ((4.0, 5.0, 6.0), (5.0, 4.0, 6.0))]
    flipped = grids[0].flip(0)
    told, untold = small_encoder(encoding, frame, spacing_token=True), small_encoder(encoding, frame)
    for other in (grids[1], flipped):
        assert (told([x], [grids[0]]).tokens - told([x], [other]).tokens).abs().max() > 1e-3
        close(untold([x], [grids[0]]).tokens, untold([x], [other]).tokens)
    assert told([x], [grids[0]]).tokens.shape == (1, 12, 24)  # the token itself is not handed out


@pytest.mark.parametrize("encoding", ["sincos", "rotary_axial"])
def test_the_spacing_token_has_no_place_of_its_own(encoding: str) -> None:
    """Only the tokens' own coordinates matter: a forward with the signal of the tokens, done by hand, is the same."""
    encoder, x, grid = small_encoder(encoding, spacing_token=True, depth=1).eval(), volume(SHAPE), grid_of()
    coords = token_coordinates(grid, PATCH, encoder.frame)[None]
    signal = encoder.encoding(coords).to(x.device, torch.float32)
    assert encoder.spacing_token is not None
    place = torch.cat([encoder.spacing_token([grid]), signal.add_to(encoder.patch_embed(x[None]))], dim=1)
    block = encoder.blocks[0]
    attention = block.attention
    q, k, v = attention.qkv(block.attention_norm(place)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
    q, k = (torch.cat([part[:, :, :1], signal.rotate(part[:, :, 1:])], dim=2) for part in (q, k))
    mixed = ((q @ k.mT / 12**0.5).softmax(-1) @ v).transpose(1, 2).flatten(-2)
    place = place + attention.out(mixed)
    place = place + block.ffn(block.ffn_norm(place))
    close(encoder([x], [grid]).tokens, encoder.norm(place)[:, 1:], atol=1e-5)


# -- calibrated twins ----------------------------------------------------------------------------------


def arms(encoding: str, spacing: Any, shape: tuple[int, int, int]) -> dict[str, VolumeEncoder]:
    """One encoder per frame, calibrated at ``spacing`` (and the field of view of ``shape`` there)."""
    steps = spacing if isinstance(spacing, tuple) else (spacing,) * 3
    options = {
        "reference_spacing_mm": spacing,
        "reference_extent_mm": tuple(s * n for s, n in zip(steps, shape, strict=True)),
    }
    frames = ("index", "fraction", "mm", "patient_mm", "scanner_mm")
    return {frame: small_encoder(encoding, frame, encoding_options=options).eval() for frame in frames}


@pytest.mark.parametrize("spacing", [3.0, (2.0, 3.0, 5.0)], ids=str)
@pytest.mark.parametrize("encoding", ["sincos", "rotary_axial"])
def test_twins_agree_at_the_reference_spacing_and_only_there(encoding: str, spacing: Any) -> None:
    x, reference = volume(SHAPE), VoxelGrid.from_spacing(SHAPE, spacing)
    encoders = arms(encoding, spacing, SHAPE)
    outputs = {frame: encoder([x], [reference]).tokens for frame, encoder in encoders.items()}
    for frame, out in outputs.items():
        close(out, outputs["index"], atol=1e-6)
        assert sum(p.numel() for p in encoders[frame].parameters()) == sum(
            p.numel() for p in encoders["index"].parameters()
        )
    coarse = reference.with_spacing(reference.spacing_mm * torch.tensor([1.0, 2.0, 1.0]))
    elsewhere = {frame: encoder([x], [coarse]).tokens for frame, encoder in encoders.items()}
    for frame in ("index", "fraction"):
        close(elsewhere[frame], outputs["index"], atol=1e-6)  # they do not see it
    for frame in ("mm", "patient_mm", "scanner_mm"):
        assert (elsewhere[frame] - outputs["index"]).abs().max() > 1e-2
        close(elsewhere[frame], elsewhere["mm"], atol=1e-6)


@pytest.mark.parametrize("spacing", [3.0, (2.0, 3.0, 5.0)], ids=str)
@pytest.mark.parametrize("encoding", ["sincos", "rotary_axial"])
def test_index_and_mm_agree_on_an_oblique_crop_at_the_reference_spacing(encoding: str, spacing: Any) -> None:
    whole = VoxelGrid((9, 8, 7), random_grid(3).affine).with_spacing(spacing)
    crop, x = whole.crop((1, 2, 3), (5, 8, 6)), volume(SHAPE)
    outputs = {
        frame: encoder([x], [crop], references=[whole]).tokens
        for frame, encoder in arms(encoding, spacing, whole.shape).items()
    }
    for frame in ("mm", "fraction"):
        close(outputs[frame], outputs["index"], atol=1e-6)
    assert (outputs["patient_mm"] - outputs["mm"]).abs().max() > 1e-3  # its axes are the patient's


@pytest.mark.parametrize("encoding", ["sincos", "rotary_axial"])
def test_twins_have_equal_attention_logits(encoding: str) -> None:
    reference = VoxelGrid.from_spacing(SHAPE, (2.0, 3.0, 5.0))
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(1, 12, 24, generator=generator)
    logits = {}
    for frame, encoder in arms(encoding, (2.0, 3.0, 5.0), SHAPE).items():
        signal = encoder.encoding(token_coordinates(reference, PATCH, encoder.frame)[None]).to(
            tokens.device, torch.float32
        )
        q, k, _ = (
            encoder.blocks[0].attention.qkv(signal.add_to(tokens)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        )
        logits[frame] = signal.rotate(q) @ signal.rotate(k).mT / 12**0.5
    for frame, found in logits.items():
        close(found, logits["index"], atol=1e-6)
        assert found.abs().max() > 0.1, frame
