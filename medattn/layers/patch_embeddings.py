"""Patch embeddings by name."""

from __future__ import annotations

import inspect
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
