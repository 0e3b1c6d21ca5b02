"""The facts about one encoding: from its class, its constructor's signature, and an instance of a stated size."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from medattn.attention.cost import layer_macs
from medattn.coordinates import Frame, token_coordinates, token_steps
from medattn.encodings import Invariance, PositionSignal, TokenLayout, create_encoding, list_encodings
from medattn.encodings.base import PositionalEncoding
from medattn.encodings.units import Millimetres
from medattn.geometry import VoxelGrid

DIM, HEADS, SHAPE, FFN_RATIO = 384, 6, (12, 12, 12), 4
TOKENS = math.prod(SHAPE)
"""The size that parameters and costs are stated for."""

EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "sum": {"parts": [{"name": "sincos"}, {"name": "rotary_axial"}, {"name": "gaussian"}]},
}
"""Options of encodings that cannot be built without."""

KINDS = {
    "additive": "added to the tokens",
    "mixer": "maps the tokens",
    "rotary": "turns queries and keys",
    "matrices": "multiplies queries and keys",
    "bias": "biases the logits",
    "channels": "biases the logits by extra channels",
}
"""Parts of a ``PositionSignal`` in words."""

_PREFERRED = (Frame.MM, Frame.PATIENT_MM, Frame.INDEX, Frame.FRACTION, Frame.SCANNER_MM, Frame.SEQUENCE)
_SECTIONS = re.compile(r"^(Args|Raises|Attributes|Returns):$", re.MULTILINE)


@dataclass(frozen=True)
class Option:
    """An option of a constructor: its default as Python prints it, and what its docstring says."""

    name: str
    default: str
    text: str


@dataclass(frozen=True)
class Entry:
    """What the catalogue says of one encoding.

    Attributes:
        example: options that the rest was found with; empty if it is the defaults.
        frame: the frame that it was built in for the kind of signal, parameters and cost.
        invariances: of each frame in which it is defined.
        signal_macs, layer_macs: multiply-accumulates once a forward, and once in each layer.
    """

    name: str
    cls: type[PositionalEncoding]
    example: Mapping[str, Any]
    frame: Frame
    kinds: tuple[str, ...]
    invariances: Mapping[Frame, tuple[Invariance, ...]]
    parameters: int
    signal_macs: int
    layer_macs: int

    @classmethod
    def of(cls, name: str) -> Entry:
        """The entry of the registered encoding ``name``."""
        built = {frame: build(name, frame) for frame in Frame if frame in type(build(name)).defined_frames}
        frame = next(frame for frame in _PREFERRED if frame in built)
        encoding = built[frame]
        return cls(
            name=name,
            cls=type(encoding),
            example=EXAMPLES.get(name, {}),
            frame=frame,
            kinds=tuple(part for part in KINDS if getattr(small_signal(encoding), part) is not None),
            invariances={frame: tuple(i for i in Invariance if i in each.invariances) for frame, each in built.items()},
            parameters=sum(parameter.numel() for parameter in encoding.parameters()),
            signal_macs=encoding.signal_macs(SHAPE),
            layer_macs=encoding.layer_macs(SHAPE),
        )

    @property
    def layer_share(self) -> float:
        """``layer_macs`` over those of a layer without positions."""
        return self.layer_macs / layer_macs(TOKENS, DIM, FFN_RATIO * DIM).total

    @property
    def prose(self) -> str:
        """The class' docstring before its sections, in Markdown."""
        text = _markdown(_SECTIONS.split(inspect.getdoc(self.cls) or "")[0].strip())
        return text.split("\n\n")[0] if self.cls is PositionalEncoding else text  # the rest is about subclasses

    @property
    def options(self) -> list[Option]:
        """Of the constructor, after size and frame."""
        texts = documented_arguments(self.cls)
        parameters = inspect.signature(self.cls.__init__).parameters
        return [
            Option(name, "required" if p.default is p.empty else repr(p.default), texts.get(name, ""))
            for name, p in parameters.items()
            if name not in ("self", "dim", "num_heads", "frame")
        ]


def all_entries() -> list[Entry]:
    """One for each registered encoding, "none" first."""
    return [Entry.of(name) for name in sorted(list_encodings(), key=lambda name: (name != "none", name))]


def build(name: str, frame: Frame | None = None) -> PositionalEncoding:
    """``name`` at the stated size, after a fixed seed; in the first frame that it is defined in, if none is given."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for chosen in (frame,) if frame else _PREFERRED:
            try:
                return create_encoding(name, dim=DIM, num_heads=HEADS, frame=chosen, **EXAMPLES.get(name, {}))
            except ValueError as error:
                refusal = error
    raise refusal


def small_signal(encoding: PositionalEncoding) -> PositionSignal:
    """Its signal on a grid of a few tokens."""
    grid = VoxelGrid.from_spacing((3, 2, 4), 4.0)
    coords = token_coordinates(grid, 1, encoding.frame)[None]
    layout = TokenLayout((grid.shape,), token_steps(grid, 1, encoding.frame)[None])
    signal: PositionSignal = encoding(coords, layout)
    return signal


def documented_arguments(cls: type) -> dict[str, str]:
    """Argument -> its text in the section "Args" of the class' docstring, or of a base class' or ``Millimetres``."""
    found: dict[str, str] = {}
    for base in (Millimetres, *reversed(cls.__mro__)):
        section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.cleandoc(base.__doc__ or ""), re.MULTILINE | re.DOTALL)
        pattern = re.compile(r"^ {4}(\S[^:\n]*): (.*?)(?=^ {4}\S|\Z)", re.MULTILINE | re.DOTALL)
        for names, text in pattern.findall(section[1] if section else ""):
            if not text.startswith("see ``Millimetres``"):
                found.update(dict.fromkeys(names.split(", "), _markdown(" ".join(text.split()))))
    return found


def _markdown(text: str) -> str:
    return text.replace("``", "`")
