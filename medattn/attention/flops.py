"""What ``torch.utils.flop_counter`` needs to count this package's own operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula, sdpa_backward_flop_count, sdpa_flop_count

import medattn.attention.blocked  # noqa: F401  (defines the operators)


@register_flop_formula(torch.ops.medattn.blocked_attention, get_raw=True)
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(q.shape, k.shape, v.shape))


@register_flop_formula(torch.ops.medattn.blocked_attention_backward, get_raw=True)
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad.shape, q.shape, k.shape, v.shape))


def flop_counter(**options: Any) -> FlopCounterMode:
    """A ``FlopCounterMode`` that also knows PyTorch's fused attention on the CPU, which it lacks; see there for
    ``options``. A flop is half a multiply-accumulate.
    """
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return FlopCounterMode(custom_mapping={forward: _fused, **options.pop("custom_mapping", {})}, **options)


def _fused(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(q, k, v))
