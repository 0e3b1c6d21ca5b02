"""rotary-embedding-torch 0.9.1: turns of queries and keys."""

import torch

from medattn import VoxelGrid, create_encoding, token_coordinates
from medattn.encodings.spectrum import rope_wavelengths
from tests.parity.peers import peer

theirs = peer("rotary_embedding_torch", "pip install rotary-embedding-torch")

SHAPE, PAIRS = (2, 3, 4), 4
"""Token grid, and channel pairs of each axis."""


def test_one_axis() -> None:
    """Pairs (2p, 2p + 1), interleaved; theta^(-2i/d) a token, counted from 0: ours in "sequence"."""
    q = torch.randn(2, 3, 24, 16)
    expected = theirs.RotaryEmbedding(16).rotate_queries_or_keys(q)
    ours = create_encoding("rotary_axial", dim=48, num_heads=3, frame="sequence")
    coords = torch.arange(24, dtype=torch.float64)[None, :, None]
    torch.testing.assert_close(ours(coords).rotary.shape, torch.Size((1, 1, 24, 8, 2)))
    found = ours(coords).rotate(q)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=1e-5)


def test_three_axes() -> None:
    """get_axial_freqs lays the axes behind each other, interleaved within each, theta^(-2i / (2 P)) a voxel, counted
    from 0: ours in "index", channel by channel, with the frequencies said as wavelengths of voxels of 1 mm."""
    q = torch.randn(2, 3, *SHAPE, 6 * PAIRS)
    expected = theirs.apply_rotary_emb(theirs.RotaryEmbedding(2 * PAIRS).get_axial_freqs(*SHAPE), q)
    lengths = rope_wavelengths(PAIRS)
    ours = create_encoding(
        "rotary_axial", dim=18 * PAIRS, num_heads=3, frame="index", wavelengths_mm=(lengths[0], lengths[-1])
    )
    grid = VoxelGrid.from_spacing(SHAPE, 1.0)
    signal = ours(token_coordinates(grid, 1, "index", origin_mm=grid.origin_mm)[None])
    found = signal.rotate(q.flatten(2, 4))
    torch.testing.assert_close(found.float(), expected.flatten(2, 4), rtol=0, atol=1e-5)


def test_its_pixel_mode_measures_between_outermost_centres_and_ours_between_edges() -> None:
    """linspace(-1, 1) puts the outermost centres on the edges: a point between the same two anatomical places is then
    turned by another angle on a finer grid of one field of view. Our "fraction" gives it the same angle."""
    rotary = theirs.RotaryEmbedding(8, freqs_for="pixel", max_freq=10)
    coarse, fine = (rotary.get_axial_freqs(n)[:, 0].double() for n in (4, 8))
    # voxel k of 4 is the middle of voxels 2 k and 2 k + 1 of 8
    assert float((coarse - fine.unflatten(0, (4, 2)).mean(1)).abs().max()) > 0.3
    ours = [
        token_coordinates(VoxelGrid.from_spacing((n, 1, 1), 8 / n), 1, "fraction")[:, 0].unflatten(0, (4, n // 4))
        for n in (4, 8)
    ]
    torch.testing.assert_close(ours[0].mean(1), ours[1].mean(1), rtol=0, atol=1e-12)
