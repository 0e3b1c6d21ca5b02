"""What it takes for two volumes to be the same."""

from __future__ import annotations

import torch

from medattn.volumes import Volume


def same(one: Volume, two: Volume) -> None:
    """Assert that all fields are equal, the geometry to the last bit."""
    assert torch.equal(one.data, two.data) and one.data.dtype == two.data.dtype
    assert (one.name, one.notes, one.metadata) == (two.name, two.notes, two.metadata)
    for a, b in ((one.grid, two.grid), (one.source_grid, two.source_grid)):
        assert a.shape == b.shape and torch.equal(a.affine, b.affine)
