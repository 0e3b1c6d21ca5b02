"""Encodings by name, their options, and what is said about bad ones."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from medattn import PositionalEncoding, create_encoder, create_encoding, list_encodings
from medattn.coordinates import Frame
from medattn.encodings import registry
from tests.contracts.encoding_contract import EncodingContract

ROOT = Path(__file__).resolve().parents[2]
SIZES: dict[str, Any] = {"dim": 24, "num_heads": 2}


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    list_encodings()
    monkeypatch.setattr(registry, "_ENCODINGS", dict(registry._ENCODINGS))


def test_the_encodings_have_names() -> None:
    assert {"none", "sincos", "rotary_axial"} <= set(list_encodings())
    assert list_encodings() == sorted(list_encodings())
    assert type(create_encoding("none", frame="mm", **SIZES)) is PositionalEncoding


def test_the_none_arm_is_nothing_at_all() -> None:
    encoding = create_encoding("none", frame="mm", **SIZES)
    assert list(encoding.parameters()) == []
    assert list(encoding.buffers()) == []
    signal = encoding(torch.randn(1, 4, 3))
    assert signal.additive is None
    assert signal.rotary is None


@pytest.mark.parametrize("frame", list(Frame))
@pytest.mark.parametrize("name", ["sincos", "rotary_axial"])
def test_fixed_encodings_have_buffers_and_no_parameters(name: str, frame: Frame) -> None:
    encoding = create_encoding(name, frame=frame, **SIZES)
    assert list(encoding.parameters()) == []
    assert [name for name, _ in encoding.named_buffers()] == ["angles.axis", "angles.frequency", "angles.units.factors"]
    assert encoding.state_dict() == {}  # they follow from the options, so a checkpoint need not carry them


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"encoding must be one of .*none, .*rotary_axial, .*sincos.*, got 'sinus'"):
        create_encoding("sinus", frame="mm", **SIZES)


@pytest.mark.parametrize("name", ["none", "sincos", "rotary_axial"])
@pytest.mark.parametrize("frame", ["world", "MM", "", None, 3])
def test_an_unknown_frame_lists_the_known_ones(name: str, frame: Any) -> None:
    known = "sequence, index, fraction, mm, patient_mm, scanner_mm"
    with pytest.raises(ValueError, match=f"frame must be one of {known}, got {frame!r}"):
        create_encoding(name, frame=frame, **SIZES)


def test_an_unknown_option_lists_the_known_ones() -> None:
    known = "wavelengths_mm, reference_spacing_mm, reference_extent_mm, base"
    with pytest.raises(ValueError, match=f"encoding 'sincos' has no option period, theta; it has {known}"):
        create_encoding("sincos", frame="mm", theta=1, period=2, base=100.0, **SIZES)
    with pytest.raises(ValueError, match="encoding 'none' has no option base; it has none"):
        create_encoding("none", frame="mm", base=2, **SIZES)


@pytest.mark.parametrize("value", [0, -2, 2.5, True, "8"])
@pytest.mark.parametrize("field", ["dim", "num_heads"])
def test_sizes_must_be_positive_integers(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{field} must be a positive integer, got {value!r}"):
        create_encoding("none", frame="mm", **{**SIZES, field: value})


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="multiple of num_heads, got dim=24, num_heads=5"):
        create_encoding("none", frame="mm", dim=24, num_heads=5)


@pytest.mark.parametrize("name", ["sincos", "rotary_axial"])
@pytest.mark.parametrize(
    ("frame", "option", "value"),
    [
        *(("mm", "wavelengths_mm", v) for v in ((0, 10), (-1, 10), (20, 10), (10,), (1, 2, 3), (1, float("inf")))),
        *(("index", "reference_spacing_mm", v) for v in (0, -1.0, (1, 2), (1, 2, 0), float("nan"))),
        *(("fraction", "reference_extent_mm", v) for v in (0, -1.0, (1, 2), float("inf"))),
        *(("sequence", "base", v) for v in (1.0, 0.5, -10.0, float("nan"))),
    ],
    ids=str,
)
def test_an_option_out_of_range_is_named_with_its_value(name: str, frame: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{option} must be .*got {re.escape(repr(value))}$"):
        create_encoding(name, frame=frame, **{option: value}, **SIZES)


def test_sizes_in_mm_may_come_as_tensors() -> None:
    coords = torch.rand(1, 4, 3, dtype=torch.float64)
    for frame, option in (("index", "reference_spacing_mm"), ("fraction", "reference_extent_mm")):
        found = [
            create_encoding("sincos", frame=frame, **{option: value}, **SIZES)(coords).additive
            for value in ((1.0, 2.0, 3.0), torch.tensor([1.0, 2.0, 3.0]))
        ]
        assert torch.equal(found[0], found[1])


# -- new encodings -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_registry")
def test_a_registered_class_is_found_and_a_taken_name_is_refused() -> None:
    class Mine(PositionalEncoding):
        defined_frames = (Frame.INDEX, Frame.MM)

    assert registry.register("mine")(Mine) is Mine
    assert "mine" in list_encodings()
    assert create_encoding("mine", frame="index", **SIZES).name == "mine"
    with pytest.raises(ValueError, match="'mine' is not defined in frame 'fraction', only in index, mm"):
        create_encoding("mine", frame="fraction", **SIZES)
    with pytest.raises(ValueError, match=r"encoding name 'mine' is taken by .*Mine"):
        registry.register("mine")(Mine)
    with pytest.raises(ValueError, match="encoding name 'none' is taken by PositionalEncoding"):
        registry.register("none")(Mine)


@pytest.mark.usefixtures("own_registry")
def test_parameters_of_an_encoding_do_not_change_those_of_the_model_around_it() -> None:
    @registry.register("learned")
    class Learned(PositionalEncoding):
        def __init__(self, *, dim: int, num_heads: int, frame: Frame | str) -> None:
            super().__init__(dim=dim, num_heads=num_heads, frame=frame)
            self.map = nn.Linear(3, dim)

    found = {}
    for name in ("learned", "none"):
        torch.manual_seed(0)
        found[name] = create_encoder("tiny", encoding=name).state_dict()
    assert set(found["learned"]) - set(found["none"]) == {"encoding.map.weight", "encoding.map.bias"}
    assert all(torch.equal(found["learned"][key], value) for key, value in found["none"].items())


class TestTheEncodingInTheGuide(EncodingContract):
    """The example of CONTRIBUTING.md, run as it stands there, obeys the contract."""

    @pytest.fixture(params=["sequence", "index", "mm"])
    def case(self, request: pytest.FixtureRequest, own_registry: None) -> Iterator[tuple[str, Frame]]:
        guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        (block,) = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
        lines = block.splitlines()
        indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        exec("\n".join(line[indent:] for line in lines), {})
        return ("linear", Frame(request.param))
