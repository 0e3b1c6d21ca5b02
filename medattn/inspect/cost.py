"""What encoders cost: parameters, multiply-accumulates, memory, and how their attention is computed."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from medattn.attention.backends import record_backends
from medattn.attention.cost import layer_macs
from medattn.encoder import VolumeEncoder
from medattn.geometry.grid import VoxelGrid
from medattn.inspect.memory import peak_bytes


class EncoderCost(NamedTuple):
    """One encoder on one volume. A multiply-accumulate (MAC) is two floating-point operations.

    Attributes:
        name: the encoder's key, or its encoding's name.
        encoding, frame: the positional encoding.
        tokens: prefix tokens included.
        parameters: of the whole encoder; ``encoding_parameters`` of these belong to the encoding.
        depth: layers.
        projection_macs, attention_macs, ffn_macs: of one layer (see ``layer_macs``); ``encoding_macs`` is what the
            encoding adds to it.
        once_macs: outside of the layers: patch embedding, position signal, spacing token and modulation.
        total_macs: of a forward pass; normalisation, activations, softmax and elementwise products are left out.
        bias_bytes: what the encoding holds of biases and channels, for all layers together.
        dense_bias_bytes: what a bias stored for all pairs, (H, N, N), would take; 0 without a bias.
        peak_bytes: the most that tensors hold at once in a forward and backward pass in training, beyond parameters
            and their gradients; None on devices that cannot tell.
        backend, reason: what computes the attention, and why.
    """

    name: str
    encoding: str
    frame: str
    tokens: int
    parameters: int
    encoding_parameters: int
    depth: int
    projection_macs: int
    attention_macs: int
    ffn_macs: int
    encoding_macs: int
    once_macs: int
    total_macs: int
    bias_bytes: int
    dense_bias_bytes: int
    peak_bytes: int | None
    backend: str
    reason: str


def cost_table(encoders: VolumeEncoder | Mapping[str, VolumeEncoder], grid: VoxelGrid) -> list[EncoderCost]:
    """A row for each encoder, for one volume on ``grid``: ``pandas.DataFrame(rows)`` makes a table of them.

    MACs follow from formulas; memory and backend are measured in a training step on a copy of each encoder, on its
    device and in its precision. The gradient of all tokens is taken.

    Args:
        encoders: one, or several by name.

    Raises:
        TypeError: if they are not ``VolumeEncoder``s.
    """
    named = {encoders.encoding.name: encoders} if isinstance(encoders, VolumeEncoder) else encoders
    if not isinstance(named, Mapping) or not all(isinstance(e, VolumeEncoder) for e in named.values()):
        raise TypeError(f"encoders must be a VolumeEncoder, or a mapping of names to them, got {encoders!r}")
    return [_cost(name, encoder, grid) for name, encoder in named.items()]


def _cost(name: str, encoder: VolumeEncoder, grid: VoxelGrid) -> EncoderCost:
    encoding, shape = encoder.encoding, encoder.token_grid(grid).shape
    prefix = 0 if encoder.spacing_token is None else 1
    tokens, depth = prefix + math.prod(shape), len(encoder.blocks)
    layer = layer_macs(tokens, encoder.dim, encoder.ffn_dim)
    added = encoding.layer_macs(shape, prefix)
    once = encoder.patch_embed.macs(grid) + encoding.signal_macs(shape) + _spacing_macs(encoder)
    bias_bytes, dense_bytes = _bias_bytes(encoder, grid)
    with record_backends() as choices:
        peak = _peak_of_training_step(encoder, grid)
    return EncoderCost(
        name=name,
        encoding=encoding.name,
        frame=encoding.frame.value,
        tokens=tokens,
        parameters=_count(encoder),
        encoding_parameters=_count(encoding),
        depth=depth,
        projection_macs=layer.projections,
        attention_macs=layer.attention,
        ffn_macs=layer.ffn,
        encoding_macs=added,
        once_macs=once,
        total_macs=once + depth * (layer.total + added),
        bias_bytes=bias_bytes,
        dense_bias_bytes=dense_bytes,
        peak_bytes=peak,
        backend=choices[0].name,
        reason=choices[0].reason,
    )


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _spacing_macs(encoder: VolumeEncoder) -> int:
    modules = [m for m in (encoder.spacing_token, encoder.spacing_modulation) if m is not None]
    return sum(m.weight.numel() for module in modules for m in module.modules() if isinstance(m, torch.nn.Linear))


def _bias_bytes(encoder: VolumeEncoder, grid: VoxelGrid) -> tuple[int, int]:
    with torch.no_grad():
        signal = encoder.position_signal([grid])
    held = sum(t.numel() * t.element_size() for t in _tensors((signal.bias, signal.channels)))
    if signal.bias is None and signal.channels is None:
        return held, 0
    size = torch.promote_types(encoder.dtype, torch.float32).itemsize
    return held, encoder.encoding.num_heads * math.prod(encoder.token_grid(grid).shape) ** 2 * size


def _tensors(part: Any) -> Iterator[Tensor]:
    """All tensors in a part of a signal."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _tensors(item)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _tensors(getattr(part, field.name))


def _peak_of_training_step(encoder: VolumeEncoder, grid: VoxelGrid) -> int | None:
    device = next(encoder.parameters()).device
    encoder = copy.deepcopy(encoder).train().requires_grad_()
    volume = encoder.patch_embed.blank(grid)

    def step() -> None:
        encoder([volume], [grid]).tokens.sum().backward()

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        step()  # what is allocated once, the parameters' gradients among it
        return peak_bytes(step, device)
