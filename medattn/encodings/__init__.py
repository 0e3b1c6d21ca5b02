"""Positional encodings: coordinates in, ``PositionSignal`` out; one file per family."""

from medattn.encodings.base import PositionalEncoding, PositionSignal
from medattn.encodings.registry import create_encoding, list_encodings
from medattn.encodings.spacing_token import SpacingToken

__all__ = ["PositionSignal", "PositionalEncoding", "SpacingToken", "create_encoding", "list_encodings"]
