"""MONAI 1.6.1: its position embeddings, its vision transformer, and where we differ because it is wrong."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from medattn import PositionSignal, TokenLayout, VolumeEncoder, VoxelGrid, create_encoding, token_coordinates
from medattn.encodings.spectrum import rope_wavelengths
from medattn.models.monai_weights import encoder_from_monai_vit
from tests.parity.peers import peer

nets = peer("monai.networks.nets", "pip install monai")
pos_embed = peer("monai.networks.blocks.pos_embed_utils", "pip install monai")
blocks = peer("monai.networks.blocks", "pip install monai")

SHAPE = (2, 3, 4)
GRID = VoxelGrid.from_spacing(SHAPE, 1.0)
FROM_ZERO = {"origin_mm": GRID.origin_mm}
"""MONAI counts from the first token, not from the middle."""


def test_sincos() -> None:
    """Half-split per axis, in order w, h, d: (sin w, cos w, sin h, cos h, sin d, cos d); omega_i = T^(-i/P) for i < P =
    dim / 6 in radians per token, counted from 0; dim must be a multiple of 6. Ours interleaves sine and cosine, in
    order i, j, k, and takes the same frequencies as wavelengths 2 pi T^(i/P) of voxels of 1 mm."""
    pairs, theirs = 8, pos_embed.build_sincos_position_embedding(list(SHAPE), 48, 3)[0]
    lengths = rope_wavelengths(pairs)
    ours = create_encoding(
        "sincos", dim=48, num_heads=2, frame="index", wavelengths_mm=(lengths[0], lengths[-1]), reference_spacing_mm=1.0
    )
    found = ours(token_coordinates(GRID, 1, "index", **FROM_ZERO)[None]).additive[0]  # (N, dim): axis, pair, sin / cos
    by_axis = found.unflatten(-1, (3, pairs, 2)).mT[:, [1, 0, 2]].flatten(1)
    torch.testing.assert_close(by_axis.float(), theirs.data, rtol=0, atol=1e-5)


def test_sincos_refuses_what_six_does_not_divide_and_ours_shares_it_out() -> None:
    with pytest.raises(AssertionError, match="divisible by 6"):
        pos_embed.build_sincos_position_embedding(list(SHAPE), 64, 3)
    ours = create_encoding("sincos", dim=64, num_heads=2, frame="index")
    codes = ours(token_coordinates(GRID, 1, "index")[None]).additive[0]
    assert float((torch.cdist(codes, codes) + torch.eye(24)).min()) > 0.1


def test_fourier_features() -> None:
    """(sin 2 pi B u, cos 2 pi B u), B ~ N(0, scale) drawn from the global generator, u = linspace(0, 1) from the first
    token to the last: a unit of its own on each grid. Ours has cosines first and centres of tokens in mm; with
    B / extent between outermost centres it is the same."""
    dim, scales = 32, [1.0, 2.0, 0.5]
    torch.manual_seed(3)
    theirs = pos_embed.build_fourier_position_embedding(list(SHAPE), dim, 3, scales=scales)[0]
    torch.manual_seed(3)
    gaussians = torch.randn(dim // 2, 3) * torch.tensor(scales)
    ours = create_encoding("fourier", dim=dim, num_heads=2, frame="mm")
    grid = VoxelGrid.from_spacing(SHAPE, (1.5, 2.0, 4.0))
    between_outermost = grid.spacing_mm * (torch.tensor(SHAPE) - 1)
    ours.load_state_dict({"frequencies_per_mm": gaussians / between_outermost})
    coords = token_coordinates(grid, 1, "mm", origin_mm=grid.origin_mm)[None]
    cosine, sine = ours(coords).additive[0].chunk(2, dim=-1)
    torch.testing.assert_close(torch.cat([sine, cosine], -1).float(), theirs.data, rtol=0, atol=1e-5)


# -- the vision transformer ----------------------------------------------------------------------------

IMAGE, PATCH = (8, 12, 16), (4, 4, 8)


def monai_vit(**options: Any) -> Any:
    torch.manual_seed(0)
    settings = {"hidden_size": 48, "mlp_dim": 80, "num_layers": 2, "num_heads": 4, **options}
    vit = nets.ViT(in_channels=2, img_size=IMAGE, patch_size=PATCH, **settings).eval()
    for name, parameter in vit.named_parameters():  # biases and norms too, so that none can be forgotten
        if "position" not in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return vit


@pytest.mark.parametrize("pos_embed_type", ["learnable", "sincos", "fourier", "none"])
@pytest.mark.parametrize("proj_type", ["conv", "perceptron"])
@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("frame", ["sequence", "index", "fraction"])
def test_an_encoder_with_its_weights_gives_its_outputs(
    pos_embed_type: str, proj_type: str, qkv_bias: bool, frame: str
) -> None:
    vit = monai_vit(pos_embed_type=pos_embed_type, proj_type=proj_type, qkv_bias=qkv_bias)
    encoder = encoder_from_monai_vit(vit.state_dict(), img_size=IMAGE, patch_size=PATCH, num_heads=4, frame=frame)
    volume = torch.randn(2, 2, *IMAGE)
    grids = [VoxelGrid.from_spacing(IMAGE, (1.0, 2.0, 3.0)), VoxelGrid.from_spacing(IMAGE, 4.0)]
    with torch.no_grad():
        torch.testing.assert_close(encoder(volume, grids).tokens, vit(volume)[0], rtol=0, atol=1e-5)


def test_a_fixed_sincos_can_be_ours_instead_of_a_table() -> None:
    """The table of its sincos is our sincos on the same grid, but for the order of channels: see ``test_sincos``."""
    vit = monai_vit(pos_embed_type="sincos")
    encoder = encoder_from_monai_vit(vit.state_dict(), img_size=IMAGE, patch_size=PATCH, num_heads=4)
    lengths = rope_wavelengths(8)
    ours = create_encoding("sincos", dim=48, num_heads=4, frame="index", wavelengths_mm=(lengths[0], lengths[-1]))
    tokens = VoxelGrid.from_spacing((2, 3, 2), 1.0)
    codes = ours(token_coordinates(tokens, 1, "index", origin_mm=tokens.origin_mm)[None]).additive[0]
    expected = codes.unflatten(-1, (3, 8, 2)).mT[:, [1, 0, 2]].flatten(1).float()
    torch.testing.assert_close(encoder.encoding.table.flatten(0, 2).data, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 5}, "dim must be a multiple of num_heads"),
        ({"img_size": (8, 8, 16)}, r"must give 12 tokens, got \(2, 2, 2\)"),
        ({"patch_size": (4, 4, 4), "img_size": (8, 8, 12)}, r"patch_size must be that of the weights, \(4, 4, 8\)"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    sizes = {"img_size": IMAGE, "patch_size": PATCH, "num_heads": 4, **change}
    with pytest.raises(ValueError, match=message):
        encoder_from_monai_vit(monai_vit().state_dict(), **sizes)


def test_other_weights_are_refused() -> None:
    sizes = {"img_size": IMAGE, "patch_size": PATCH, "num_heads": 4}
    with pytest.raises(ValueError, match="classification=False"):
        encoder_from_monai_vit(monai_vit(classification=True).state_dict(), **sizes)
    state = monai_vit().state_dict()
    with pytest.raises(ValueError, match="there is also extra.weight"):
        encoder_from_monai_vit({**state, "extra.weight": torch.zeros(1)}, **sizes)
    with pytest.raises(ValueError, match=r"there is no 'blocks.1.norm2.bias'"):
        encoder_from_monai_vit({k: v for k, v in state.items() if k != "blocks.1.norm2.bias"}, **sizes)


# -- where MONAI is wrong ------------------------------------------------------------------------------


def test_its_none_is_a_trainable_zero_and_ours_is_nothing() -> None:
    vit = monai_vit(pos_embed_type="none")
    position = vit.patch_embedding.position_embeddings
    assert position.requires_grad and not bool(position.any())
    vit(torch.randn(1, 2, *IMAGE))[0].square().sum().backward()
    assert float(position.grad.abs().max()) > 1e-4  # the first step of training makes it a learned table
    none = create_encoding("none", dim=48, num_heads=4, frame="sequence")
    assert list(none.parameters()) == []
    encoder = VolumeEncoder(none, in_channels=2, patch_size=PATCH, depth=2).eval()
    volume, grid = torch.randn(1, 2, *IMAGE), VoxelGrid.from_spacing(IMAGE, 1.0)
    swapped = torch.cat([volume[:, :, 4:], volume[:, :, :4]], dim=2)  # the two halves of the tokens
    plain, moved = encoder(volume, [grid]).tokens, encoder(swapped, [grid]).tokens
    torch.testing.assert_close(moved, plain.roll(6, dims=1), rtol=0, atol=1e-5)


def test_its_flash_attention_drops_out_in_eval_and_ours_does_not() -> None:
    theirs = blocks.SABlock(48, 4, dropout_rate=0.5, use_flash_attention=True).eval()
    tokens = torch.randn(1, 6, 48)
    assert not torch.equal(theirs(tokens), theirs(tokens))
    from medattn.layers import SelfAttention

    ours = SelfAttention(48, 4, dropout=0.5).eval()
    assert torch.equal(ours(tokens, PositionSignal()), ours(tokens, PositionSignal()))


def decomposed(q: Tensor, tables: list[Tensor], shape: tuple[int, int, int]) -> Tensor:
    """(H, N, N) by the definition: q . (R_I + R_J + R_K), with the displacement query minus memory, as MONAI has it."""
    places = list(itertools.product(*map(range, shape)))
    rows = [
        [sum(t[a - b + n - 1] for t, a, b, n in zip(tables, x, y, shape, strict=True)) for y in places] for x in places
    ]
    return torch.einsum("hnd,nmd->hnm", q, torch.stack([torch.stack(row) for row in rows]))


@pytest.mark.parametrize("shape", [(3, 3, 3), (2, 3, 4)])
def test_its_decomposed_bias_takes_the_wrong_axis_and_ours_the_definition(shape: tuple[int, int, int]) -> None:
    """Its third table is indexed by the second axis ("bhwdc,wkc"): wrong by up to 19.6 on (3, 3, 3), where sizes happen
    to fit, and an error on (2, 3, 4)."""
    torch.manual_seed(0)
    count = shape[0] * shape[1] * shape[2]
    q, tables = torch.randn(2, count, 12), [torch.randn(2 * n - 1, 12) for n in shape]
    expected = decomposed(q, tables, shape)
    from monai.networks.blocks.attention_utils import add_decomposed_rel_pos

    if shape == (3, 3, 3):
        theirs = add_decomposed_rel_pos(torch.zeros(2, count, count), q, tables, shape, shape)
        assert float((theirs - expected).abs().max()) > 5
    else:
        with pytest.raises(RuntimeError):
            add_decomposed_rel_pos(torch.zeros(2, count, count), q, tables, shape, shape)
    ours = create_encoding("relative_decomposed", dim=24, num_heads=2, frame="index", max_shape=shape)
    ours.load_state_dict({f"tables.{axis}": table.flip(0) for axis, table in enumerate(tables)})  # memory minus query
    grid = VoxelGrid.from_spacing(shape, 1.0)
    layout = TokenLayout((shape,), torch.eye(3, dtype=torch.float64)[None])
    channels = ours(token_coordinates(grid, 1, "index")[None], layout).channels
    found = channels.queries(q[None])[0] @ channels.keys(torch.float32)[0].mT
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
