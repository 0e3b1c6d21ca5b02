"""Which way of computing attention is taken, and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from medattn.encodings.bias import Bias, TableBias

Backend = Literal["auto", "fused", "blocked", "flex", "reference"]
BACKENDS = ("auto", "fused", "blocked", "flex", "reference")


class BackendChoice(NamedTuple):
    """``name`` of the backend that runs, and the ``reason``."""

    name: str
    reason: str


def choose_backend(bias: Tensor | Bias | None, dropout: float = 0.0, backend: Backend = "auto") -> BackendChoice:
    """What ``attend`` runs for these arguments.

    Raises:
        ValueError: for an unknown backend, or one that cannot compute this.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend must be {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}, got {backend!r}")
    if backend == "auto":
        backend = _PREFERRED[-1]
    if backend == "flex":
        _check_flex(bias, dropout)
    if backend != "auto":
        return BackendChoice(backend, "asked for by name")
    if isinstance(bias, TableBias) and dropout == 0:
        return BackendChoice("blocked", "a bias by displacement is read from its table block by block")
    if isinstance(bias, Bias):
        what = "with dropout" if isinstance(bias, TableBias) else "pair by pair"
        return BackendChoice("blocked", f"a bias {what} is evaluated block by block, and again in the backward pass")
    return BackendChoice("fused", "scaled_dot_product_attention takes all that there is to add to the logits")


def _check_flex(bias: Tensor | Bias | None, dropout: float) -> None:
    if dropout > 0:
        raise ValueError(f"backend 'flex' has no dropout of weights, got {dropout}: use 'auto'")
    if bias is not None and not isinstance(bias, TableBias):
        raise ValueError(f"backend 'flex' reads biases by displacement on grids, got {type(bias).__name__}: use 'auto'")


_PREFERRED: list[Backend] = ["auto"]


@contextmanager
def prefer_backend(backend: Backend) -> Iterator[None]:
    """What "auto" is inside: each ``attend`` that leaves the choice, as those of the layers do, takes ``backend``.

    Raises:
        ValueError: for an unknown backend.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend must be {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}, got {backend!r}")
    _PREFERRED.append(backend)
    try:
        yield
    finally:
        _PREFERRED.pop()


_RECORDS: list[list[BackendChoice]] = []


@contextmanager
def record_backends() -> Iterator[list[BackendChoice]]:
    """A list that gets the choice of each call of ``attend`` inside, in order; calls in compiled code leave none."""
    record: list[BackendChoice] = []
    _RECORDS.append(record)
    try:
        yield record
    finally:
        _RECORDS[:] = [other for other in _RECORDS if other is not record]


def note_choice(choice: BackendChoice) -> None:
    """Tell those who listen."""
    if not torch.compiler.is_compiling():
        for record in _RECORDS:
            record.append(choice)
