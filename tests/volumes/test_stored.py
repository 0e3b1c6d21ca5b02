"""What a reader hands over: sizes and grids that no file of this world has are refused."""

import re

import pytest
import torch

from medattn.volumes import VolumeError
from medattn.volumes.stored import check_size, stored_grid


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    ("spacing", "fits"), [(9e-8, False), (1.1e-7, True), (9e5, True), (1.1e6, False), (1e30, False)]
)
def test_a_spacing_is_between_an_atom_and_a_kilometre(axis: int, spacing: float, fits: bool) -> None:
    affine = torch.eye(4, dtype=torch.float64)
    affine[axis, axis] = -spacing
    if fits:
        assert stored_grid((2, 3, 4), affine).spacing_mm[axis] == spacing
    else:
        message = f"spacing of axis {'ijk'[axis]} must be 1e-07 to 1e+06 mm, got {spacing:g}"
        with pytest.raises(VolumeError, match=re.escape(message)):
            stored_grid((2, 3, 4), affine)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_origin_is_not_on_another_continent(axis: int) -> None:
    affine = torch.eye(4, dtype=torch.float64)
    affine[axis, 3] = -1e7
    assert stored_grid((2, 3, 4), affine).origin_mm[axis] == -1e7
    affine[axis, 3] *= 1.001
    with pytest.raises(VolumeError, match="origin must be within 1e\\+07 mm, got"):
        stored_grid((2, 3, 4), affine)


def test_a_size_over_the_limit_is_refused_with_the_way_to_raise_it() -> None:
    assert check_size((1, 10, 10, 10), 4, 4000) == 4000
    with pytest.raises(VolumeError, match="needs 4000 bytes, over the limit of 3999; load_volume.*max_bytes"):
        check_size((1, 10, 10, 10), 4, 3999)
