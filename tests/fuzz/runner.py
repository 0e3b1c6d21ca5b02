"""Runs cases in worker processes, which are watched: one that hangs is killed, one that crashes is replaced."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.fuzz.judge import Outcome
from tests.fuzz.worker import LOADED, LOADING, serve

MAX_SECONDS = 5.0
"""Most time that reading a case may take."""

_START_SECONDS, _OTHER_SECONDS = 300.0, 60.0
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MALLOC_ARENA_MAX", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"), "1")
"""Threads reserve address space, which is what is watched."""


class Result(NamedTuple):
    """What came of case ``number``, which is ``sample`` with ``damages``."""

    number: int
    sample: str
    damages: tuple[str, ...]
    outcome: Outcome


@dataclass
class Report:
    """Outcomes of a run, and how long it took: ``bad_samples`` are undamaged ones that were not read right."""

    format: str
    seed: int
    bad_samples: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def findings(self) -> list[Result]:
        """Results that must not be."""
        return [result for result in self.results if result.outcome.is_finding]

    def told(self) -> Iterator[str]:
        """Each finding, and the command that repeats it."""
        for sample in self.bad_samples:
            yield f"not read right without any damage: {sample}"
        for number, name, damages, outcome in self.findings:
            command = f"python -m tests.fuzz {self.format} --seed {self.seed} --first {number} --cases 1"
            yield f"{outcome.kind}: {name}: {'; '.join(damages)}\n{outcome.detail}\n  repeat: {command}\n"

    def counts(self) -> Counter[str]:
        """How many cases there were of each kind of outcome."""
        return Counter(result.outcome.kind for result in self.results)

    def most(self, quantity: str) -> float:
        """The largest ``seconds`` or ``growth_bytes`` of any case."""
        return max((getattr(result.outcome, quantity) for result in self.results), default=0.0)


class _Failed(Exception):
    """The worker crashed or hung; the message says in what."""


class _Worker:
    """A process that loads cases one by one, started when it is first needed."""

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        self._name, self._seed, self.folder = name, seed, folder
        self._process: Any = None

    def __call__(self, number: int, bad_samples: list[str]) -> Result:
        """Run case ``number``."""
        if self._process is None:
            bad_samples[:] = self._start()
        sample, damages, outcome = "", (), Outcome("")
        try:
            self._connection.send(number)
            sample, damages = self._receive(_OTHER_SECONDS, "making the case")
            assert self._receive(_OTHER_SECONDS, "making the case") == LOADING
            assert self._receive(MAX_SECONDS, "loading") == LOADED
            outcome = self._receive(_OTHER_SECONDS, "judging")
        except _Failed as error:
            kind = "hang" if "hangs" in str(error) else "crash"
            outcome = Outcome(kind, f"{error}\n{self._printed()}", MAX_SECONDS if kind == "hang" else 0.0)
        if outcome.kind in ("hang", "crash", "memory"):  # a large process would hide the next large one
            self.stop()
        return Result(number, sample, damages, outcome)

    def _start(self) -> list[str]:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, self._name, self._seed, self.folder)
        self._process = context.Process(target=serve, args=arguments, daemon=True)
        with patch.dict(os.environ, _ONE_THREAD):
            self._process.start()
        theirs.close()
        try:
            bad_samples: list[str] = self._receive(_START_SECONDS, "starting")
        except _Failed as error:
            raise RuntimeError(f"no worker can be started: {error}\n{self._printed()}") from None
        return bad_samples

    def _receive(self, seconds: float, doing: str) -> Any:
        if not self._connection.poll(seconds):
            raise _Failed(f"hangs while {doing}, for over {seconds:g} s")
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise _Failed(f"crashed while {doing}: {how}") from None

    def _printed(self) -> str:
        return (self.folder / "output").read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None


def run(name: str, seed: int, numbers: Iterable[int], *, jobs: int = 1, keep: Path | None = None) -> Report:
    """Run these cases of a format; files of those that are findings are copied to ``keep``."""
    report, start = Report(name, seed), time.perf_counter()
    shares = [list(numbers)[job::jobs] for job in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        for results in pool.map(lambda share: list(_run(report, share, keep)), shares):
            report.results += results
    report.results.sort(key=lambda result: result.number)
    report.seconds = time.perf_counter() - start
    return report


def _run(report: Report, numbers: list[int], keep: Path | None) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        worker = _Worker(report.format, report.seed, Path(folder))
        try:
            for number in numbers:
                result = worker(number, report.bad_samples)
                if keep and result.outcome.is_finding:
                    kept = keep / f"{report.format}-{report.seed}-{number}"
                    shutil.copytree(Path(folder, "case"), kept, dirs_exist_ok=True)
                yield result
        finally:
            worker.stop()
