"""Which bands are aliased, useful or dead: worked numbers, and the laws that they follow."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from medattn import TokenLayout, VoxelGrid, create_encoding, token_coordinates
from medattn.coordinates import Frame
from medattn.encodings.bands import Counts, Verdict
from medattn.encodings.base import PositionalEncoding
from medattn.encodings.frequencies import log_spaced
from medattn.encodings.spectrum import diagnose_spectrum, rope_wavelengths
from medattn.encodings.units import Millimetres
from tests.geometry.grids import random_grid

HEAD = VoxelGrid.from_spacing((125, 125, 125), 2.0)
"""250 mm each way."""

SPACE_FRAMES = [frame for frame in Frame if frame is not Frame.SEQUENCE]


def rotary(frame: str = "mm", **options: Any) -> PositionalEncoding:
    return create_encoding("rotary_axial", dim=120, num_heads=2, frame=frame, **options)


class Vectors(PositionalEncoding):
    """Any frequency vectors, radians per mm at the reference."""

    name = "vectors"

    def __init__(self, vectors: Any, frame: str = "mm", **references: Any) -> None:
        super().__init__(dim=8, num_heads=2, frame=frame)
        self.units = Millimetres(self.frame, **references)
        self.vectors = torch.nn.Parameter(torch.as_tensor(vectors, dtype=torch.float64))

    def frequency_vectors_mm(self) -> Tensor:
        return self.vectors


def test_base_10000_over_millimetres_wastes_four_of_ten_pairs() -> None:
    lengths = rope_wavelengths(10)
    assert lengths[0] == pytest.approx(6.283, abs=1e-3)
    assert lengths[-1] == pytest.approx(25_014, abs=1)
    assert sum(4 <= length <= 1000 for length in lengths) == 6
    spectrum = diagnose_spectrum(lengths, [HEAD], patch_size=1)  # tokens 2 mm apart, 4 x 250 mm = 1000 mm
    assert spectrum.counts() == Counts(aliased=0, useful=18, dead=12)
    assert spectrum.counts(axis=1) == Counts(0, 6, 4)


@pytest.mark.parametrize(
    ("wavelength_mm", "verdict"),
    [(31.9, "aliased"), (32.0, "useful"), (1000.0, "useful"), (1001.0, "dead"), (math.inf, "dead")],
)
def test_the_limits_are_twice_the_pitch_and_four_fields_of_view(wavelength_mm: float, verdict: str) -> None:
    spectrum = diagnose_spectrum([wavelength_mm], [HEAD], patch_size=8)
    assert [band.verdict for band in spectrum.bands] == [verdict] * 3


def test_each_axis_has_its_own_pitch_and_extent() -> None:
    grid = VoxelGrid.from_spacing((128, 128, 20), (1.0, 2.0, 5.0))
    bands = diagnose_spectrum([40.0, 450.0], [grid], patch_size=(8, 8, 4)).bands
    assert [band.axis for band in bands] == [0, 0, 1, 1, 2, 2]
    assert [band.pitch_mm for band in bands] == [8, 8, 16, 16, 20, 20]
    assert [band.extent_mm for band in bands] == [128, 128, 256, 256, 100, 100]
    assert [band.verdict for band in bands] == ["useful", "useful", "useful", "useful", "useful", "dead"]
    assert diagnose_spectrum([39.9], [grid], patch_size=(8, 8, 4)).counts(axis=2) == Counts(1, 0, 0)


def test_bands_are_those_of_the_angles() -> None:
    bands = diagnose_spectrum(rotary(wavelengths_mm=(16, 250)), [HEAD], patch_size=4).bands
    assert [band.axis for band in bands] == [0] * 10 + [1] * 10 + [2] * 10
    for axis in range(3):
        found = [band.wavelength_mm for band in bands if band.axis == axis]
        torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), log_spaced(16, 250, 10), rtol=1e-9, atol=0)


@pytest.mark.parametrize("frame", SPACE_FRAMES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_aliased_is_more_than_half_a_turn_between_neighbours(frame: Frame, seed: int) -> None:
    """Against the tokens' own coordinates: brute force over neighbouring tokens, and over the corners."""
    grid = VoxelGrid((12, 10, 14), random_grid(seed).affine)
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.exp(torch.empty(2, 40, dtype=torch.float64).uniform_(0, 7, generator=generator))
    vectors = torch.nn.functional.normalize(torch.randn(2, 40, 3, generator=generator, dtype=torch.float64), dim=-1)
    references = {"reference_spacing_mm": (1.5, 2.0, 4.0), "reference_extent_mm": (18.0, 20.0, 56.0)}
    encoding = Vectors(vectors * 2 * math.pi / lengths[..., None], frame, **references)
    spectrum = diagnose_spectrum(encoding, [grid], patch_size=2)
    angles = (encoding.units(token_coordinates(grid, 2, frame)) @ encoding.vectors.mT).detach().unflatten(1, (6, 5, 7))
    steps = torch.stack([angles.diff(dim=axis).abs().amax((1, 2, 3)) for axis in (1, 2, 3)]).amax(0).flatten()
    # from edge to edge of the voxels: half a voxel beyond the outermost centres
    corners = torch.tensor(list(itertools.product(*((-0.5, n - 0.5) for n in grid.shape))), dtype=torch.float64)
    world = grid.to_world(corners)
    spans = encoding.units(_in_frame(grid, world, frame)) @ encoding.vectors.mT
    spans = (spans.amax(1) - spans.amin(1)).detach().flatten()
    expected = [
        "aliased" if step > math.pi else "dead" if span < math.pi / 2 else "useful"
        for step, span in zip(steps.tolist(), spans.tolist(), strict=True)
    ]
    assert [band.verdict for band in spectrum.bands] == expected
    assert len(set(expected)) == 3
    assert [(band.head, band.pair) for band in spectrum.bands] == [(h, p) for h in range(2) for p in range(40)]


