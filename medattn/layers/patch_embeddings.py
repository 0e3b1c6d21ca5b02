"""Patch embeddings by name."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from medattn.layers.label_embed import LabelEmbed
from medattn.layers.patch_embed import PatchEmbed, PatchEmbedding
from medattn.layers.physical_patch_embed import PhysicalPatchEmbed

PATCH_EMBEDDINGS: dict[str, type[PatchEmbedding]] = {
    "voxels": PatchEmbed,
    "mm": PhysicalPatchEmbed,
    "labels": LabelEmbed,
}


def create_patch_embed(name: str, *, dim: int, **options: Any) -> PatchEmbedding:
    """Build the patch embedding ``name`` for tokens of width ``dim``: "voxels", "mm" or "labels".

    Options are the arguments of ``PatchEmbed``, ``PhysicalPatchEmbed`` and ``LabelEmbed``; ``in_channels`` is 1 unless
    given.

    Raises:
        ValueError: for an unknown name, or an option that is unknown or missing (the valid ones are listed).
    """
    if name not in PATCH_EMBEDDINGS:
        raise ValueError(f"patch embedding must be one of {', '.join(PATCH_EMBEDDINGS)}, got {name!r}")
    cls = PATCH_EMBEDDINGS[name]
    parameters = [p for p in inspect.signature(cls).parameters.values() if p.name != "dim"]
    known = [p.name for p in parameters]
    if "in_channels" in known:
        options.setdefault("in_channels", 1)
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in options]
    unknown = sorted(set(options) - set(known))
    if missing or unknown:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has no option {', '.join(unknown)}"
        raise ValueError(f"patch embedding {name!r} {wrong}; its options are {', '.join(known)}")
    return cls(dim=dim, **options)


def as_patch_embed(patch: int | Sequence[int] | PatchEmbedding, in_channels: int | None, dim: int) -> PatchEmbedding:
    """``patch`` itself, or a ``PatchEmbed`` of that many voxels and of ``in_channels``, 1 unless given.

    Raises:
        ValueError: for a patch embedding of another width or number of channels, or a size out of range.
    """
    if not isinstance(patch, PatchEmbedding):
        channels = 1 if in_channels is None else in_channels
        if isinstance(channels, bool) or not isinstance(channels, int) or channels < 1:
            raise ValueError(f"in_channels must be a positive integer, got {channels!r}")
        return PatchEmbed(channels, dim, patch)
    if patch.dim != dim:
        raise ValueError(f"the patch embedding must have the encoding's width dim={dim}, got {patch.dim}")
    if in_channels not in (None, patch.in_channels):
        raise ValueError(
            f"in_channels must be left to the patch embedding, which has {patch.in_channels}, got {in_channels!r}"
        )
    return patch
