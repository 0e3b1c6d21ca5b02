"""Attention with each kind of position against attention without, forward + backward: time, and memory by tokens.

python benchmarks/attention.py [--csv benchmarks/attention.csv]
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import torch
from timing import arguments, compare, pinned, save, show

from medattn import TokenLayout, VoxelGrid, attend, create_encoding, token_coordinates
from medattn.coordinates import token_steps

HEADS, WIDTH = 6, 64
SHAPES = {64: (4, 4, 4), 1728: (12, 12, 12), 4096: (16, 16, 16), 8192: (16, 16, 32)}
NAMES = {
    "none": {},
    "rotary_axial": {},
    "rotary_mixed": {},
    "gaussian": {},
    "distance_slopes": {},
    "radial_bias": {},
    "continuous_bias": {},
    "relative_table": {"max_shape": 32},
    "relative_decomposed": {"max_shape": 32},
}
INDEX_ONLY = ("relative_table", "relative_decomposed")


def attention(name: str, num_tokens: int) -> Callable[[], None]:
    """One forward and backward of attention, the encoding's own included."""
    torch.manual_seed(0)
    frame, grid = "index" if name in INDEX_ONLY else "mm", VoxelGrid.from_spacing(SHAPES[num_tokens], 8.0)
    encoding = create_encoding(name, dim=HEADS * WIDTH, num_heads=HEADS, frame=frame, **NAMES[name])
    coords = token_coordinates(grid, 1, frame)[None]
    layout = TokenLayout((grid.shape,), token_steps(grid, 1, frame)[None])
    q, k, v = (torch.randn(1, HEADS, num_tokens, WIDTH, requires_grad=True) for _ in range(3))

    def run() -> None:
        signal = encoding(coords, layout).to(q.device, q.dtype)
        channels = None if signal.channels is None else (signal.channels.queries(q), signal.channels.keys(q.dtype))
        attend(signal.rotate(q), signal.rotate(k), v, bias=signal.bias, channels=channels).sum().backward()

    return run


def peak_mib(name: str, num_tokens: int, threads: int) -> float:
    """What one forward and backward adds to the most memory that a fresh process has had."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_peak_mib, (name, num_tokens, threads))


def _peak_mib(name: str, num_tokens: int, threads: int) -> float:
    torch.set_num_threads(threads)
    attention(name, 64)()  # what is allocated once
    run, before = attention(name, num_tokens), _most_mib()
    run()
    return _most_mib() - before


def _most_mib() -> float:
    """The most memory that this process has had (that of getrusage is inherited from its parent)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    pinned()
    options = arguments(__doc__.splitlines()[0], threads=1)
    rows: list[dict[str, object]] = []
    for num_tokens in (1728, 4096):
        medians = compare({name: attention(name, num_tokens) for name in NAMES}, options.rounds)
        show(f"{num_tokens} tokens, {HEADS} heads of {WIDTH}", medians, "none", rows)
    memory: list[dict[str, object]] = []
    for name in ("OMP_PLACES", "OMP_PROC_BIND"):
        os.environ.pop(name, None)  # of this process, and not for those that it starts
    print(f"\npeak memory, MiB{'':28}{'4,096':>9}{'8,192':>9}{'ratio':>8}")
    for name in NAMES:
        small, large = (peak_mib(name, n, options.threads) for n in (4096, 8192))
        print(f"{name:44}{small:9.0f}{large:9.0f}{large / small:8.2f}")
        memory.append({"candidate": name, "mib_4096": small, "mib_8192": large, "ratio": large / small})
    save(options.csv, rows)
    save(options.csv and options.csv.with_stem(f"{options.csv.stem}_memory"), memory)


if __name__ == "__main__":
    main()
