"""How much memory a call takes, and a bound on it (Linux)."""

from __future__ import annotations

import re
import resource
from pathlib import Path

MAX_GROWTH_BYTES = 200 << 20
"""Most address space that one case may add: what a reader may read before it knows better (64 MiB of extensions to a
header, twice while they are joined), and room for libraries."""

_LIMIT_BYTES = 1 << 30


class MemoryWatch:
    """From its making on: how far this process grew at its largest. Counts pages in use, and address space, of which
    some may be allocated and never touched, as far as there is more of it than there ever was."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak of pages in use begins anew
        self._before = _status()

    def growth_bytes(self) -> int:
        """Bytes at the peak beyond those at the start."""
        before, now = self._before, _status()
        space = now["VmPeak"] - before["VmSize"] if now["VmPeak"] > before["VmPeak"] else 0
        return max(space, now["VmHWM"] - before["VmRSS"])


def limit_growth() -> None:
    """Let all further allocations fail that would make this process over a GiB larger than it is."""
    most = _status()["VmSize"] + _LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _status() -> dict[str, int]:
    """Sizes in bytes that the system knows of this process, by name."""
    found = re.findall(r"^(Vm\w+):\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return {name: int(size) << 10 for name, size in found}
