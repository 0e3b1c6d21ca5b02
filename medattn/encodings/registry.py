"""Encodings by name. A file in this package that registers a class is found without being listed anywhere."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from medattn.coordinates import Frame
from medattn.encodings.base import PositionalEncoding

_ENCODINGS: dict[str, type[PositionalEncoding]] = {"none": PositionalEncoding}


def register(name: str) -> Callable[[type[PositionalEncoding]], type[PositionalEncoding]]:
    """Class decorator: make an encoding available to ``create_encoding`` under ``name``."""

    def add(cls: type[PositionalEncoding]) -> type[PositionalEncoding]:
        if name in _ENCODINGS:
            raise ValueError(f"encoding name {name!r} is taken by {_ENCODINGS[name].__qualname__}")
        cls.name = name
        _ENCODINGS[name] = cls
        return cls

    return add


@contextmanager
def own_random_stream() -> Iterator[None]:
    """Parameters drawn inside depend on the global seed, but neither change those drawn after nor repeat them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, ())))
        yield


def _discover() -> dict[str, type[PositionalEncoding]]:
    package = importlib.import_module("medattn.encodings")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"medattn.encodings.{module.name}")
    return _ENCODINGS


def list_encodings() -> list[str]:
    """Names that ``create_encoding`` takes."""
    return sorted(_discover())


def encoding_class(name: str) -> type[PositionalEncoding]:
    """The class that ``create_encoding`` builds: its frames, and what it says about itself.

    Raises:
        ValueError: for an unknown name; the known ones are listed.
    """
    encodings = _discover()
    if name not in encodings:
        raise ValueError(f"encoding must be one of {', '.join(sorted(encodings))}, got {name!r}")
    return encodings[name]


def create_encoding(name: str, *, dim: int, num_heads: int, frame: Frame | str, **options: Any) -> PositionalEncoding:
    """Build the encoding ``name`` for tokens of width ``dim``, ``num_heads`` heads and coordinates in ``frame``.

    Raises:
        ValueError: for an unknown name or option (the valid ones are listed), or a frame in which it is undefined.
    """
    cls = encoding_class(name)
    known = [p for p in inspect.signature(cls.__init__).parameters if p not in ("self", "dim", "num_heads", "frame")]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"encoding {name!r} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    with own_random_stream():
        return cls(dim=dim, num_heads=num_heads, frame=frame, **options)
