"""docs/encodings.md is what the code declares."""

from pathlib import Path

import pytest
import torch

from medattn.catalogue.entry import all_entries
from medattn.catalogue.kernels import kernel
from medattn.catalogue.markdown import encodings_page
from medattn.encodings import create_encoding, list_encodings

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_page_is_as_the_code_declares() -> None:
    page = encodings_page(all_entries())
    assert (DOCS / "encodings.md").read_text(encoding="utf-8") == page, "run python scripts/make_encoding_docs.py"
    assert [name for name in list_encodings() if f"\n## {name}\n" not in page] == []
    assert (DOCS / "figures" / "encoding_kernels.png").stat().st_size < 300_000


def test_the_kernel_of_slopes_is_their_slope() -> None:
    encoding = create_encoding("distance_slopes", dim=8, num_heads=2, frame="mm", reference_distance_mm=16.0)
    displacements, logits = kernel(encoding, 5.0)
    assert displacements.tolist() == [20.0 * n for n in range(-6, 7)]
    torch.testing.assert_close(logits[0], -displacements.abs().double() / 16 / 2**4)
    torch.testing.assert_close(logits[1], -displacements.abs().double() / 16 / 2**8)


@pytest.mark.parametrize("spacing_mm", [1.0, 5.0])
def test_the_kernel_of_axial_turns_is_a_sum_of_cosines(spacing_mm: float) -> None:
    encoding = create_encoding("rotary_axial", dim=12, num_heads=1, frame="mm", wavelengths_mm=(20.0, 80.0))
    displacements, logits = kernel(encoding, spacing_mm)
    cosines = sum(torch.cos(2 * torch.pi * displacements.double() / w) - 1 for w in (20.0, 80.0))
    torch.testing.assert_close(logits[0], 2 * cosines / 12**0.5, rtol=0, atol=1e-9)