def _in_frame(grid: VoxelGrid, world: Tensor, frame: Frame) -> Tensor:
    if frame in (Frame.PATIENT_MM, Frame.SCANNER_MM):
        return world
    index = grid.to_index(world)
    if frame is Frame.MM:
        return index * grid.spacing_mm
    return index if frame is Frame.INDEX else index / torch.tensor(grid.shape)


def test_a_band_of_the_index_frame_is_longer_on_coarser_scans() -> None:
    fine, coarse = (VoxelGrid.from_spacing((64, 64, 64), spacing) for spacing in (1.0, 3.0))
    spectrum = diagnose_spectrum(
        rotary("index", wavelengths_mm=(16, 250), reference_spacing_mm=2.0), [fine, coarse], patch_size=4
    )
    found = [[band.wavelength_mm for band in spectrum.bands if band.grid == grid] for grid in (0, 1)]
    assert found[0][0] == pytest.approx(8)
    torch.testing.assert_close(torch.tensor(found[1]), 3 * torch.tensor(found[0]))
    assert spectrum.counts(grid=0) == spectrum.counts(grid=1)  # in voxels nothing has changed


def test_a_band_of_the_fraction_frame_grows_with_the_field_of_view() -> None:
    small, large = (VoxelGrid.from_spacing((n, n, n), 1.0) for n in (64, 128))
    spectrum = diagnose_spectrum(
        rotary("fraction", wavelengths_mm=(16, 250), reference_extent_mm=128), [small, large], patch_size=4
    )
    assert spectrum.bands[0].wavelength_mm == pytest.approx(8)
    assert spectrum.bands[30].wavelength_mm == pytest.approx(16)


