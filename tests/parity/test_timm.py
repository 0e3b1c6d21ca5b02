"""timm 1.0: axial and DINOv3 rotary encodings. It needs a torchvision that fits torch, so it is in no extra."""

import math

import pytest
import torch

from medattn import VoxelGrid, create_encoding, token_coordinates
from medattn.encodings.rotary_layout import to_interleaved
from medattn.encodings.spectrum import rope_wavelengths
from tests.parity.peers import peer

theirs = peer("timm.layers.pos_embed_sincos", "pip install timm torchvision")

SHAPE, PAIRS = (2, 3, 4), 4


def test_axial_rotary() -> None:
    """build_rotary_pos_embed with in_pixels=False: T^(-i/P) a token for i < P = dim / 4, counted from 0; axes behind
    each other, each angle repeated twice, for interleaved pairs. Ours in "index", channel by channel."""
    sin, cos = theirs.build_rotary_pos_embed(list(SHAPE), dim=4 * PAIRS, in_pixels=False)
    q = torch.randn(2, 3, 24, 6 * PAIRS)
    expected = theirs.apply_rot_embed(q, sin, cos)
    lengths = rope_wavelengths(PAIRS)
    ours = create_encoding(
        "rotary_axial", dim=18 * PAIRS, num_heads=3, frame="index", wavelengths_mm=(lengths[0], lengths[-1])
    )
    grid = VoxelGrid.from_spacing(SHAPE, 1.0)
    signal = ours(token_coordinates(grid, 1, "index", origin_mm=grid.origin_mm)[None])
    torch.testing.assert_close(signal.rotate(q).float(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("half", [False, True])
def test_dinov3_rotary(half: bool) -> None:
    """Centres (n + 0.5) / N mapped to -1 .. 1 on each axis, 2 pi u / T^(i/P) for i < P = dim / 4, rows then columns;
    half-split (DINOv3's own) or interleaved pairs. It has two axes, so ours is compared on a single slice, where the
    pairs of the third axis do not turn; logits are the same once the channels are in our order."""
    shape, heads = (3, 4), 2
    rope = theirs.RotaryEmbeddingDinoV3(4 * PAIRS, temperature=100.0, rotate_half=half).eval()
    embed = rope.get_embed(list(shape))
    q, k = torch.randn(2, 1, heads, 12, 4 * PAIRS)
    expected = theirs.apply_rot_embed_cat(q, embed, half=half) @ theirs.apply_rot_embed_cat(k, embed, half=half).mT
    ours = create_encoding("rotary_dino", dim=6 * PAIRS * heads, num_heads=heads, frame="fraction", base=100.0).eval()
    signal = ours(token_coordinates(VoxelGrid.from_spacing((*shape, 1), 1.0), 1, "fraction")[None])
    layout = "half" if half else "interleaved"

    def in_our_order(x: torch.Tensor) -> torch.Tensor:
        channels_first = x.movedim(-1, 0)
        ordered = to_interleaved(channels_first, 1, layout).movedim(0, -1)
        return torch.nn.functional.pad(ordered, (0, 2 * PAIRS))

    found = signal.rotate(in_our_order(q)) @ signal.rotate(in_our_order(k)).mT
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=1e-4)


def test_dinov3_augmentation_has_our_ranges() -> None:
    """Shift uniform in -s .. s of u, jitter and rescale log-uniform in 1/J .. J: the extremes of 2,000 draws."""
    rope = theirs.RotaryEmbeddingDinoV3(8, shift_coords=0.3, jitter_coords=1.5, rescale_coords=2.0).train()
    ours = create_encoding(
        "rotary_dino", dim=12, num_heads=1, frame="fraction", shift=0.3, jitter=1.5, rescale=2.0
    ).train()
    torch.manual_seed(0)
    places = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.1, 0.1]], dtype=torch.float64)
    mine = ours._changed((2 * places).expand(2000, 2, 3))
    other = torch.stack([rope._apply_coord_augs(2 * places[:, :2]) for _ in range(2000)])
    for found in (mine, other):
        factor = (found[:, 1] - found[:, 0]) / 0.2
        assert 2.5 < float(factor.max()) <= 3.0  # 1.5 x 2
        assert 1 / 3 <= float(factor.min()) < 0.4
        assert 0.29 < float((found[:, 0] / factor).abs().max()) <= 0.3
    assert math.isclose(float(mine.mean()), float(other.mean()), abs_tol=0.02)
