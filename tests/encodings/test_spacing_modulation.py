"""Spacing as scale and shift of channels: nothing at the start, an effect once trained."""

import torch

from medattn.encodings.spacing_modulation import SpacingModulation, modulated
from tests.encoders import close, grid_of, small_encoder, volume


def test_at_the_start_an_encoder_with_it_is_the_one_without() -> None:
    x, grid = [volume((4, 6, 3))], [grid_of()]
    for token in (False, True):
        plain = small_encoder("rotary_axial", spacing_token=token)
        own = small_encoder("rotary_axial", spacing_token=token, spacing_modulation=True)
        weights = own.state_dict()
        assert all(torch.equal(weights[name], value) for name, value in plain.state_dict().items())
        close(own(x, grid).tokens, plain(x, grid).tokens, atol=0)


def test_once_it_has_learned_it_tells_spacings_apart() -> None:
    encoder, x = small_encoder("none", spacing_modulation=True), [volume((4, 6, 3))]
    one, other = grid_of(spacing_mm=1.0), grid_of(spacing_mm=(1.0, 1.0, 5.0))
    close(encoder(x, [one]).tokens, encoder(x, [other]).tokens, atol=0)
    torch.nn.init.normal_(encoder.spacing_modulation.mlp[-1].weight, std=0.2)
    assert not torch.allclose(encoder(x, [one]).tokens, encoder(x, [other]).tokens, atol=1e-2)
    encoder(x, [one]).tokens[..., 0].sum().backward()
    assert all(bool((p.grad != 0).any()) for p in encoder.spacing_modulation.parameters())


def test_each_block_and_grid_has_its_own_scale_and_shift() -> None:
    torch.manual_seed(0)
    modulation = SpacingModulation(6, 3, hidden_dim=5)
    assert sum(p.numel() for p in modulation.parameters()) == 12 * 5 + 5 + 5 * 36 + 36
    torch.nn.init.normal_(modulation.mlp[-1].weight)
    grids = [grid_of(spacing_mm=1.0), grid_of(spacing_mm=2.0)]
    found = modulation(grids)
    assert found.shape == (3, 2, 2, 1, 6)
    close(found[:, :, 1:], modulation(grids[1:]), atol=1e-6)
    tokens = torch.randn(2, 4, 6)
    close(modulated(tokens, found[1]), tokens * (1 + found[1, 0]) + found[1, 1], atol=1e-6)
