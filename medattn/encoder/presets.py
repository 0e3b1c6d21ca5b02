"""Encoders by name or by config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medattn.coordinates import Frame
from medattn.encoder.volume_encoder import VolumeEncoder
from medattn.encodings import create_encoding
from medattn.layers import create_patch_embed

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 96, "num_heads": 4, "depth": 3, "ffn_ratio": 2.0, "patch_size": 4},
    "small": {"dim": 384, "num_heads": 6, "depth": 6, "patch_size": 8},
    "base": {"dim": 768, "num_heads": 12, "depth": 12, "patch_size": 16},
}


def create_encoder(config: str | Mapping[str, Any] = "tiny", **overrides: Any) -> VolumeEncoder:
    """Build an encoder from a preset name or a mapping, with single values overridden.

    Keys: ``encoding`` (name, "rotary_axial" by default), ``encoding_options`` (mapping), ``frame`` ("mm" by default),
    ``dim``, ``num_heads``, ``patch_embed`` instead of ``patch_size`` and ``in_channels`` (a ``PatchEmbedding``, or a
    mapping with ``name`` and options, see ``create_patch_embed``), and the arguments of ``VolumeEncoder``.

    Raises:
        ValueError: for an unknown preset (the presets are listed), a mapping without ``dim`` or ``num_heads``, or
            ``patch_embed`` beside what it replaces.
    """
    if isinstance(config, str):
        if config not in PRESETS:
            raise ValueError(f"encoder preset must be one of {', '.join(PRESETS)}, got {config!r}")
        config = PRESETS[config]
    if "patch_embed" in overrides:
        config = {key: value for key, value in config.items() if key not in ("patch_size", "in_channels")}
    settings = {**config, **overrides}
    missing = [key for key in ("dim", "num_heads") if key not in settings]
    if missing:
        raise ValueError(f"an encoder's config must have {' and '.join(missing)}, got only {', '.join(settings)}")
    embed = settings.pop("patch_embed", None)
    if embed is not None and (clash := [key for key in ("patch_size", "in_channels") if key in settings]):
        raise ValueError(f"patch_embed must come without {' and '.join(clash)}, got both")
    dim = settings.pop("dim")
    encoding = create_encoding(
        settings.pop("encoding", "rotary_axial"),
        dim=dim,
        num_heads=settings.pop("num_heads"),
        frame=settings.pop("frame", Frame.MM),
        **settings.pop("encoding_options", {}),
    )
    if embed is not None:
        settings["patch_size"] = create_patch_embed(dim=dim, **embed) if isinstance(embed, Mapping) else embed
    return VolumeEncoder(encoding, **settings)
