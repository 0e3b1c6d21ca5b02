"""Attention as functions, its masks and its cost."""

from medattn.attention.cost import LayerMacs, layer_macs
from medattn.attention.functional import attend, attention_weights
from medattn.attention.masks import causal_mask, padding_mask

__all__ = ["LayerMacs", "attend", "attention_weights", "causal_mask", "layer_macs", "padding_mask"]
