"""``VolumeEncoder``: arguments, token maps, errors. What depends on position is in the files beside this one."""

import inspect
from typing import Any

import pytest
import torch

from medattn import TokenMap, VolumeEncoder, VoxelGrid, create_encoder, create_encoding
from tests.encoders import PATCH, SETTINGS, Probe, close, grid_of, small_encoder, volume


def test_tokens_come_with_their_grids() -> None:
    grids = [grid_of((4, 6, 3)), grid_of((3, 5, 2), 2.0)]
    encoded = small_encoder()([volume(g.shape, seed) for seed, g in enumerate(grids)], grids)
    assert isinstance(encoded, TokenMap)
    assert encoded.tokens.shape == (2, 12, 24)
    assert encoded.mask.sum(1).tolist() == [12, 8]
    assert encoded.mask[1].tolist() == [True] * 8 + [False] * 4
    assert [g.shape for g in encoded.grids] == [(2, 2, 3), (2, 2, 2)]
    assert all(a.is_close(b.patch_grid(PATCH), atol_mm=1e-9) for a, b in zip(encoded.grids, grids, strict=True))
    for sample, shape in enumerate(((2, 2, 3), (2, 2, 2))):
        assert encoded[sample].shape == (24, *shape)
        for k, (i, j, m) in enumerate(torch.cartesian_prod(*(torch.arange(n) for n in shape)).tolist()):
            assert torch.equal(encoded[sample][:, i, j, m], encoded.tokens[sample, k])


def test_without_blocks_that_mix_a_token_depends_on_its_own_patch_alone() -> None:
    encoder, grid, x = small_encoder(depth=1), grid_of(), volume((4, 6, 3))
    torch.nn.init.zeros_(encoder.blocks[0].attention.out.weight)
    changed = x.clone()
    changed[:, 2, 4, 1] += 5  # token (1, 1, 1) of (2, 2, 3)
    difference = (encoder([changed], [grid])[0] - encoder([x], [grid])[0]).abs().amax(0)
    assert difference.nonzero().tolist() == [[1, 1, 1]]


def test_residual_stream_and_last_norm() -> None:
    tokens = small_encoder()([volume((4, 6, 3))], [grid_of()]).tokens
    close(tokens.mean(-1), torch.zeros(1, 12), atol=1e-5)
    close(tokens.square().mean(-1), torch.ones(1, 12), atol=1e-3)


OTHER: dict[str, Any] = {
    "in_channels": 2,
    "patch_size": (2, 3, 3),
    "depth": 1,
    "ffn_ratio": 1.0,
    "spacing_token": True,
    "dropout": 0.5,
    "attention_dropout": 0.5,
}


def test_every_argument_has_an_effect() -> None:
    grid = grid_of()

    def output(**options: Any) -> torch.Tensor:
        torch.manual_seed(0)
        encoding = create_encoding(options.pop("encoding", "none"), dim=24, num_heads=2, frame="mm")
        encoder = VolumeEncoder(encoding, **{"patch_size": PATCH, "depth": 2, **options})
        return encoder([volume(grid.shape, channels=options.get("in_channels", 1))], [grid]).tokens

    def differ(one: torch.Tensor, other: torch.Tensor) -> bool:
        return one.shape != other.shape or not torch.allclose(one, other, atol=1e-3)

    reference = output()
    assert torch.equal(output(), reference)
    names = set(inspect.signature(VolumeEncoder).parameters) - {
        "encoding",
        "reference_spacing_mm",
        "spacing_modulation",
    }
    assert names == set(OTHER)
    assert [name for name in names if not differ(output(**{name: OTHER[name]}), reference)] == []
    assert differ(output(encoding="sincos"), reference)
    with_token = output(spacing_token=True)
    assert differ(output(spacing_token=True, reference_spacing_mm=4.0), with_token)


@pytest.mark.parametrize("encoding", ["none", "sincos", "rotary_axial"])
def test_eval_is_deterministic_whatever_the_dropout(encoding: str) -> None:
    options: dict[str, Any] = {"dropout": 0.5, "attention_dropout": 0.5, "spacing_token": True}
    encoder, plain = small_encoder(encoding, **options), small_encoder(encoding, spacing_token=True)
    x, grid = [volume((4, 6, 3))], [grid_of()]
    assert not torch.allclose(encoder(x, grid).tokens, encoder(x, grid).tokens, atol=1e-2)
    encoder.eval()
    assert torch.equal(encoder(x, grid).tokens, encoder(x, grid).tokens)
    assert torch.equal(encoder(x, grid).tokens, plain(x, grid).tokens)


def test_arms_of_one_seed_share_their_initial_weights() -> None:
    plain = small_encoder("none").state_dict()
    for encoding in ("none", "sincos", "rotary_axial"):
        for token in (False, True):
            own = small_encoder(encoding, spacing_token=token).state_dict()
            assert all(torch.equal(own[name], value) for name, value in plain.items())
            assert {name.split(".")[0] for name in set(own) - set(plain)} == ({"spacing_token"} if token else set())
    other = small_encoder("none", seed=1).state_dict()
    assert not torch.equal(other["patch_embed.projection.weight"], plain["patch_embed.projection.weight"])


