"""MONAI's vision transformer as a ``VolumeEncoder`` with the same outputs. MONAI itself is not needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from medattn.coordinates import Frame
from medattn.encoder import VolumeEncoder
from medattn.encodings import create_encoding
from medattn.geometry.grid import Triple, as_triple

_CONV, _PERCEPTRON = "patch_embedding.patch_embeddings", "patch_embedding.patch_embeddings.1"
_POSITIONS = "patch_embedding.position_embeddings"
_BLOCK = {
    "norm1.weight": "attention_norm.weight",
    "norm1.bias": "attention_norm.bias",
    "attn.qkv.weight": "attention.qkv.weight",
    "attn.qkv.bias": "attention.qkv.bias",
    "attn.out_proj.weight": "attention.out.weight",
    "attn.out_proj.bias": "attention.out.bias",
    "norm2.weight": "ffn_norm.weight",
    "norm2.bias": "ffn_norm.bias",
    "mlp.linear1.weight": "ffn.0.weight",
    "mlp.linear1.bias": "ffn.0.bias",
    "mlp.linear2.weight": "ffn.2.weight",
    "mlp.linear2.bias": "ffn.2.bias",
}
"""Names in a block of theirs and of ours. Both stack q, k, v, in each the heads, in each the channels."""

_UNUSED = re.compile(r"blocks\.\d+\.(norm_cross_attn|cross_attn)\.")
"""Parameters that MONAI keeps in every block and uses in decoders only."""


def encoder_from_monai_vit(
    state_dict: Mapping[str, Tensor],
    *,
    img_size: int | Sequence[int],
    patch_size: int | Sequence[int],
    num_heads: int,
    frame: Frame | str = Frame.SEQUENCE,
) -> VolumeEncoder:
    """The encoder that computes what ``monai.networks.nets.ViT`` with this ``state_dict()`` returns first.

    Checked against MONAI 1.6.1, for its patch embeddings "conv" and "perceptron" and each of its position embeddings,
    which all are one stored vector a token: they become a ``learned_table``, trainable whatever they were.

    Args:
        img_size, patch_size, num_heads: as given to MONAI, whose weights do not tell them.
        frame: where the table is looked up; all agree on volumes of ``img_size``. "sequence" takes rows by number, as
            MONAI does; "fraction" stretches the table over volumes of other sizes, "index" keeps its voxels.

    Raises:
        ValueError: if the weights do not fit the sizes, or are not those of such an encoder: a class token or decoder.
    """
    patch, image = as_triple(patch_size, "patch_size", minimum=1), as_triple(img_size, "img_size", minimum=1)
    state = {name: value for name, value in state_dict.items() if not _UNUSED.match(name)}
    if "cls_token" in state:
        raise ValueError("the weights must be of a ViT with classification=False: an encoder here has no class token")
    tokens: Triple = (image[0] // patch[0], image[1] // patch[1], image[2] // patch[2])
    positions = _taken(state, _POSITIONS)
    if positions.shape[1] != tokens[0] * tokens[1] * tokens[2]:
        raise ValueError(f"img_size / patch_size must give {positions.shape[1]} tokens, got {tokens} of them")
    ours = {"encoding.table": positions.reshape(*tokens, -1)}
    ours["patch_embed.projection.weight"], ours["patch_embed.projection.bias"] = _patch_weights(state, patch)
    depth = 1 + max((int(name.split(".")[1]) for name in state if name.startswith("blocks.")), default=-1)
    for block in range(depth):
        ours |= _block_weights(state, block)
    ours |= {name: _taken(state, name) for name in ("norm.weight", "norm.bias")}
    if state:
        raise ValueError(f"the weights must be those of an encoder alone, but there is also {', '.join(sorted(state))}")
    dim = positions.shape[-1]
    options = {"table_shape": tokens, "table_step": patch}
    encoder = VolumeEncoder(
        create_encoding("learned_table", dim=dim, num_heads=num_heads, frame=frame, **options),
        in_channels=ours["patch_embed.projection.weight"].shape[1] // (patch[0] * patch[1] * patch[2]),
        patch_size=patch,
        depth=depth,
        ffn_ratio=len(ours["blocks.0.ffn.0.bias"]) / dim if depth else 1.0,
    )
    encoder.load_state_dict(ours)
    return encoder.eval()


def _patch_weights(state: dict[str, Tensor], patch: Triple) -> tuple[Tensor, Tensor]:
    """Weight (D, C p q r), with the voxels of a patch in (c, i, j, k) order, and bias."""
    if f"{_CONV}.weight" in state:
        weight = _taken(state, f"{_CONV}.weight")
        if tuple(weight.shape[2:]) != patch:
            raise ValueError(f"patch_size must be that of the weights, {tuple(weight.shape[2:])}, got {patch}")
        return weight.flatten(1), _taken(state, f"{_CONV}.bias")
    weight = _taken(state, f"{_PERCEPTRON}.weight")  # (i, j, k, c) order
    voxels = patch[0] * patch[1] * patch[2]
    if weight.shape[1] % voxels:
        raise ValueError(f"patch_size must divide {weight.shape[1]} numbers a patch into channels, got {patch}")
    return weight.unflatten(1, (voxels, -1)).mT.flatten(1), _taken(state, f"{_PERCEPTRON}.bias")


def _block_weights(state: dict[str, Tensor], block: int) -> dict[str, Tensor]:
    prefix = f"blocks.{block}."
    weight = state.get(f"{prefix}attn.qkv.weight")
    if weight is not None:  # without qkv_bias, which is MONAI's default
        state.setdefault(f"{prefix}attn.qkv.bias", torch.zeros_like(weight[:, 0]))
    return {prefix + ours: _taken(state, prefix + theirs) for theirs, ours in _BLOCK.items()}


def _taken(state: dict[str, Tensor], name: str) -> Tensor:
    """Out of ``state``, so that what is left is what nobody knew."""
    if name not in state:
        raise ValueError(f"the weights must be those of monai.networks.nets.ViT, but there is no {name!r}")
    return state.pop(name)
