"""Leading-order cost of a Transformer layer."""

from __future__ import annotations

from typing import NamedTuple


class LayerMacs(NamedTuple):
    """Multiply-accumulates of one layer, by part."""

    projections: int
    attention: int
    ffn: int

    @property
    def total(self) -> int:
        return self.projections + self.attention + self.ffn


def layer_macs(num_tokens: int, dim: int, ffn_dim: int) -> LayerMacs:
    """4 n d^2 (projections) + 2 n^2 d (attention) + 2 n d d_ff (feed-forward) for one sample.

    Biases, softmax, normalisation and activation are left out. The count does not depend on the number of heads.

    Raises:
        ValueError: if a size is not a positive integer.
    """
    for name, value in (("num_tokens", num_tokens), ("dim", dim), ("ffn_dim", ffn_dim)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
    n = num_tokens
    return LayerMacs(projections=4 * n * dim**2, attention=2 * n**2 * dim, ffn=2 * n * dim * ffn_dim)
