"""x-transformers 2.31: ALiBi."""

import pytest
import torch

from medattn import VoxelGrid, create_encoding, token_coordinates
from tests.parity.peers import peer

theirs = peer("x_transformers.x_transformers", "pip install x-transformers")


@pytest.mark.parametrize("heads", [1, 2, 8, 16])
def test_along_the_token_list(heads: int) -> None:
    """-|i - j| 2^(-8h/H), h = 1 to H, added to the scaled logits, both ways (not causal): ours in "sequence" with steps
    of 1 mm and slopes per 1 mm."""
    ours = create_encoding(
        "distance_slopes",
        dim=4 * heads,
        num_heads=heads,
        frame="sequence",
        reference_distance_mm=1.0,
        reference_step_mm=1.0,
    )
    found = ours(torch.arange(9, dtype=torch.float64)[None, :, None]).bias.dense()[0]
    torch.testing.assert_close(found.float(), theirs.AlibiPositionalBias(heads)(9, 9), rtol=0, atol=1e-6)


def test_in_space_its_places_are_one_number_each_and_ours_three() -> None:
    """On a line of tokens, its custom places in mm are our bias in frame "mm", whatever the spacing."""
    grid = VoxelGrid.from_spacing((1, 1, 7), (1.0, 1.0, 2.5))
    coords = token_coordinates(grid, 1, "mm")
    ours = create_encoding("distance_slopes", dim=32, num_heads=8, frame="mm", reference_distance_mm=1.0)
    expected = theirs.AlibiPositionalBias(8).forward_custom_pos(coords[:, 2].float())
    torch.testing.assert_close(ours(coords[None]).bias.dense()[0].float(), expected, rtol=0, atol=1e-5)


def test_heads_that_are_no_power_of_two_have_other_slopes() -> None:
    """For 6 heads ALiBi's code takes the slopes of 4 heads and then every other one of 8: 2^-2, 2^-4, 2^-6, 2^-8, 2^-1,
    2^-3, in this order. Ours are 2^(-8h/6), the paper's sequence for any number of heads."""
    expected = [2.0**-n for n in (2, 4, 6, 8, 1, 3)]
    assert theirs.AlibiPositionalBias(6).slopes.flatten().tolist() == pytest.approx(expected)
    ours = create_encoding("distance_slopes", dim=24, num_heads=6, frame="mm", reference_distance_mm=1.0)
    assert ours.slopes_per_mm.tolist() == pytest.approx([2 ** (-8 * h / 6) for h in range(1, 7)])
