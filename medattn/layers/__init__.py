"""Layers that the encoder is made of."""

from medattn.layers.block import Block, SelfAttention
from medattn.layers.patch_embed import PatchEmbed

__all__ = ["Block", "PatchEmbed", "SelfAttention"]
