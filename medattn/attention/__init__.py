"""Attention as functions, its masks, its backends and its cost."""

from medattn.attention.backends import BackendChoice, choose_backend, prefer_backend, record_backends
from medattn.attention.cache import KVCache
from medattn.attention.cost import LayerMacs, layer_macs
from medattn.attention.flops import flop_counter
from medattn.attention.functional import attend, attention_weights
from medattn.attention.masks import axis_causal_mask, causal_mask, padding_mask

__all__ = [
    "BackendChoice",
    "KVCache",
    "LayerMacs",
    "attend",
    "attention_weights",
    "axis_causal_mask",
    "causal_mask",
    "choose_backend",
    "flop_counter",
    "layer_macs",
    "padding_mask",
    "prefer_backend",
    "record_backends",
]