def test_what_is_built_after_an_encoder_does_not_depend_on_its_arm() -> None:
    heads = []
    for encoding, token in (("none", False), ("sincos", True), ("rotary_axial", False)):
        small_encoder(encoding, spacing_token=token)
        heads.append(torch.nn.Linear(3, 3).weight)
    assert torch.equal(heads[0], heads[1])
    assert torch.equal(heads[0], heads[2])


def test_parameter_counts_of_the_arms() -> None:
    def count(**options: Any) -> int:
        return sum(p.numel() for p in small_encoder(**options).parameters())

    block = (4 * 24**2 + 4 * 24) + (2 * 24 * 48 + 48 + 24) + 2 * 48
    assert count() == (6 * 24 + 24) + 2 * block + 48
    assert count(encoding="sincos") == count(encoding="rotary_axial") == count()
    assert count(spacing_token=True) == count() + (12 * 24 + 24) + (24 * 24 + 24)


def test_under_autocast_the_tokens_stay_in_full_precision() -> None:
    encoder, x, grid = small_encoder("rotary_axial", spacing_token=True), [volume((4, 6, 3))], [grid_of()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        tokens = encoder(x, grid).tokens
    assert tokens.dtype == torch.float32
    close(tokens, encoder(x, grid).tokens, atol=5e-2)


def test_presets_and_mappings_can_be_overridden() -> None:
    tiny = create_encoder()
    assert (tiny.dim, tiny.patch_size, len(tiny.blocks), tiny.frame) == (96, (4, 4, 4), 3, "mm")
    assert tiny.encoding.name == "rotary_axial"
    other = create_encoder("tiny", dim=48, frame="index", encoding="sincos", encoding_options={"base": 7.0}, depth=1)
    assert (other.dim, other.frame, len(other.blocks), other.encoding.name) == (48, "index", 1, "sincos")
    assert create_encoder(SETTINGS, patch_size=5).patch_size == (5, 5, 5)
    assert "encoding" not in SETTINGS  # the mapping is left as it was
    spaced = create_encoder("tiny", encoding="sincos", frame="index", encoding_options={"reference_spacing_mm": 3.0})
    coords = torch.ones(1, 1, 3)
    plain = create_encoder("tiny", encoding="sincos", frame="mm").encoding(3 * coords).additive
    close(spaced.encoding(coords).additive, plain)


# -- errors --------------------------------------------------------------------------------------------


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="encoder preset must be one of tiny, small, base, got 'huge'"):
        create_encoder("huge")
    with pytest.raises(ValueError, match="encoding must be one of .*got 'sinus'"):
        create_encoder("tiny", encoding="sinus")
    with pytest.raises(ValueError, match="frame must be one of sequence, .*got 'voxel'"):
        create_encoder("tiny", frame="voxel")


@pytest.mark.parametrize("value", [0, -1, 2.5, True])
@pytest.mark.parametrize("name", ["depth", "in_channels", "patch_size"])
def test_sizes_must_be_positive_integers(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be .*positive integer.*, got {value!r}"):
        small_encoder(**{name: value})
    with pytest.raises(ValueError, match=r"patch_size must be positive integers, .* got \(4, 4\)"):
        small_encoder(patch_size=(4, 4))


def test_a_batch_must_fit_its_grids() -> None:
    encoder, grid, x = small_encoder(), grid_of(), volume((4, 6, 3))
    for name in ("references", "origins_mm"):
        with pytest.raises(ValueError, match=f"{name} must be a sequence with one entry per volume, 2, got 1"):
            encoder([x, x], [grid, grid], **{name: [grid]})
    for grids in ([], [grid], [grid] * 3):
        with pytest.raises(
            ValueError, match=f"grids must be a sequence with one entry per volume, 2, got {len(grids)}"
        ):
            encoder([x, x], grids)
    other = VoxelGrid.from_spacing((6, 4, 3), 1.0)
    with pytest.raises(
        ValueError, match=r"volume 1 must be \(C, I, J, K\) on its grid of shape \(6, 4, 3\), got \(1, 4"
    ):
        encoder([x, x], [grid, other])
    with pytest.raises(ValueError, match=r"volume 0 must be \(C, I, J, K\) on .*got \(4, 6, 3\)"):
        encoder([x[0]], [grid])
    with pytest.raises(ValueError, match=r"volume must be \(B, 1, I, J, K\), got \(1, 2, 4, 6, 3\)"):
        encoder([torch.cat([x, x])], [grid])


def test_coordinates_reach_the_encoding_in_float64() -> None:
    encoder = VolumeEncoder(Probe(dim=24, num_heads=2, frame="mm"), patch_size=PATCH, depth=1).bfloat16()
    encoder([volume((4, 6, 3)).bfloat16()], [grid_of()])
    assert encoder.encoding.coords.dtype == torch.float64
