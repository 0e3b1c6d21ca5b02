"""Patches of a size in mm: the pseudo-inverse keeps inner products."""

import pytest
import torch

from medattn import VolumeEncoder, VoxelGrid, create_encoding
from medattn.layers import PatchEmbed, PhysicalPatchEmbed
from medattn.layers.physical_patch_embed import upsampling_matrix
from tests.encoders import close


def embed(
    patch_mm: object = (8.0, 6.0, 4.0), spacing: object = (2.0, 2.0, 1.0), channels: int = 2
) -> PhysicalPatchEmbed:
    torch.manual_seed(0)
    return PhysicalPatchEmbed(channels, 6, patch_mm, spacing)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_linear_upsampling_by_hand() -> None:
    found = upsampling_matrix(2, 4, 0.5)  # samples at -.25, .25, .75, 1.25, the ends continued
    expected = torch.tensor([[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert torch.equal(upsampling_matrix(3, 3, 1.0), torch.eye(3, dtype=torch.float64))


def test_at_the_reference_it_is_a_plain_patch_embedding() -> None:
    physical, plain = embed(), PatchEmbed(2, 6, (4, 3, 4))
    plain.load_state_dict(physical.state_dict())
    volume, grid = noise(3, 2, 8, 6, 9), VoxelGrid.from_spacing((8, 6, 9), (2.0, 2.0, 1.0))
    assert physical.patch_size_on(grid) == (4, 3, 4)
    assert torch.equal(physical(volume, grid), plain(volume))


@pytest.mark.parametrize("spacing", [(1.0, 2.0, 1.0), (2.0, 0.5, 0.25), (1.0, 1.0, 0.5)])
def test_what_is_the_same_in_mm_gives_the_same_token_on_finer_grids(spacing: tuple[float, float, float]) -> None:
    physical, patch = embed().double(), noise(2, 4, 3, 4).double()
    grid = VoxelGrid.from_spacing((8, 6, 4), spacing)
    size = physical.patch_size_on(grid)
    finer = patch
    for axis, (nodes, samples) in enumerate(zip((4, 3, 4), size, strict=True)):
        matrix = upsampling_matrix(nodes, samples, spacing[axis] / (2.0, 2.0, 1.0)[axis])
        finer = torch.tensordot(finer, matrix, dims=([axis + 1], [1])).movedim(-1, axis + 1)
    reference = physical(patch[None], VoxelGrid.from_spacing((4, 3, 4), (2.0, 2.0, 1.0)))
    seen = physical(finer[None], VoxelGrid.from_spacing(size, spacing))
    assert seen.shape == (1, 1, 6)
    torch.testing.assert_close(seen, reference, rtol=0, atol=1e-10)
    assert not torch.allclose(physical(2 * finer[None], VoxelGrid.from_spacing(size, spacing)), reference, atol=1e-3)


def test_on_coarser_grids_the_kernel_is_the_nearest_one() -> None:
    physical = embed((8.0, 2.0, 1.0), (2.0, 2.0, 1.0), channels=1).double()
    grid = VoxelGrid.from_spacing((2, 1, 1), (4.0, 2.0, 1.0))
    sample = upsampling_matrix(4, 2, 2.0)  # B: two samples of four nodes
    expected = physical.projection.weight @ torch.linalg.pinv(sample)
    torch.testing.assert_close(physical.kernel_on(grid), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("spacing", "size"),
    [((2.0, 2.0, 5.0), (4, 3, 1)), ((3.0, 4.0, 1.6), (3, 2, 3)), ((100.0, 100.0, 100.0), (1, 1, 1))],
)
def test_a_patch_is_as_many_voxels_as_fit_best(spacing: tuple[float, float, float], size: tuple[int, int, int]) -> None:
    assert embed().patch_size_on(VoxelGrid.from_spacing((9, 9, 9), spacing)) == size


def test_scans_of_unlike_spacing_share_a_batch() -> None:
    encoding = create_encoding("rotary_axial", dim=24, num_heads=2, frame="mm")
    torch.manual_seed(0)
    encoder = VolumeEncoder(encoding, patch_size=PhysicalPatchEmbed(1, 24, 8.0, 2.0), depth=1).eval()
    grids = [VoxelGrid.from_spacing((8, 8, 8), 2.0), VoxelGrid.from_spacing((16, 8, 4), (1.0, 2.0, 4.0))]
    volumes = [noise(1, *grid.shape) for grid in grids]
    encoded = encoder(volumes, grids)
    assert [g.shape for g in encoded.grids] == [(2, 2, 2), (2, 2, 2)]
    assert [g.spacing_mm.tolist() for g in encoded.grids] == [[8, 8, 8], [8, 8, 8]]
    for sample in (0, 1):
        close(encoded[sample], encoder([volumes[sample]], [grids[sample]])[0].detach(), atol=1e-5)
    encoded.tokens[..., 0].sum().backward()
    assert bool((encoder.patch_embed.projection.weight.grad != 0).any())
    with pytest.raises(ValueError, match="the patch size of PhysicalPatchEmbed depends on the scan"):
        _ = encoder.patch_size


def test_bad_sizes_are_named() -> None:
    with pytest.raises(ValueError, match=r"patch_mm must be a whole number of reference voxels.*got patch_mm=\(5.0"):
        embed(5.0, 2.0)
    with pytest.raises(ValueError, match="patch_mm must be positive"):
        embed(0.0)
    with pytest.raises(ValueError, match="needs the grid of the volume, got None"):
        embed()(noise(1, 2, 4, 4, 4))
    with pytest.raises(ValueError, match=r"volume must be \(B, 2, I, J, K\), got \(1, 1, 4, 4, 4\)"):
        embed()(noise(1, 1, 4, 4, 4), VoxelGrid.from_spacing((4, 4, 4), 1.0))
