"""The encoder: volumes with their grids in, tokens with their grids out."""

from medattn.encoder.presets import PRESETS, create_encoder
from medattn.encoder.stream import SlabStream
from medattn.encoder.token_map import TokenMap, Volumes
from medattn.encoder.volume_encoder import VolumeEncoder

__all__ = ["PRESETS", "SlabStream", "TokenMap", "VolumeEncoder", "Volumes", "create_encoder"]
