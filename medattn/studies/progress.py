"""Live display of a study: which arm, which step, how long is left."""

from __future__ import annotations

import threading

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class StudyProgress:
    """Bars on a terminal; a line when a run starts and ends elsewhere (a log file, a pipe).

    Args:
        console: where to draw.
        runs: number of runs to be carried out.
        units: length of all of them together.
    """

    def __init__(self, console: Console, runs: int, units: int) -> None:
        self._console, self._runs = console, runs
        self._lock, self._ended = threading.Lock(), set[str]()  # workers' news and ends come from two threads
        self._bars: dict[str, TaskID] = {}
        self._done: dict[str, int] = {}
        self._display = Progress(
            TextColumn("{task.description:<21}"),
            BarColumn(bar_width=10),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._all = self._display.add_task("all runs", total=units, status=f"0 of {runs} runs")

    def __enter__(self) -> StudyProgress:
        self._display.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._display.stop()

    def update(self, key: str, total: int, units: int, status: str) -> None:
        """Run ``key`` is at ``units`` of ``total``; news of a run that has ended comes too late and is dropped."""
        with self._lock:
            if key in self._ended:
                return
            if key not in self._bars:
                self._bars[key] = self._display.add_task(key, total=total, status=status)
                self._line(f"{key}: started")
            self._display.update(self._bars[key], completed=units, status=status)
            self._advance(key, units)

    def finish(self, key: str, total: int, status: str) -> None:
        """Run ``key`` has ended; ``status`` says how."""
        with self._lock:
            self._ended.add(key)
            if key in self._bars:
                self._display.remove_task(self._bars.pop(key))
            self._advance(key, total)
            count = f"{len(self._ended)} of {self._runs}"
            self._display.update(self._all, status=f"{count} runs")
            self._console.print(f"{key}: {status} ({count})", highlight=False)

    def _advance(self, key: str, units: int) -> None:
        """A continued run starts in the middle: what was done before does not count as speed."""
        before = self._done.get(key)
        self._done[key] = units
        if before is None:
            total = self._display.tasks[0].total or 0
            self._display.update(self._all, total=total - (units - 1) if units > 1 else total)
            before = units - 1
        self._display.advance(self._all, units - before)

    def _line(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text, highlight=False)


def preparation_progress(console: Console) -> Progress:
    """A plain bar for acquiring the subject on all grids."""
    return Progress(
        TextColumn("{task.description:<21}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
