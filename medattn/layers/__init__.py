"""Layers that the encoder is made of."""

from medattn.layers.block import Block, SelfAttention
from medattn.layers.label_embed import LabelEmbed
from medattn.layers.patch_embed import PatchEmbed, PatchEmbedding
from medattn.layers.patch_embeddings import as_patch_embed, create_patch_embed
from medattn.layers.physical_patch_embed import PhysicalPatchEmbed

__all__ = [
    "Block",
    "LabelEmbed",
    "PatchEmbed",
    "PatchEmbedding",
    "PhysicalPatchEmbed",
    "SelfAttention",
    "as_patch_embed",
    "create_patch_embed",
]
