"""Biases by displacement against their formulas, pair by pair."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from medattn import PositionalEncoding, PositionSignal, TokenLayout, VoxelGrid, create_encoding, token_coordinates
from medattn.coordinates import token_steps
from medattn.encodings.bias import PairBias, SumBias, TableBias, sum_of_biases
from medattn.encodings.kernel_encoding import distances
from tests.contracts.position import two_grids

HEADS = 2
GRIDS = [two_grids()[0].patch_grid(1), VoxelGrid((2, 3, 4), two_grids()[1].affine), two_grids()[1].patch_grid(2)]


def build(name: str, frame: str = "patient_mm", **options: Any) -> PositionalEncoding:
    torch.manual_seed(0)
    return create_encoding(name, dim=12, num_heads=HEADS, frame=frame, **options)


def placed(frame: str, grids: list[VoxelGrid]) -> tuple[Tensor, TokenLayout]:
    """Coordinates (B, N, A), the last one repeated, and the layout."""
    single = [token_coordinates(grid, 1, frame) for grid in grids]
    longest = max(len(c) for c in single)
    coords = torch.stack([torch.cat([c, c[-1:].expand(longest - len(c), -1)]) for c in single])
    return coords, TokenLayout(
        tuple(grid.shape for grid in grids), torch.stack([token_steps(grid, 1, frame) for grid in grids])
    )


def bias_of(encoding: PositionalEncoding, grid: VoxelGrid) -> Tensor:
    coords, layout = placed(encoding.frame, [grid])
    signal = encoding(coords, layout)
    assert isinstance(signal.bias, TableBias)
    return signal.bias.dense()[0].detach()


# -- formulas ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_slopes_times_distances_in_the_patient(grid: VoxelGrid) -> None:
    found = bias_of(build("distance_slopes", reference_distance_mm=10.0), grid)
    world = grid.to_world(grid.indices().reshape(-1, 3))
    expected = -(world[:, None] - world).square().sum(-1).sqrt() / 10
    torch.testing.assert_close(found[0], expected / 2**4, rtol=0, atol=1e-9)
    torch.testing.assert_close(found[1], expected / 2**8, rtol=0, atol=1e-9)


def test_slopes_can_be_learned_and_stay_positive() -> None:
    encoding = build("distance_slopes", learned=True)
    torch.testing.assert_close(encoding.slopes_per_mm, build("distance_slopes").slopes_per_mm.float())
    encoding.log_slopes.data.fill_(-100.0)
    assert float(encoding.slopes_per_mm.min()) > 0


def test_bumps_over_the_distance() -> None:
    encoding = build("radial_bias", num_basis=3, range_mm=(0.0, 20.0))
    found = encoding.kernel(torch.tensor([[3.0, 0.0, 4.0]], dtype=torch.float64))[0]
    for head in range(HEADS):
        expected = sum(
            float(encoding.weight[m, head]) * math.exp(-((5 - c) ** 2) / 200) for m, c in enumerate((0, 10, 20))
        )
        assert float(found[head]) == pytest.approx(expected, abs=1e-6)


def test_the_continuous_bias_is_a_perceptron_of_log_displacements() -> None:
    encoding = build("continuous_bias", hidden_dim=5, scale_mm=4.0)
    found = encoding.kernel(torch.tensor([[-4.0, 12.0, 0.0]], dtype=torch.float64))
    expected = encoding.mlp(torch.tensor([[-1.0, 2.0, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(found, expected)
    bounded = build("continuous_bias", hidden_dim=5, scale_mm=4.0, bound=16.0)
    torch.testing.assert_close(bounded.kernel(torch.tensor([[-4.0, 12.0, 0.0]]).double()), 16 * expected.sigmoid())


@pytest.mark.parametrize("name", ["distance_slopes", "radial_bias", "continuous_bias"])
@pytest.mark.parametrize("frame", ["index", "mm", "patient_mm", "sequence"])
def test_tables_hold_the_kernel_of_every_pair(name: str, frame: str) -> None:
    encoding = build(name, frame)
    coords, layout = placed(frame, GRIDS)
    bias = encoding(coords, layout).bias
    dense = bias.dense().detach()
    for sample, length in enumerate(layout.lengths):
        x = encoding.units(coords[sample, :length])
        expected = encoding.kernel(x[None, :] - x[:, None]).movedim(-1, 0).detach()
        torch.testing.assert_close(dense[sample, :, :length, :length], expected, rtol=0, atol=1e-8)
        assert not dense[sample, :, length:].any()
        assert not dense[sample, :, :, length:].any()
    scattered = encoding(coords).bias
    assert isinstance(scattered, PairBias)
    assert sum(t.numel() for t in bias.tables) <= HEADS * 8 * sum(layout.lengths)


def test_one_table_serves_scans_of_one_grid_and_unlike_scans_have_their_own() -> None:
    encoding = build("distance_slopes", "mm")
    same, unlike = (encoding(*placed("mm", grids)).bias for grids in ([GRIDS[0]] * 3, GRIDS))
    assert (len(same.tables), len(unlike.tables)) == (1, 3)
    assert same.dense().shape[0] == 1


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 3, 3), (1, 4, 2), (4, 4, 4)])
def test_a_relative_table_has_an_entry_for_each_displacement(shape: tuple[int, int, int]) -> None:
    encoding = build("relative_table", "index", max_shape=4)
    grid = VoxelGrid.from_spacing(shape, 1.0)
    index = grid.indices().reshape(-1, 3).long()
    found = bias_of(encoding, grid)
    for q, m in torch.cartesian_prod(*[torch.arange(len(index))] * 2).tolist():
        i, j, k = (index[m] - index[q] + 3).tolist()
        assert torch.equal(found[:, q, m], encoding.table[:, i, j, k].detach())


@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("shapes", [((2, 3, 4),), ((3, 3, 3),), ((2, 3, 4), (1, 2, 2), (4, 1, 3))])
def test_decomposed_positions_are_their_definition(shapes: tuple[tuple[int, int, int], ...], prefix: int) -> None:
    encoding = build("relative_decomposed", "index", max_shape=4).double()
    grids = [VoxelGrid.from_spacing(shape, 1.0) for shape in shapes]
    coords, layout = placed("index", grids)
    channels = encoding(coords, layout).with_prefix(prefix).channels
    q = torch.randn(len(grids), HEADS, prefix + coords.shape[1], 6, dtype=torch.float64)
    found = (channels.queries(q) @ channels.keys(q.dtype).mT).detach()
    assert found.shape == (len(grids), HEADS, q.shape[2], q.shape[2])
    for sample, grid in enumerate(grids):
        index = grid.indices().reshape(-1, 3).long()
        expected = torch.zeros_like(found[sample])
        for n, m in torch.cartesian_prod(*[torch.arange(len(index))] * 2).tolist():
            rows = [t[d] for t, d in zip(encoding.tables, (index[m] - index[n] + 3).tolist(), strict=True)]
            expected[:, prefix + n, prefix + m] = q[sample, :, prefix + n] @ sum(rows).detach()
        torch.testing.assert_close(found[sample], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["relative_table", "relative_decomposed"])
def test_a_grid_beyond_the_table_is_named(name: str) -> None:
    encoding = build(name, "index", max_shape=(4, 4, 3))
    with pytest.raises(
        ValueError, match=f"max_shape of '{name}' must be at least the token grid, got 3 on axis k for 4"
    ):
        encoding(*placed("index", [VoxelGrid.from_spacing((2, 3, 4), 1.0)]))
    with pytest.raises(ValueError, match=rf"'{name}' is not defined in frame 'mm', only in index: it has an entry for"):
        build(name, "mm")


# -- Gaussian channels ---------------------------------------------------------------------------------


def gaussian_logits(encoding: PositionalEncoding, coords: Tensor, dtype: torch.dtype, prefix: int = 0) -> Tensor:
    channels = encoding(coords).to(coords.device, dtype).with_prefix(prefix).channels
    q = torch.zeros(len(coords), HEADS, prefix + coords.shape[1], 6, dtype=dtype)
    queries, keys = channels.queries(q), channels.keys(dtype)
    assert queries.dtype == keys.dtype == dtype
    return queries.double() @ keys.double().mT


@pytest.mark.parametrize("ratio", [None, (1.0, 0.5, 3.0)])
def test_gaussian_logits_are_squared_distances_over_sigma(ratio: Any) -> None:
    encoding = build("gaussian", "mm", sigma_mm=(5.0, 40.0), axis_ratio=ratio)
    coords = 100 * torch.randn(2, 7, 3, dtype=torch.float64)
    found = gaussian_logits(encoding, coords, torch.float64, prefix=2)
    for head, sigma in enumerate((5.0, 40.0)):
        scaled = coords / (sigma * torch.tensor(ratio or (1.0, 1.0, 1.0)))
        torch.testing.assert_close(
            found[:, head, 2:, 2:], -torch.cdist(scaled, scaled).square() / 2, rtol=1e-9, atol=1e-9
        )
    assert not found[:, :, :2].any()
    assert not found[:, :, :, :2].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gaussian_logits_survive_half_precision(dtype: torch.dtype) -> None:
    encoding = build("gaussian", "mm", sigma_mm=(2.0, 16.0))
    coords = 300 * (2 * torch.rand(1, 200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1)
    coords[0, 1::2] = coords[0, ::2] + 2 * torch.randn(100, 3, dtype=torch.float64)  # pairs of near neighbours
    exact, found = (gaussian_logits(encoding, coords, kind) for kind in (torch.float64, dtype))
    near = exact > -30  # beyond it a weight is below 1e-13
    assert int(near.sum()) > 500
    assert float((found - exact).abs()[near].max()) < 2e-2


def test_learned_sigmas_get_gradients_in_half_precision_too() -> None:
    encoding = build("gaussian", "mm", learned=True, axis_ratio=(1.0, 1.0, 1.0))
    assert encoding.log_sigma.shape == (HEADS, 3)
    coords = 30 * torch.randn(1, 5, 3, dtype=torch.float64)
    grads = []
    for dtype in (torch.float64, torch.bfloat16):
        encoding.zero_grad()
        gaussian_logits(encoding, coords, dtype).sum().backward()
        grads.append(encoding.log_sigma.grad.clone())
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-2, atol=1e-2)


# -- bias objects --------------------------------------------------------------------------------------


def test_distances_have_a_gradient_everywhere() -> None:
    x = torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]], dtype=torch.float64, requires_grad=True)
    found = distances(x)
    assert found.tolist() == [0.0, 5.0]
    found.sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([[0, 0, 0], [0.6, 0, 0.8]], dtype=torch.float64))


def test_sums_of_tables_are_tables_and_other_sums_are_sums() -> None:
    slopes, radial = build("distance_slopes"), build("radial_bias")
    gridded = [encoding(*placed("patient_mm", GRIDS)).bias for encoding in (slopes, radial)]
    scattered = radial(placed("patient_mm", GRIDS)[0]).bias
    total = sum_of_biases(gridded)
    assert isinstance(total, TableBias)
    torch.testing.assert_close(total.dense(), gridded[0].dense() + gridded[1].dense())
    mixed = sum_of_biases([gridded[0], scattered])
    assert isinstance(mixed, SumBias)
    torch.testing.assert_close(mixed.with_prefix(1).dense()[..., 1:, 1:], gridded[0].dense() + scattered.dense())
    assert sum_of_biases([]) is None
    assert sum_of_biases([scattered]) is scattered


def test_signals_of_a_table_keep_it_through_casts_and_prefixes() -> None:
    signal = build("distance_slopes")(*placed("patient_mm", GRIDS))
    cast = signal.to(torch.device("cpu"), torch.bfloat16).with_prefix(3)
    assert cast.bias.tables[0].dtype == torch.float32
    dense = cast.bias.dense()
    torch.testing.assert_close(dense[..., 3:, 3:].double(), signal.bias.dense(), rtol=0, atol=1e-5)
    assert not dense[..., :3, :].any()
    assert not dense[..., :3].any()
    assert isinstance(PositionSignal(bias=cast.bias).bias, TableBias)


def test_a_table_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"table must be \(H, 3, 5, 7\), got \(1, 3, 5, 5\)"):
        TableBias((torch.zeros(1, 3, 5, 5),), ((2, 3, 4),), 24)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("distance_slopes", {"reference_distance_mm": 0.0}),
        ("radial_bias", {"num_basis": 1}),
        ("radial_bias", {"range_mm": (5.0, 5.0)}),
        ("continuous_bias", {"scale_mm": -1.0}),
        ("continuous_bias", {"bound": 0.0}),
        ("continuous_bias", {"hidden_dim": 0}),
        ("gaussian", {"sigma_mm": (1.0, 0.0)}),
        ("gaussian", {"sigma_mm": 3.0}),
        ("gaussian", {"axis_ratio": (1.0, 2.0)}),
    ],
)
def test_bad_options_are_named(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        build(name, **options)
