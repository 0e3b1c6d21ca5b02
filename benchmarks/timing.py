"""Timing side by side: candidates take turns, so that a drift of the machine hits all alike; medians are compared."""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch


def pinned() -> None:
    """Start again with OpenMP threads pinned to cores: unpinned, two threads sometimes land on one."""
    if "OMP_PLACES" not in os.environ:
        cores = ",".join(f"{{{core}}}" for core in sorted(os.sched_getaffinity(0)))
        os.environ.update(OMP_PROC_BIND="close", OMP_PLACES=cores)
        os.execv(sys.executable, [sys.executable, *sys.argv])


def arguments(description: str, threads: int | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each candidate (default 15)")
    parser.add_argument("--threads", type=int, default=threads or len(os.sched_getaffinity(0)), help="threads")
    parser.add_argument("--csv", type=Path, help="also write the table here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    return options


def compare(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each candidate; in each round every candidate runs once, after two rounds of warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 2):
        for name, run in candidates.items():
            started = time.perf_counter()
            run()
            if number >= 2:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def show(title: str, medians: dict[str, float], unit: str, rows: list[dict[str, object]]) -> None:
    """Print medians and ratios to ``unit``, and keep them for the CSV."""
    print(f"\n{title}\n{'':44}{'ms':>9}{'ratio':>8}")
    for name, seconds in medians.items():
        print(f"{name:44}{1000 * seconds:9.2f}{seconds / medians[unit]:8.2f}")
        rows.append({"case": title, "candidate": name, "ms": 1000 * seconds, "ratio": seconds / medians[unit]})


def save(path: Path | None, rows: list[dict[str, object]]) -> None:
    if path is not None:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
