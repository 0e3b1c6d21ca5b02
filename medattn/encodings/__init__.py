"""Positional encodings: coordinates in, ``PositionSignal`` out; one file per family."""

from medattn.encodings.base import Invariance, PositionalEncoding
from medattn.encodings.layout import TokenLayout
from medattn.encodings.registry import create_encoding, list_encodings
from medattn.encodings.signal import PositionSignal
from medattn.encodings.spacing_token import SpacingToken

__all__ = [
    "Invariance",
    "PositionSignal",
    "PositionalEncoding",
    "SpacingToken",
    "TokenLayout",
    "create_encoding",
    "list_encodings",
]
