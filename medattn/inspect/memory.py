"""The most memory that a call has in use at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(run: Callable[[], object], device: torch.device) -> int | None:
    """The most bytes that tensors made in ``run`` hold at once; None on devices that cannot tell.

    On the CPU every allocation is followed, on CUDA the allocator's own count is read. What a library keeps for itself
    outside of PyTorch's allocators is not seen.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    return _peak_on_cpu(run) if device.type == "cpu" else None


def _peak_on_cpu(run: Callable[[], object]) -> int:
    with _quiet_profiler(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    recorded = profiler.profiler
    assert recorded is not None and recorded.kineto_results is not None
    changes = [event for event in recorded.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        most = max(most, held)
    return most


@contextmanager
def _quiet_profiler() -> Iterator[None]:
    """Keeps the profiler's own notes off stderr."""
    before = os.environ.get("KINETO_LOG_LEVEL")
    os.environ["KINETO_LOG_LEVEL"] = "6"
    try:
        yield
    finally:
        if before is None:
            del os.environ["KINETO_LOG_LEVEL"]
        else:
            os.environ["KINETO_LOG_LEVEL"] = before
