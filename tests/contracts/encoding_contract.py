"""What every positional encoding must obey, in each frame and float dtype. Subclass ``EncodingContract`` to run it."""

import copy
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from medattn import PositionalEncoding, PositionSignal, create_encoder, create_encoding, list_encodings
from medattn.coordinates import Frame
from medattn.encodings.base import Invariance
from medattn.geometry import VoxelGrid
from tests.contracts.position import (
    DIM,
    HEADS,
    PATCH,
    coordinates,
    defined_frames,
    equal_tokens,
    layout_of,
    logits_of,
    random_tokens,
    raster_order,
    two_grids,
)

Case = tuple[str, Frame]

OPTIONS: dict[str, dict[str, Any]] = {
    "sum": {"parts": [{"name": "sincos"}, {"name": "rotary_axial"}]},
}
"""Options without which an encoding cannot be built."""


class EncodingContract:
    """The laws. ``case`` is (name, frame); a subclass can override it to run encodings of its own."""

    @pytest.fixture(
        params=[(n, f) for n in list_encodings() for f in defined_frames(n, **OPTIONS.get(n, {}))], ids="-".join
    )
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    @pytest.fixture
    def encoding(self, case: Case) -> PositionalEncoding:
        return self.fresh(case)

    @pytest.fixture(params=[torch.float32, torch.float64], ids=str)
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        return request.param

    def fresh(self, case: Case, seed: int = 0, **options: Any) -> PositionalEncoding:
        torch.manual_seed(seed)
        options = {**OPTIONS.get(case[0], {}), **options}
        return create_encoding(case[0], dim=DIM, num_heads=HEADS, frame=case[1], **options)

    def signal(
        self, encoding: PositionalEncoding, grids: list[VoxelGrid], dtype: Any = torch.float64
    ) -> PositionSignal:
        return encoding(coordinates(encoding.frame, grids, dtype), layout_of(encoding.frame, grids))

    # -- shapes and values -----------------------------------------------------------------------------

    def test_it_knows_what_it_is(self, encoding: PositionalEncoding, case: Case) -> None:
        assert (encoding.name, encoding.frame) == case
        assert (encoding.dim, encoding.num_heads, encoding.head_dim) == (34, 2, 17)
        assert encoding.frame in encoding.defined_frames
        assert len(type(encoding).__doc__ or "") > 40
        assert all((encoding.about.formula, encoding.about.source, encoding.about.when))
        if len(encoding.defined_frames) < len(Frame):
            assert len(encoding.why_undefined) > 20

    def test_the_signal_fits_tokens_and_heads(self, encoding: PositionalEncoding, dtype: torch.dtype) -> None:
        signal = self.signal(encoding, two_grids(), dtype)
        assert isinstance(signal, PositionSignal)
        if signal.additive is not None:
            assert signal.additive.shape == (2, 36, DIM)
        if signal.rotary is not None:
            batch, heads, tokens, pairs, two = signal.rotary.shape
            assert (batch, tokens, two) == (2, 36, 2)
            assert heads in (1, HEADS)
            assert 1 <= pairs <= 8
            assert float(signal.rotary.square().sum(-1).max()) <= 1 + 1e-6  # nothing is lengthened
        if signal.matrices is not None:
            batch, heads, tokens, groups, size, columns = signal.matrices.shape
            assert (batch, tokens, size) == (2, 36, columns)
            assert heads in (1, HEADS)
            assert groups * size <= 17
        if signal.bias is not None:
            bias = signal.bias.dense()
            assert bias.shape[0] in (1, 2)
            assert bias.shape[1] in (1, HEADS)
            assert bias.shape[2:] == (36, 36)
        assert logits_of(signal, random_tokens(2, 36)).shape == (2, HEADS, 36, 36)

    @pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 1e4])
    def test_signal_and_gradients_are_finite(
        self, encoding: PositionalEncoding, dtype: torch.dtype, size: float
    ) -> None:
        if encoding.needs_layout:
            pytest.skip("a grid gives its coordinates")
        coords = (coordinates(encoding.frame, two_grids(), dtype).sign() * size).requires_grad_()
        loss = logits_of(encoding(coords), random_tokens(2, 36)).sin().sum()
        assert bool(loss.isfinite())
        if loss.requires_grad:
            loss.backward()
            assert all(bool(p.grad is None or p.grad.isfinite().all()) for p in [coords, *encoding.parameters()])

    def test_float32_coordinates_give_the_logits_of_float64(self, encoding: PositionalEncoding) -> None:
        tokens = random_tokens(2, 36)
        single, double = (
            logits_of(self.signal(encoding, two_grids(), t), tokens) for t in (torch.float32, torch.float64)
        )
        torch.testing.assert_close(single, double, rtol=0, atol=2e-3)

    def test_tokens_of_a_non_cubic_grid_have_distinct_codes(self, encoding: PositionalEncoding) -> None:
        signal = self.signal(encoding, two_grids())
        logits = logits_of(signal, equal_tokens(2, 36)).detach()
        if Invariance.TOKEN_PERMUTATION in encoding.invariances:
            assert float((logits - logits[..., :1, :1]).abs().max()) < 1e-9
            return
        if not encoding.tells_tokens_apart:
            return
        for sample in (0, 1):
            rows = logits[sample].transpose(0, 1).flatten(1)
            assert float((torch.cdist(rows, rows) + torch.eye(36)).min()) > 1e-4

    def test_grids_and_scattered_tokens_agree(self, encoding: PositionalEncoding, dtype: torch.dtype) -> None:
        if encoding.needs_layout:
            pytest.skip("it is defined on grids alone")
        coords, tokens = coordinates(encoding.frame, two_grids(), dtype), random_tokens(2, 36)
        gridded = logits_of(encoding(coords, layout_of(encoding.frame, two_grids())), tokens)
        atol = 1e-8 if dtype == torch.float64 and not list(encoding.parameters()) else 1e-3
        torch.testing.assert_close(gridded, logits_of(encoding(coords), tokens), rtol=0, atol=atol)

    # -- what it may depend on -------------------------------------------------------------------------

    def test_each_sample_is_encoded_alone(self, encoding: PositionalEncoding, dtype: torch.dtype) -> None:
        tokens = random_tokens(2, 36)
        both = logits_of(self.signal(encoding, two_grids(), dtype), tokens)
        for sample, grid in enumerate(two_grids()):
            alone = logits_of(self.signal(encoding, [grid], dtype), tokens[sample : sample + 1])
            torch.testing.assert_close(both[sample], alone[0], rtol=0, atol=1e-5)

    def test_permuting_scattered_tokens_permutes_the_logits(self, encoding: PositionalEncoding) -> None:
        if encoding.needs_layout:
            pytest.skip("tokens of a grid have an order")
        coords, tokens = coordinates(encoding.frame, two_grids()), random_tokens(2, 36)
        order = torch.randperm(36, generator=torch.Generator().manual_seed(0))
        expected = logits_of(encoding(coords), tokens)[..., order, :][..., order]
        torch.testing.assert_close(logits_of(encoding(coords[:, order]), tokens[:, order]), expected, rtol=0, atol=1e-5)

    def test_the_number_of_scattered_tokens_does_not_matter(self, encoding: PositionalEncoding) -> None:
        if encoding.needs_layout:
            pytest.skip("a part of a grid is another grid")
        coords, tokens = coordinates(encoding.frame, two_grids()), random_tokens(2, 36)
        few, all_ = logits_of(encoding(coords[:, :7]), tokens[:, :7]), logits_of(encoding(coords), tokens)
        torch.testing.assert_close(few, all_[..., :7, :7], rtol=0, atol=1e-5)

    def test_one_module_serves_two_spacings_of_one_shape_in_either_order(self, case: Case) -> None:
        first, second = ([grid] for grid in two_grids())
        for pair in ((first, second), (second, first)):
            used = self.fresh(case)
            for grids in pair:
                found, fresh = (
                    logits_of(self.signal(e, grids), random_tokens(1, 36)) for e in (used, self.fresh(case))
                )
                assert torch.equal(found, fresh)

    def test_calls_in_eval_agree_and_leave_the_coordinates_alone(self, encoding: PositionalEncoding) -> None:
        coords, layout = coordinates(encoding.frame, two_grids()), layout_of(encoding.frame, two_grids())
        before, tokens = coords.clone(), random_tokens(2, 36)
        encoding.eval()
        assert torch.equal(logits_of(encoding(coords, layout), tokens), logits_of(encoding(coords, layout), tokens))
        assert torch.equal(coords, before)

    def test_prefix_tokens_have_no_place(self, encoding: PositionalEncoding) -> None:
        signal, tokens = self.signal(encoding, two_grids()), random_tokens(2, 39)
        placed = logits_of(signal.with_prefix(3), tokens)
        torch.testing.assert_close(placed[..., 3:, 3:], logits_of(signal, tokens[:, 3:]), rtol=0, atol=1e-9)
        unplaced = logits_of(PositionSignal(), tokens)
        torch.testing.assert_close(placed[..., :3, :3], unplaced[..., :3, :3], rtol=0, atol=1e-9)
        if signal.additive is None and signal.rotary is None and signal.matrices is None and signal.mixer is None:
            torch.testing.assert_close(placed[..., :3], unplaced[..., :3], rtol=0, atol=1e-9)
            torch.testing.assert_close(placed[..., :3, :], unplaced[..., :3, :], rtol=0, atol=1e-9)

    # -- invariances -----------------------------------------------------------------------------------

    @pytest.mark.parametrize("invariance", list(Invariance), ids=str)
    def test_declared_invariances_hold_and_others_do_not(
        self, encoding: PositionalEncoding, invariance: Invariance
    ) -> None:
        change = self.change(encoding, invariance)
        if invariance in encoding.invariances:
            assert change < 1e-3
        else:
            assert change > 1e-3

    def change(self, encoding: PositionalEncoding, invariance: Invariance) -> float:
        """How much the logits of equal tokens on a 4 x 4 x 4 grid change."""
        grid = VoxelGrid.from_spacing((8, 4, 12), (15.0, 30.0, 10.0))  # patches of 30 mm cubed
        frame = encoding.frame
        coords, layout = coordinates(frame, [grid]), layout_of(frame, [grid])
        logits = logits_of(encoding(coords, layout), equal_tokens(1, 64)).detach()
        count = torch.arange(64)

        def of_order(order: Tensor) -> float:
            return float((logits[..., order, :][..., order] - logits).abs().max())

        if invariance is Invariance.TOKEN_PERMUTATION:
            return of_order(count.roll(1))
        if encoding.needs_layout:  # on a grid, all that can be done to positions is to take other tokens
            if invariance is Invariance.TRANSLATION:
                inner = count.reshape(4, 4, 4)
                low, high = inner[:3].flatten(), inner[1:].flatten()
                return float((logits[..., low, :][..., low] - logits[..., high, :][..., high]).abs().max())
            orders = {
                Invariance.FLIP: [raster_order((4, 4, 4), flip=axis) for axis in range(3)],
                Invariance.AXIS_PERMUTATION: [raster_order((4, 4, 4), permute=p) for p in ((1, 0, 2), (0, 2, 1))],
            }
            if invariance in orders:
                return max(of_order(order) for order in orders[invariance])
            pytest.skip("its positions are the grid's and cannot be turned or scaled")
        moved = self.moved(coords, invariance)
        return max(float((logits_of(encoding(other), equal_tokens(1, 64)) - logits).abs().max()) for other in moved)

    def moved(self, coords: Tensor, invariance: Invariance) -> list[Tensor]:
        unit, axes = float(coords.abs().max()) / 4, coords.shape[-1]
        flips = [torch.ones(axes, dtype=torch.float64).index_fill(0, torch.tensor(axis), -1) for axis in range(axes)]
        if invariance is Invariance.TRANSLATION:
            return [coords + unit * torch.linspace(0.5, 1, axes, dtype=torch.float64)]
        if invariance is Invariance.SCALE:
            return [1.3 * coords]
        if invariance is Invariance.FLIP:
            return [coords * flip for flip in flips]
        if axes == 1:
            pytest.skip("one axis cannot be exchanged or turned")
        if invariance is Invariance.AXIS_PERMUTATION:
            return [coords[..., order] for order in ([1, 0, 2], [0, 2, 1])]
        turn = torch.linalg.matrix_exp(torch.tensor([[0.0, 0.3, -0.5], [-0.3, 0.0, 0.7], [0.5, -0.7, 0.0]]).double())
        return [coords @ turn]

    def test_exchanged_array_axes_exchange_the_logits_in_patient_frames(self, encoding: PositionalEncoding) -> None:
        if encoding.frame not in (Frame.PATIENT_MM, Frame.SCANNER_MM) or encoding.needs_layout:
            pytest.skip("its coordinates run along the array")
        grid = two_grids()[0].patch_grid(PATCH)  # (3, 4, 3) voxels, taken as patches of one
        other = grid.permute((2, 0, 1))
        order, tokens = raster_order(grid.shape, permute=(2, 0, 1)), random_tokens(1, 36)

        def found(grid: VoxelGrid, tokens: Tensor) -> Tensor:
            from medattn import TokenLayout, token_coordinates
            from medattn.coordinates import token_steps

            layout = TokenLayout((grid.shape,), token_steps(grid, 1, encoding.frame)[None])
            return logits_of(encoding(token_coordinates(grid, 1, encoding.frame)[None], layout), tokens)

        expected = found(grid, tokens)[..., order, :][..., order]
        torch.testing.assert_close(found(other, tokens[:, order]), expected, rtol=0, atol=1e-3)

    # -- calibration -----------------------------------------------------------------------------------

    @pytest.mark.parametrize("frame", [Frame.INDEX, Frame.FRACTION], ids=str)
    def test_twins_agree_at_the_reference_and_nowhere_else(self, case: Case, frame: Frame) -> None:
        options = inspect.signature(type(self.fresh(case)).__init__).parameters
        option = {Frame.INDEX: "reference_spacing_mm", Frame.FRACTION: "reference_extent_mm"}[frame]
        known = option in options or case[0] == "sum"
        if case[1] is not Frame.MM or not known or frame not in defined_frames(case[0], **OPTIONS.get(case[0], {})):
            pytest.skip("no twin")
        reference, other = (
            VoxelGrid.from_spacing((6, 4, 6), spacing) for spacing in ((3.0, 5.0, 2.0), (1.0, 7.0, 4.0))
        )
        value = reference.spacing_mm if frame is Frame.INDEX else reference.extent_mm
        extra = {option: value.tolist()}
        if case[0] == "sum":
            extra = {"parts": [{**part, "options": extra} for part in OPTIONS["sum"]["parts"]]}
        mm, twin = self.fresh(case, **extra), self.fresh((case[0], frame), **extra)
        twin.load_state_dict(mm.state_dict())
        for grid, same in ((reference, True), (other, False)):
            tokens = random_tokens(1, len(coordinates(Frame.MM, [grid])[0]))
            difference = (
                logits_of(self.signal(mm, [grid]), tokens) - logits_of(self.signal(twin, [grid]), tokens)
            ).abs()
            assert (float(difference.max()) < 1e-6) == same

    # -- state -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("to", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
    def test_casting_the_module_rounds_nothing(self, case: Case, to: torch.dtype) -> None:
        cast, exact = self.fresh(case).to(to), self.fresh(case)
        for name, value in [*exact.named_buffers(), *exact.named_parameters()]:
            found = dict([*cast.named_buffers(), *cast.named_parameters()])[name]
            assert torch.equal(found.double(), value.double()), name
        found, expected = (logits_of(self.signal(e, two_grids()), random_tokens(2, 36)) for e in (cast, exact))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)

    def test_autocast_changes_nothing(self, encoding: PositionalEncoding) -> None:
        encoding.eval()
        outside = logits_of(self.signal(encoding, two_grids(), torch.float32), random_tokens(2, 36))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            signal = self.signal(encoding, two_grids(), torch.float32)
        torch.testing.assert_close(logits_of(signal, random_tokens(2, 36)), outside, rtol=0, atol=1e-6)

    def test_state_and_copies_carry_the_signal(self, case: Case) -> None:
        source, target = self.fresh(case, seed=1).eval(), self.fresh(case).eval()
        target.load_state_dict(source.state_dict())
        expected, *found = (
            logits_of(self.signal(e, two_grids()), random_tokens(2, 36))
            for e in (source, target, copy.deepcopy(source))
        )
        assert all(torch.equal(one, expected) for one in found)

    def test_every_parameter_is_used(self, encoding: PositionalEncoding) -> None:
        if list(encoding.parameters()):
            logits_of(self.signal(encoding, two_grids()), random_tokens(2, 36)).sin().sum().backward()
        unused = [n for n, p in encoding.named_parameters() if p.grad is None or not bool((p.grad != 0).any())]
        assert unused == []

    def test_building_one_leaves_the_global_random_stream_alone(self, case: Case) -> None:
        self.fresh(case)
        found = torch.rand(3)
        torch.manual_seed(0)
        assert torch.equal(found, torch.rand(3))

    def test_equal_seeds_build_equal_encodings(self, case: Case) -> None:
        one, other = self.fresh(case).state_dict(), self.fresh(case).state_dict()
        assert all(torch.equal(value, other[name]) for name, value in one.items())

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

    def test_a_layout_that_does_not_fit_is_refused(self, encoding: PositionalEncoding) -> None:
        coords, layout = coordinates(encoding.frame, two_grids()), layout_of(encoding.frame, two_grids())
        for wrong in (coords[:1], coords[:, :35]):
            with pytest.raises(ValueError, match=r"layout must fit coords \(.*got token grids \(\(3, 4, 3\)"):
                encoding(wrong, layout)

    # -- in an encoder ---------------------------------------------------------------------------------

    def encoder(self, case: Case, **options: object) -> torch.nn.Module:
        torch.manual_seed(0)
        settings = {"dim": DIM, "num_heads": HEADS, "depth": 1, "ffn_ratio": 1.0, "patch_size": PATCH}
        own = OPTIONS.get(case[0], {})
        return create_encoder(settings, encoding=case[0], frame=case[1], encoding_options=own, **options)

    def test_an_encoder_with_it_shares_the_initial_weights_of_one_without(self, case: Case) -> None:
        own, plain = self.encoder(case).state_dict(), self.encoder(("none", Frame.MM)).state_dict()
        assert set(plain) <= set(own)
        assert all(torch.equal(own[name], value) for name, value in plain.items())

    @pytest.mark.parametrize("spacing_token", [False, True])
    def test_a_batch_of_unequal_volumes_is_each_alone(self, case: Case, spacing_token: bool) -> None:
        encoder = self.encoder(case, spacing_token=spacing_token).eval()
        grids = [two_grids()[0], two_grids((3, 5, 4))[1], two_grids((1, 2, 9))[1]]
        generator = torch.Generator().manual_seed(0)
        volumes = [torch.randn(1, *grid.shape, generator=generator) for grid in grids]
        encoded = encoder(volumes, grids)
        for sample, (volume, grid) in enumerate(zip(volumes, grids, strict=True)):
            alone = encoder([volume], [grid])
            torch.testing.assert_close(encoded[sample], alone[0], rtol=0, atol=1e-5)
        encoded.tokens[encoded.mask].square().sum().backward()
        assert all(bool(p.grad is not None and p.grad.isfinite().all()) for p in encoder.parameters())

    def test_an_encoder_of_half_precision_stays_near_the_exact_one(self, case: Case) -> None:
        grid = two_grids()[0]
        volume = torch.randn(1, 1, 5, 4, 7, generator=torch.Generator().manual_seed(0))
        exact = self.encoder(case).eval()(volume, [grid]).tokens
        half = self.encoder(case).eval().to(torch.bfloat16)(volume.to(torch.bfloat16), [grid]).tokens
        assert half.dtype == torch.bfloat16
        torch.testing.assert_close(half.float(), exact, rtol=0, atol=0.1)

    def test_a_scanner_origin_a_metre_away_changes_no_relative_encoding(self, case: Case) -> None:
        encoder = self.encoder(case).eval()
        if case[1] is not Frame.SCANNER_MM or not encoder.encoding.is_translation_invariant:
            pytest.skip("only relative encodings in scanner coordinates can be indifferent to the origin")
        grid, encoder = two_grids()[0], encoder.to(torch.bfloat16)
        affine = grid.affine.clone()
        affine[:3, 3] += torch.tensor([1000.0, -1000.0, 1000.0])
        volume = torch.randn(1, 1, 5, 4, 7, generator=torch.Generator().manual_seed(0)).bfloat16()
        near, far = (encoder(volume, [g]).tokens.float() for g in (grid, VoxelGrid(grid.shape, affine)))
        assert float((near - far).detach().abs().max()) < 1e-3
