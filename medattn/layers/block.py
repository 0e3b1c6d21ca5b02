"""Pre-norm Transformer block."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from medattn.attention.functional import attend
from medattn.encodings.bias import Bias
from medattn.encodings.signal import PositionSignal


def _checked_probability(name: str, value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1), got {value!r}")
    return value


class AttentionInputs(NamedTuple):
    """Queries and keys (B, H, N, D) as turned by positions, values (B, H, N, D), and what is added to the logits."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Bias | None
    channels: tuple[Tensor, Tensor] | None


class SelfAttention(nn.Module):
    """Multi-head self-attention; positions turn the queries and keys.

    Args:
        dim: token width, a multiple of ``num_heads``.
        num_heads: heads.
        dropout: probability of dropping an attention weight, in training only.
    """

    def __init__(self, dim: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim}, num_heads={num_heads}")
        self.num_heads, self.dropout = num_heads, _checked_probability("attention dropout", dropout)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor, signal: PositionSignal, mask: Tensor | None = None) -> Tensor:
        """(B, N, dim) -> (B, N, dim); ``mask`` is boolean, broadcastable to (B, H, N, N)."""
        dropout = self.dropout if self.training else 0.0
        q, k, v, bias, channels = self.project(tokens, signal)
        return self.merge(attend(q, k, v, bias=bias, channels=channels, mask=mask, dropout=dropout))

    def merge(self, mixed: Tensor) -> Tensor:
        """What ``attend`` gave, (B, H, N, D), as an update (B, N, dim) of the tokens."""
        projected: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return projected

    def project(self, tokens: Tensor, signal: PositionSignal) -> AttentionInputs:
        """What ``attend`` is given for ``tokens`` (B, N, dim)."""
        q, k, v = self.qkv(tokens).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        channels = None if signal.channels is None else (signal.channels.queries(q), signal.channels.keys(k.dtype))
        return AttentionInputs(signal.rotate(q), signal.rotate(k), v, signal.bias, channels)


class Block(nn.Module):
    """x + attention(norm(x)), then x + ffn(norm(x)), with a GELU between the two layers of the ffn.

    Args:
        ffn_dim: hidden width of the feed-forward network.
        dropout: probability of dropping a channel of either update, in training only.
        attention_dropout: see ``SelfAttention``.
    """

    def __init__(
        self, dim: int, num_heads: int, ffn_dim: int, *, dropout: float = 0.0, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, num_heads, dropout=attention_dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, ffn_dim), nn.GELU(), nn.Linear(ffn_dim, dim))
        self.dropout = _checked_probability("dropout", dropout)

    def forward(self, tokens: Tensor, signal: PositionSignal, mask: Tensor | None = None) -> Tensor:
        """(B, N, dim) -> (B, N, dim)."""
        return self.after_attention(tokens, self.attention(self.attention_norm(tokens), signal, mask))

    def after_attention(self, tokens: Tensor, update: Tensor) -> Tensor:
        """The rest of the block, from its input and what its attention gave."""
        tokens = tokens + self._dropped(update)
        return tokens + self._dropped(self.ffn(self.ffn_norm(tokens)))

    def _dropped(self, update: Tensor) -> Tensor:
        return F.dropout(update, self.dropout, self.training)