@pytest.mark.parametrize("frame", SPACE_FRAMES, ids=str)
def test_twins_have_one_spectrum_at_the_reference(frame: Frame) -> None:
    references = {"reference_spacing_mm": 2.0, "reference_extent_mm": 250.0}
    found = diagnose_spectrum(rotary(frame, **references), [HEAD], patch_size=8)
    expected = diagnose_spectrum(rotary("mm"), [HEAD], patch_size=8)
    for one, other in zip(found.bands, expected.bands, strict=True):
        assert one.verdict == other.verdict
        assert one.wavelength_mm == pytest.approx(other.wavelength_mm)
        assert one.pitch_mm == pytest.approx(other.pitch_mm)
        assert one.extent_mm == pytest.approx(other.extent_mm)
    assert found.recommended_mm == pytest.approx(expected.recommended_mm)


def test_moving_or_flipping_a_scan_changes_nothing_in_the_patients_frame() -> None:
    grid = VoxelGrid((20, 30, 10), random_grid(4).affine)
    expected = diagnose_spectrum(rotary("patient_mm"), [grid], patch_size=2)
    for other in (grid.flip(0), grid.permute((2, 0, 1)), grid.crop((2, 0, 0), (12, 30, 10)).pad((2, 0, 0), (8, 0, 0))):
        found = diagnose_spectrum(rotary("patient_mm"), [other], patch_size=2)
        assert [band.verdict for band in found.bands] == [band.verdict for band in expected.bands]


def test_nothing_happens_along_an_axis_of_one_token() -> None:
    slab = VoxelGrid.from_spacing((64, 64, 4), 1.0)
    spectrum = diagnose_spectrum([5.0, 100.0], [slab], patch_size=4)
    assert spectrum.counts(axis=2) == Counts(0, 0, 2)
    assert spectrum.counts(axis=0) == Counts(1, 1, 0)
    assert spectrum.recommended_mm == (8, 64)


def test_a_frequency_of_zero_is_dead() -> None:
    band = diagnose_spectrum(Vectors([[0.0, 0.0, 0.0]]), [HEAD], patch_size=4).bands[0]
    assert (band.wavelength_mm, band.direction, band.axis, band.verdict) == (math.inf, (0, 0, 0), None, Verdict.DEAD)


def test_the_recommended_range_serves_all_scans() -> None:
    grids = [VoxelGrid.from_spacing((128, 128, 60), (1.0, 1.0, 5.0)), VoxelGrid.from_spacing((160, 160, 160), 2.0)]
    spectrum = diagnose_spectrum([10.0], grids, patch_size=8)
    assert spectrum.recommended_mm == (80, 320)  # twice 5 mm x 8, and 160 x 2 mm
    better = diagnose_spectrum(rotary(wavelengths_mm=spectrum.recommended_mm), grids, patch_size=8)
    assert better.counts() == Counts(0, 60, 0)


def test_a_range_is_recommended_in_the_encodings_own_unit() -> None:
    grid = VoxelGrid.from_spacing((128, 128, 60), (1.0, 1.0, 5.0))
    encoding = rotary("index", reference_spacing_mm=3.0)
    recommended = diagnose_spectrum(encoding, [grid], patch_size=4).recommended_mm
    assert recommended == (24, 384)  # 8 and 128 voxels of 3 mm
    better = rotary("index", reference_spacing_mm=3.0, wavelengths_mm=recommended)
    assert diagnose_spectrum(better, [grid], patch_size=4).counts().aliased == 0


def test_tokens_that_are_too_coarse_get_no_recommendation() -> None:
    grid = VoxelGrid.from_spacing((32, 32, 32), 1.0)
    assert diagnose_spectrum([10.0], [grid], patch_size=16).recommended_mm is None
    assert diagnose_spectrum([10.0], [grid], patch_size=32).recommended_mm is None
    assert diagnose_spectrum([10.0], [grid], patch_size=15).recommended_mm == (30, 32)


