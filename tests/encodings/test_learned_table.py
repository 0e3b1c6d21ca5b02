"""A learned table on its own grid and on others."""

import pytest
import torch
from torch.nn import functional as F

from medattn import VoxelGrid, create_encoding, token_coordinates

SHAPE = (2, 3, 4)


def table_encoding(frame: str, **options: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return create_encoding(
        "learned_table", dim=8, num_heads=2, frame=frame, **{"table_shape": SHAPE, "table_step": 2, **options}
    )


def added(encoding: torch.nn.Module, shape: tuple[int, int, int], patch: int = 2) -> torch.Tensor:
    """(I, J, K, D): what is added to the tokens of a volume of ``shape`` tokens."""
    grid = VoxelGrid.from_spacing([patch * n for n in shape], (1.0, 2.0, 5.0))
    found = encoding(token_coordinates(grid, patch, encoding.frame)[None]).additive
    return found[0].reshape(*shape, -1).detach()


@pytest.mark.parametrize("frame", ["fraction", "index", "sequence"])
def test_on_its_own_grid_it_is_the_table(frame: str) -> None:
    encoding = table_encoding(frame)
    torch.testing.assert_close(added(encoding, SHAPE), encoding.table.detach().double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 6, 8), (3, 2, 5), (1, 3, 7)])
def test_in_fractions_it_is_resized_as_an_image_is(shape: tuple[int, int, int]) -> None:
    encoding = table_encoding("fraction")
    table = encoding.table.detach().double().permute(3, 0, 1, 2)[None]
    expected = F.interpolate(table, shape, mode="trilinear", align_corners=False)[0].permute(1, 2, 3, 0)
    torch.testing.assert_close(added(encoding, shape), expected, rtol=0, atol=1e-12)


def test_in_index_it_keeps_its_nodes_and_its_centre_and_continues_its_border() -> None:
    encoding = table_encoding("index")
    table = encoding.table.detach().double()
    inner = added(encoding, (2, 1, 2))  # the middle of the table
    torch.testing.assert_close(inner[:, 0], table[:, 1, 1:3], rtol=0, atol=1e-12)
    outer = added(encoding, (2, 5, 4))
    torch.testing.assert_close(outer[:, 1:4], table, rtol=0, atol=1e-12)
    torch.testing.assert_close(outer[:, [0, 4]], table[:, [0, 2]], rtol=0, atol=1e-12)


def test_half_way_between_two_nodes_it_is_their_mean() -> None:
    encoding = table_encoding("sequence")
    rows = encoding.table.detach().double().flatten(0, 2)
    found = encoding(torch.tensor([[[2.0], [2.5], [-1.0], [23.0], [99.0]]], dtype=torch.float64)).additive[0]
    expected = torch.stack([rows[2], (rows[2] + rows[3]) / 2, rows[0], rows[23], rows[23]])
    torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("frame", ["mm", "patient_mm", "scanner_mm"])
def test_in_mm_it_is_refused_with_the_reason(frame: str) -> None:
    with pytest.raises(
        ValueError, match=rf"'learned_table' is not defined in frame '{frame}'.*no place in mm; use 'fou"
    ):
        table_encoding(frame)


@pytest.mark.parametrize("options", [{"table_shape": 0}, {"table_shape": (2, 3)}, {"table_step": -1}])
def test_bad_options_are_named(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        table_encoding("fraction", **options)
