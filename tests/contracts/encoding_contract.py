"""What every positional encoding must obey, in each frame and float dtype. Subclass ``EncodingContract`` to run it."""

import contextlib
import copy

import pytest
import torch
from torch import Tensor

from medattn import PositionalEncoding, PositionSignal, VoxelGrid, create_encoder, create_encoding, list_encodings
from medattn.coordinates import Frame, token_coordinates
from tests.geometry.grids import random_grid

DIM, HEADS, PATCH = 34, 2, (2, 1, 3)
"""Head width 17: 8 channel pairs over 3 axes and one channel left over."""


def defined_frames(name: str) -> list[Frame]:
    """Frames in which ``name`` can be built."""
    frames = []
    for frame in Frame:
        with contextlib.suppress(ValueError):
            create_encoding(name, dim=DIM, num_heads=HEADS, frame=frame)
            frames.append(frame)
    assert frames, f"{name} can be built in no frame"
    return frames


def two_grids(shape: tuple[int, int, int] = (5, 4, 7)) -> list[VoxelGrid]:
    """One shape, two unrelated oblique geometries within 300 mm of the scanner's origin."""
    return [VoxelGrid(shape, random_grid(seed).affine) for seed in (1, 2)]


def coordinates(frame: Frame, grids: list[VoxelGrid], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.stack([token_coordinates(grid, PATCH, frame) for grid in grids]).to(dtype)


def parts(signal: PositionSignal) -> list[Tensor]:
    return [part for part in (signal.additive, signal.rotary) if part is not None]


def taken(signal: PositionSignal, tokens: Tensor) -> PositionSignal:
    """The signal of some ``tokens``, in that order."""
    additive = None if signal.additive is None else signal.additive[:, tokens]
    return PositionSignal(additive, None if signal.rotary is None else signal.rotary[:, :, tokens])


def codes(signal: PositionSignal, sample: int = 0) -> Tensor:
    """(N, everything that the signal says about a token)."""
    columns = [] if signal.additive is None else [signal.additive[sample]]
    if signal.rotary is not None:
        columns.append(signal.rotary[sample].transpose(0, 1).flatten(1))
    return torch.cat(columns, dim=1)


def assert_same(one: PositionSignal, other: PositionSignal, atol: float = 0.0) -> None:
    for name in ("additive", "rotary"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a.double(), b.double(), rtol=0, atol=atol)


class EncodingContract:
    """The laws. ``case`` is (name, frame); a subclass can override it to run encodings of its own."""

    @pytest.fixture(params=[(n, f) for n in list_encodings() for f in defined_frames(n)], ids="-".join)
    def case(self, request: pytest.FixtureRequest) -> tuple[str, Frame]:
        return request.param

    @pytest.fixture
    def encoding(self, case: tuple[str, Frame]) -> PositionalEncoding:
        return self.fresh(case)

    @pytest.fixture(params=[torch.float32, torch.float64], ids=str)
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        return request.param

    def fresh(self, case: tuple[str, Frame]) -> PositionalEncoding:
        torch.manual_seed(0)
        return create_encoding(case[0], dim=DIM, num_heads=HEADS, frame=case[1])

    # -- shapes and values -----------------------------------------------------------------------------

    def test_it_knows_what_it_is(self, encoding: PositionalEncoding, case: tuple[str, Frame]) -> None:
        assert (encoding.name, encoding.frame) == case
        assert (encoding.dim, encoding.num_heads, encoding.head_dim) == (34, 2, 17)
        assert encoding.frame in encoding.defined_frames
        assert len(type(encoding).__doc__ or "") > 40

    def test_the_signal_fits_tokens_and_heads(self, encoding: PositionalEncoding, dtype: torch.dtype) -> None:
        coords = coordinates(encoding.frame, two_grids(), dtype)
        signal = encoding(coords)
        assert isinstance(signal, PositionSignal)
        if signal.additive is not None:
            assert signal.additive.shape == (2, 36, DIM)
        if signal.rotary is not None:
            batch, heads, tokens, pairs, two = signal.rotary.shape
            assert (batch, tokens, two) == (2, 36, 2)
            assert heads in (1, HEADS)
            assert 1 <= pairs <= 8
            assert float(signal.rotary.square().sum(-1).max()) <= 1 + 1e-6  # nothing is lengthened
        assert all(part.dtype in (torch.float32, torch.float64) for part in parts(signal))

    @pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 1e4])
    def test_signal_and_gradients_are_finite(
        self, encoding: PositionalEncoding, dtype: torch.dtype, size: float
    ) -> None:
        coords = (coordinates(encoding.frame, two_grids(), dtype).sign() * size).requires_grad_()
        found = parts(encoding(coords))
        assert all(bool(part.isfinite().all()) for part in found)
        if found:
            torch.stack([part.square().sum() for part in found]).sum().backward()
            leaves = [coords, *encoding.parameters()]
            assert all(bool(leaf.grad is not None and leaf.grad.isfinite().all()) for leaf in leaves)

    def test_float32_coordinates_give_the_signal_of_float64(self, encoding: PositionalEncoding) -> None:
        coords = coordinates(encoding.frame, two_grids())
        assert_same(encoding(coords.float()), encoding(coords), atol=1e-4)

    def test_tokens_of_a_non_cubic_grid_have_distinct_codes(
        self, encoding: PositionalEncoding, dtype: torch.dtype
    ) -> None:
        signal = encoding(coordinates(encoding.frame, two_grids(), dtype))
        if not parts(signal):
            assert list(encoding.state_dict()) == []  # no signal, so nothing to hold
            return
        for sample in (0, 1):
            found = codes(signal, sample).detach()
            assert float((torch.cdist(found, found) + torch.eye(36)).min()) > 1e-3

    # -- what it may depend on -------------------------------------------------------------------------

    def test_each_sample_is_encoded_alone(self, encoding: PositionalEncoding, dtype: torch.dtype) -> None:
        coords = coordinates(encoding.frame, two_grids(), dtype)
        both = encoding(coords)
        for sample in (0, 1):
            alone = encoding(coords[sample : sample + 1])
            for part, one in zip(parts(both), parts(alone), strict=True):
                torch.testing.assert_close(part[sample], one[0], rtol=0, atol=1e-6)

    def test_permuting_the_coordinates_permutes_the_signal(
        self, encoding: PositionalEncoding, dtype: torch.dtype
    ) -> None:
        coords = coordinates(encoding.frame, two_grids(), dtype)
        order = torch.randperm(36, generator=torch.Generator().manual_seed(0))
        assert_same(encoding(coords[:, order]), taken(encoding(coords), order), atol=1e-6)

    def test_the_number_of_tokens_does_not_matter(self, encoding: PositionalEncoding, dtype: torch.dtype) -> None:
        coords = coordinates(encoding.frame, two_grids(), dtype)
        assert_same(encoding(coords[:, :7]), taken(encoding(coords), torch.arange(7)), atol=1e-6)

    def test_one_module_serves_two_spacings_of_one_shape_in_either_order(self, case: tuple[str, Frame]) -> None:
        first, second = (coordinates(case[1], [grid]) for grid in two_grids())
        for pair in ((first, second), (second, first)):
            used = self.fresh(case)
            for coords in pair:
                assert_same(used(coords), self.fresh(case)(coords))

    def test_calls_agree_and_leave_the_coordinates_alone(
        self, encoding: PositionalEncoding, dtype: torch.dtype
    ) -> None:
        coords = coordinates(encoding.frame, two_grids(), dtype)
        before = coords.clone()
        encoding.eval()
        assert_same(encoding(coords), encoding(coords))
        assert torch.equal(coords, before)

    def test_a_purely_rotary_signal_depends_on_displacements_alone(self, encoding: PositionalEncoding) -> None:
        coords = coordinates(encoding.frame, two_grids())
        signal, moved = encoding(coords), encoding(coords + 890)
        generator = torch.Generator().manual_seed(0)
        q, k = (torch.randn(2, HEADS, 36, DIM // HEADS, generator=generator, dtype=torch.float64) for _ in range(2))
        if signal.rotary is None:
            assert signal.rotate(q) is q
        elif signal.additive is None:
            logits = signal.rotate(q) @ signal.rotate(k).mT
            torch.testing.assert_close(moved.rotate(q) @ moved.rotate(k).mT, logits, rtol=0, atol=1e-9)
            assert float((logits - q @ k.mT).abs().max()) > 0.1

    # -- state -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("to", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
    def test_casting_the_module_rounds_no_frequency(self, case: tuple[str, Frame], to: torch.dtype) -> None:
        cast, exact = self.fresh(case).to(to), self.fresh(case)
        for name, buffer in exact.named_buffers():
            assert torch.equal(cast.get_buffer(name).double(), buffer.double()), name
        if not list(exact.parameters()):
            coords = coordinates(case[1], two_grids())
            assert_same(cast(coords), exact(coords))

    def test_state_and_copies_carry_the_signal(self, case: tuple[str, Frame]) -> None:
        torch.manual_seed(1)
        source = create_encoding(case[0], dim=DIM, num_heads=HEADS, frame=case[1])
        target = self.fresh(case)
        target.load_state_dict(source.state_dict())
        coords = coordinates(case[1], two_grids())
        assert_same(target(coords), source(coords))
        assert_same(copy.deepcopy(source)(coords), source(coords))

    def test_every_parameter_is_used(self, encoding: PositionalEncoding) -> None:
        parameters = dict(encoding.named_parameters())
        if parameters:
            found = parts(encoding(coordinates(encoding.frame, two_grids())))
            generator = torch.Generator().manual_seed(0)
            torch.stack([(p * torch.randn(p.shape, generator=generator)).sum() for p in found]).sum().backward()
        assert [name for name, p in parameters.items() if p.grad is None or not bool((p.grad != 0).any())] == []

    def test_building_one_leaves_the_global_random_stream_alone(self, case: tuple[str, Frame]) -> None:
        self.fresh(case)
        found = torch.rand(3)
        torch.manual_seed(0)
        assert torch.equal(found, torch.rand(3))

    # -- bad input -------------------------------------------------------------------------------------

    def test_coordinates_of_the_wrong_shape_are_refused(self, encoding: PositionalEncoding) -> None:
        width = 1 if encoding.frame is Frame.SEQUENCE else 3
        for shape in ((4, width), (1, 4, 4 - width), (1, 4, 2), (1, 2, 4, width)):
            with pytest.raises(
                ValueError, match=rf"{encoding.frame.value}' must be \(B, N, {width}\), got \({shape[0]}, "
            ):
                encoding(torch.zeros(shape))

    @pytest.mark.parametrize("wrong", [torch.bfloat16, torch.float16, torch.int64], ids=str)
    def test_coordinates_of_a_coarse_dtype_are_refused(self, encoding: PositionalEncoding, wrong: torch.dtype) -> None:
        width = 1 if encoding.frame is Frame.SEQUENCE else 3
        with pytest.raises(TypeError, match=f"coords must be float32 or float64 .*got {wrong}"):
            encoding(torch.zeros(1, 4, width, dtype=wrong))

    # -- in an encoder ---------------------------------------------------------------------------------

    def encoder(self, case: tuple[str, Frame], **options: object) -> torch.nn.Module:
        torch.manual_seed(0)
        settings = {"dim": DIM, "num_heads": HEADS, "depth": 1, "ffn_ratio": 1.0, "patch_size": PATCH}
        return create_encoder(settings, encoding=case[0], frame=case[1], **options)

    def test_an_encoder_with_it_shares_the_initial_weights_of_one_without(self, case: tuple[str, Frame]) -> None:
        own, plain = self.encoder(case).state_dict(), self.encoder(("none", Frame.MM)).state_dict()
        assert set(plain) <= set(own)
        assert all(torch.equal(own[name], value) for name, value in plain.items())

    def test_a_batch_of_unequal_volumes_is_each_alone(self, case: tuple[str, Frame]) -> None:
        encoder = self.encoder(case).eval()
        grids = [two_grids()[0], two_grids((3, 5, 4))[1], two_grids((1, 2, 9))[1]]
        generator = torch.Generator().manual_seed(0)
        volumes = [torch.randn(1, *grid.shape, generator=generator) for grid in grids]
        encoded = encoder(volumes, grids)
        for sample, (volume, grid) in enumerate(zip(volumes, grids, strict=True)):
            alone = encoder([volume], [grid])
            torch.testing.assert_close(encoded[sample], alone[0], rtol=0, atol=2e-6)
        encoded.tokens[encoded.mask].square().sum().backward()
        assert all(bool(p.grad is not None and p.grad.isfinite().all()) for p in encoder.parameters())

    def test_an_encoder_of_half_precision_stays_near_the_exact_one(self, case: tuple[str, Frame]) -> None:
        grid = two_grids()[0]
        volume = torch.randn(1, 1, 5, 4, 7, generator=torch.Generator().manual_seed(0))
        exact = self.encoder(case).eval()(volume, [grid]).tokens
        half = self.encoder(case).eval().to(torch.bfloat16)(volume.to(torch.bfloat16), [grid]).tokens
        assert half.dtype == torch.bfloat16
        torch.testing.assert_close(half.float(), exact, rtol=0, atol=0.1)
