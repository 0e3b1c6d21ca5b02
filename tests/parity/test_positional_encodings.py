"""positional-encodings 6.0.3: sines added to the tokens."""

import pytest
import torch

from medattn import VoxelGrid, create_encoding, token_coordinates
from medattn.encodings.spectrum import rope_wavelengths
from tests.parity.peers import peer

theirs = peer("positional_encodings.torch_encodings", "pip install positional-encodings")

SHAPE = (2, 3, 4)


def places(frame: str) -> torch.Tensor:
    """Counted from the first token, as they do."""
    grid = VoxelGrid.from_spacing(SHAPE, 1.0)
    origin = {} if frame == "sequence" else {"origin_mm": grid.origin_mm}
    return token_coordinates(grid, 1, frame, **origin)[None]


def test_one_axis() -> None:
    """Interleaved sine and cosine, omega_i = 10000^(-2i/dim) a token: ours in "sequence", channel by channel."""
    expected = theirs.PositionalEncoding1D(34)(torch.zeros(1, 24, 34))
    found = create_encoding("sincos", dim=34, num_heads=2, frame="sequence")(places("sequence")).additive
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=1e-5)


def test_three_axes() -> None:
    """Interleaved, x then y then z, dim / 3 channels an axis and omega_i = 10000^(-2i / (dim / 3)) a voxel: ours in
    "index" channel by channel, once the frequencies are said as wavelengths of voxels of 1 mm."""
    lengths = rope_wavelengths(8)
    expected = theirs.PositionalEncoding3D(48)(torch.zeros(1, *SHAPE, 48)).flatten(1, 3)
    ours = create_encoding("sincos", dim=48, num_heads=2, frame="index", wavelengths_mm=(lengths[0], lengths[-1]))
    torch.testing.assert_close(ours(places("index")).additive.float(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("dim", "distinct"), [(6, 24), (8, 6), (16, 24)])
def test_its_last_axis_goes_without_channels_and_ours_never_does(dim: int, distinct: int) -> None:
    """It rounds each axis' channels up and cuts the end off: at 8 channels, 4 + 4 + 0, so that the four tokens of a
    column along z have one code."""
    expected = theirs.PositionalEncoding3D(dim)(torch.zeros(1, *SHAPE, dim)).flatten(0, 3)
    ours = create_encoding("sincos", dim=dim, num_heads=1, frame="index")(places("index")).additive[0]
    assert [len(codes.round(decimals=5).unique(dim=0)) for codes in (expected, ours)] == [distinct, 24]


def test_its_cache_knows_the_shape_alone_and_ours_has_none() -> None:
    """The dtype of the first call decides that of the next: its cache is looked up by shape."""
    module = theirs.PositionalEncoding3D(48)
    module(torch.zeros(1, *SHAPE, 48))
    assert module(torch.zeros(1, *SHAPE, 48, dtype=torch.float64)).dtype == torch.float32
    ours = create_encoding("sincos", dim=48, num_heads=2, frame="mm")
    ours(places("index").float())
    assert ours(places("index")).additive.dtype == torch.float64
