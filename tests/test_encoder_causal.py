"""Tokens that see only what has arrived: in one pass with a mask, and slab by slab with a cache."""

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from medattn import TokenMap, VolumeEncoder, VoxelGrid, create_encoder, list_encodings
from medattn.encoder import SlabStream
from medattn.layers import LabelEmbed
from tests.geometry.grids import random_grid

SHAPE, PATCH = (7, 5, 6), (2, 2, 2)
GRID = VoxelGrid(SHAPE, random_grid(3).affine)
OPTIONS: dict[str, dict[str, Any]] = {"sum": {"parts": [{"name": "distance_slopes"}, {"name": "gaussian"}]}}
INDEX_ONLY = ("relative_table", "relative_decomposed", "peg", "learned_table")
ENCODINGS = [name for name in list_encodings() if name != "peg"]


def encoder(name: str = "rotary_axial", **options: Any) -> VolumeEncoder:
    torch.manual_seed(0)
    settings = {"dim": 24, "num_heads": 2, "depth": 2, "ffn_ratio": 2.0, "patch_size": PATCH}
    frame = "index" if name in INDEX_ONLY else "patient_mm" if name != "rotary_dino" else "fraction"
    model = create_encoder(settings, encoding=name, frame=frame, encoding_options=OPTIONS.get(name, {}), **options)
    return model.double().eval()


def volume(shape: Sequence[int] = SHAPE) -> Tensor:
    return torch.randn(1, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def whole(model: VolumeEncoder, axis: int, scan: Tensor | None = None) -> TokenMap:
    return model([volume() if scan is None else scan], [GRID], causal_axis=axis)


def pushed(stream: SlabStream, scan: Tensor, sizes: Sequence[int]) -> Tensor:
    """(D, I, J, K) token volume of what came out."""
    found = [stream.push(slab) for slab in scan.split(list(sizes), dim=1 + stream.axis)]
    return torch.cat([tokens[0] for tokens in found if tokens is not None], dim=1 + stream.axis)


# -- the whole pass --------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("token", [False, True], ids=["plain", "spacing token"])
def test_no_token_sees_what_comes_later(axis: int, token: bool) -> None:
    model, scan = encoder("distance_slopes", spacing_token=token), volume()
    before = whole(model, axis)[0]
    changed = scan.clone()
    changed.narrow(1 + axis, 4, 1).add_(1.0)
    after = whole(model, axis, changed)[0]
    difference = (after - before).detach().abs().movedim(1 + axis, 0).flatten(1).amax(1)
    assert difference[:2].tolist() == [0.0, 0.0]
    assert float(difference[2]) > 1e-3
    assert float((model([scan], [GRID])[0] - before).detach().abs().max()) > 1e-3


def test_the_first_layer_of_tokens_is_a_scan_of_its_own() -> None:
    model = encoder("none")
    first = GRID.crop((0, 0, 0), (2, 5, 6))
    alone = model([volume()[:, :2]], [first])[0]
    torch.testing.assert_close(whole(model, 0)[0][:, :1], alone, rtol=0, atol=1e-12)


def test_scans_of_a_batch_are_causal_each_on_its_own_grid() -> None:
    model, other = encoder("rotary_axial", spacing_token=True), VoxelGrid((3, 9, 4), random_grid(4).affine)
    scans, grids = [volume(), volume(other.shape)], [GRID, other]
    both = model(scans, grids, causal_axis=1)
    for sample in (0, 1):
        alone = model(scans[sample : sample + 1], grids[sample : sample + 1], causal_axis=1)
        torch.testing.assert_close(both[sample], alone[0], rtol=0, atol=1e-12)


def test_tokens_that_are_not_visible_change_nothing_and_are_marked() -> None:
    model, scan = encoder("distance_slopes"), volume()
    visible = torch.ones(1, 36, dtype=torch.bool)
    visible[0, 0] = False  # the patch [0:2, 0:2, 0:2]
    changed = scan.clone()
    changed[:, :2, :2, :2] += 5
    one, other = (model([s], [GRID], visible=visible) for s in (scan, changed))
    torch.testing.assert_close(one.tokens[:, 1:], other.tokens[:, 1:], rtol=0, atol=0)
    assert torch.equal(one.mask, visible)
    assert float((model([scan], [GRID]).tokens - one.tokens).detach().abs()[:, 1:].max()) > 1e-4


@pytest.mark.parametrize("wrong", [torch.ones(1, 35, dtype=torch.bool), torch.ones(36, dtype=torch.bool)])
def test_visible_of_another_shape_is_refused(wrong: Tensor) -> None:
    with pytest.raises(ValueError, match=r"visible must be boolean \(1, 36\) \(B, N\), got torch.bool \("):
        encoder()([volume()], [GRID], visible=wrong)


def test_visible_of_another_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match=r"visible must be boolean \(1, 36\) \(B, N\), got torch.float32 \(1, 36\)"):
        encoder()([volume()], [GRID], visible=torch.ones(1, 36))


# -- slab by slab ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ENCODINGS)
def test_slabs_give_the_tokens_of_the_whole_pass(name: str, axis: int) -> None:
    model = encoder(name, spacing_token=True, spacing_modulation=True)
    torch.nn.init.normal_(model.spacing_modulation.mlp[-1].weight, std=0.05)  # type: ignore[union-attr]
    stream = SlabStream(model, GRID, axis=axis)
    found = pushed(stream, volume(), {7: (2, 3, 2), 5: (1, 4), 6: (6,)}[SHAPE[axis]])
    torch.testing.assert_close(found, whole(model, axis)[0], rtol=0, atol=1e-10)
    assert stream.is_complete