def test_what_has_no_spectrum_is_refused() -> None:
    with pytest.raises(ValueError, match="grids must hold at least one VoxelGrid, got none"):
        diagnose_spectrum([10.0], [], patch_size=4)
    with pytest.raises(ValueError, match=r"wavelengths must be positive .*got \[10.0, 0.0\]"):
        diagnose_spectrum([10.0, 0.0], [HEAD], patch_size=4)
    with pytest.raises(ValueError, match="wavelengths must be positive"):
        diagnose_spectrum([], [HEAD], patch_size=4)
    with pytest.raises(ValueError, match="made of frequencies to have a spectrum, got 'none'"):
        diagnose_spectrum(create_encoding("none", dim=12, num_heads=2, frame="mm"), [HEAD], patch_size=4)
    with pytest.raises(ValueError, match="frame of space, got 'sequence'"):
        diagnose_spectrum(rotary("sequence"), [HEAD], patch_size=4)
    with pytest.raises(ValueError, match="patch_size must be positive integers"):
        diagnose_spectrum([10.0], [HEAD], patch_size=0)


@pytest.mark.parametrize("name", ["rotary_axial", "sincos"])
@pytest.mark.parametrize("frame", SPACE_FRAMES, ids=str)
def test_frequency_vectors_give_the_angles(name: str, frame: Frame) -> None:
    encoding = create_encoding(
        name, dim=34, num_heads=2, frame=frame, reference_spacing_mm=(1, 2, 3), reference_extent_mm=(90, 80, 70)
    )
    coords = torch.randn(2, 5, 3, dtype=torch.float64)
    units = Millimetres(frame, reference_spacing_mm=(1, 2, 3), reference_extent_mm=(90, 80, 70))
    expected = encoding.angles(coords)
    torch.testing.assert_close(units(coords) @ encoding.frequency_vectors_mm().T, expected)


@pytest.mark.parametrize("name", ["rotary_extent", "rotary_mixed", "fourier", "rotary_dino"])
def test_frequencies_of_others_are_those_of_their_signals(name: str) -> None:
    """A pair of a token that is moved by t turns by vector . t."""
    encoding = create_encoding(name, dim=36, num_heads=2, frame="fraction").eval()
    vectors = getattr(encoding, "frequency_vectors_mm", None) or encoding.frequency_vectors_per_unit
    reference = 250.0 if name != "rotary_dino" else 1.0
    step = torch.tensor([0.001, -0.002, 0.0015], dtype=torch.float64)
    coords = torch.stack([torch.zeros(3, dtype=torch.float64), step])[None]
    layout = TokenLayout(((2, 1, 1),), 1e-6 * torch.eye(3, dtype=torch.float64)[None])
    signal = encoding(coords, layout)
    if signal.rotary is not None:
        found = torch.atan2(signal.rotary[..., 1], signal.rotary[..., 0])[0, :, 1]  # (1 or H, P)
    else:
        cosine, sine = signal.additive[0, 1].chunk(2)
        found = torch.atan2(sine, cosine)
    expected = vectors().double() @ (reference * step)
    torch.testing.assert_close(found.reshape(expected.shape), expected, rtol=0, atol=1e-5)


def test_bands_of_fractions_are_as_long_as_the_field_of_view_makes_them() -> None:
    encoding = create_encoding("rotary_dino", dim=12, num_heads=1, frame="fraction", base=16.0)
    spectrum = diagnose_spectrum(encoding, [HEAD], patch_size=5)
    assert [band.wavelength_mm for band in spectrum.bands] == pytest.approx([125, 500] * 3)  # u runs over 2 in 250 mm
    assert spectrum.recommended_mm == (20, 250)


def test_oblique_bands_of_learned_directions_are_judged_along_them() -> None:
    torch.manual_seed(0)
    encoding = create_encoding("rotary_mixed", dim=36, num_heads=2, frame="mm")
    bands = diagnose_spectrum(encoding, [HEAD], patch_size=4).bands
    assert len(bands) == 18
    assert {band.head for band in bands} == {0, 1}
    assert {band.axis for band in bands} == {None}
    assert all(8 / 3**0.5 - 1e-6 <= band.pitch_mm <= 8 for band in bands)
    assert all(250 <= band.extent_mm <= 250 * 3**0.5 + 1e-6 for band in bands)