@pytest.mark.parametrize("sizes", [(1,) * 7, (7,), (3, 4), (6, 1), (5, 1, 1)], ids=str)
def test_slabs_of_any_thickness_do(sizes: tuple[int, ...]) -> None:
    model = encoder("continuous_bias")
    found = pushed(SlabStream(model, GRID, axis=0), volume(), sizes)
    torch.testing.assert_close(found, whole(model, 0)[0], rtol=0, atol=1e-10)


def test_tokens_come_with_their_grid_as_soon_as_their_voxels_are_there() -> None:
    stream, scan = SlabStream(encoder(), GRID, axis=2), volume()
    assert stream.push(scan[..., :1]) is None
    found = stream.push(scan[..., 1:5])
    assert found is not None
    assert found.grids[0].is_close(GRID.crop((0, 0, 0), (7, 5, 4)).patch_grid(PATCH))
    assert found[0].shape == (24, 4, 3, 2)
    assert not stream.is_complete
    last = stream.push(scan[..., 5:])
    assert last is not None
    assert last.grids[0].is_close(stream.token_grid.crop((0, 0, 2), (4, 3, 3)))
    assert stream.is_complete


def test_gradients_are_those_of_the_whole_pass() -> None:
    gradients = []
    for streamed in (False, True):
        model = encoder("radial_bias", spacing_token=True)
        out = pushed(SlabStream(model, GRID, axis=1), volume(), (2, 2, 1)) if streamed else whole(model, 1)[0]
        out.sin().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_voxels_that_are_not_finite_are_masked_as_in_the_whole_pass() -> None:
    model, scan = encoder("gaussian"), volume()
    scan[:, :2, :2] = torch.nan  # whole patches
    scan[:, 6, 4, 5] = torch.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, found = whole(model, 0, scan), pushed(SlabStream(model, GRID, axis=0), scan, (3, 4))
    torch.testing.assert_close(found, expected[0], rtol=0, atol=1e-10)
    assert bool(found.isfinite().all())


def test_coordinates_can_be_measured_from_a_reference_or_a_point() -> None:
    model = encoder("sincos")
    reference, point = GRID.pad(3, 1), GRID.fov_center_mm + 10
    for told, several in (
        ({"reference": reference}, {"references": [reference]}),
        ({"origin_mm": point}, {"origins_mm": [point]}),
    ):
        expected = model([volume()], [GRID], causal_axis=0, **several)[0]
        found = pushed(SlabStream(model, GRID, axis=0, **told), volume(), (4, 3))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
        assert float((expected - whole(model, 0)[0]).detach().abs().max()) > 1e-3


def test_labels_come_in_slabs_too() -> None:
    model = VolumeEncoder(encoder().encoding, patch_size=LabelEmbed(4, 24, 2), depth=1).double().eval()
    labels = torch.randint(4, (1, *SHAPE), generator=torch.Generator().manual_seed(0))
    found = pushed(SlabStream(model, GRID, axis=1), labels, (3, 2))
    torch.testing.assert_close(found, model([labels], [GRID], causal_axis=1)[0], rtol=0, atol=1e-10)


def test_half_precision_stays_near() -> None:
    for name in ("gaussian", "relative_decomposed", "continuous_bias"):
        model = encoder(name).to(torch.bfloat16)
        scan = volume().bfloat16()
        found = pushed(SlabStream(model, GRID, axis=0), scan, (4, 3)).float()
        torch.testing.assert_close(found, whole(model, 0, scan)[0].float(), rtol=0, atol=5e-2)


# -- bad input -------------------------------------------------------------------------------------------


def test_a_convolution_over_tokens_cannot_be_causal() -> None:
    model = encoder("peg")
    with pytest.raises(ValueError, match="causal_axis must be None with encoding 'peg', which mixes tokens with those"):
        whole(model, 0)
    with pytest.raises(ValueError, match="'peg', which mixes"):
        SlabStream(model, GRID, axis=0)


@pytest.mark.parametrize("axis", [3, -1, None, "k"])
def test_an_axis_must_be_one_of_three(axis: Any) -> None:
    with pytest.raises(ValueError, match="axis must be 0, 1 or 2, got"):
        SlabStream(encoder(), GRID, axis=axis)
    if axis is not None:
        with pytest.raises(ValueError, match="axis must be 0, 1 or 2, got"):
            whole(encoder(), axis)


def test_an_encoder_in_training_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="encoder must be in eval mode to encode slab by slab"):
        SlabStream(encoder().train(), GRID, axis=0)


def test_slabs_that_do_not_fit_are_refused() -> None:
    stream = SlabStream(encoder(), GRID, axis=2)
    stream.push(volume()[..., :4])
    for wrong in (volume(), volume()[..., :0], volume()[:, :6, :, :2], volume()[0, ..., :2]):
        with pytest.raises(
            ValueError, match=r"slab must be \(C, 7, 5, 1 to 2\), what is left of the scan along axis 2"
        ):
            stream.push(wrong)
    stream.push(volume()[..., 4:])
    with pytest.raises(ValueError, match=r"slab must be \(C, 7, 5, none, all have arrived\), what is left"):
        stream.push(volume()[..., 4:])
