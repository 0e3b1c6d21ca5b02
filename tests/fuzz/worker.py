"""The process that makes, loads and judges cases; it may be killed, or crash, without harm to the one that asked."""

from __future__ import annotations

import faulthandler
import os
import shutil
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzz.case import Case, Format, Sample, format_module, make_case, write_files
from tests.fuzz.judge import Outcome, judge, load
from tests.fuzz.memory import limit_growth

LOADING, LOADED = "loading", "loaded"
"""What a worker says before and after it loads a case; then comes the ``Outcome``, and before both the damages."""


class _Output:
    """Collects what this process and its libraries print, on both streams, below Python's level too."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b", buffering=0)
        os.dup2(self._file.fileno(), 1)
        os.dup2(self._file.fileno(), 2)
        faulthandler.enable(self._file)

    def __call__(self) -> str:
        """What was printed since the last call."""
        self._file.seek(0)
        text = self._file.read().decode(errors="replace").strip()
        self._file.truncate(0)
        self._file.seek(0)
        return text


def serve(connection: Connection, name: str, seed: int, folder: Path) -> None:
    """Answer the number of each case with its outcome, until there are no more; everything is written to ``folder``."""
    output = _Output(folder / "output")
    module = format_module(name)
    samples = module.samples(_fresh(folder / "samples"))
    undamaged = _warm_up(samples, module, folder, output, connection)
    limit_growth()
    while (number := connection.recv()) is not None:
        case = make_case(name, seed, number, samples, module.DAMAGES)
        connection.send((case.sample.name, case.damages))
        _answer(case, module, undamaged[case.sample.name], folder, output, connection)


def _warm_up(samples: Sequence[Sample], module: Format, folder: Path, output: Any, connection: Connection) -> Any:
    """Volume of each undamaged sample; the parent is told of each that is not read right."""
    volumes, wrong = {}, []
    for sample in samples:
        case, at = Case(sample, dict(sample.files)), _fresh(folder / "case")
        write_files(case.files, at)
        loaded = load(case, at, output)
        outcome = judge(case, at, loaded, module, None)
        volumes[sample.name] = loaded.volume
        if outcome.kind != "right":
            wrong.append(f"{sample.name}: {outcome.kind}: {outcome.detail}")
    connection.send(wrong)
    return volumes


def _answer(case: Case, module: Format, undamaged: Any, folder: Path, output: Any, connection: Connection) -> None:
    at = _fresh(folder / "case")
    write_files(case.files, at)
    connection.send(LOADING)
    loaded = load(case, at, output)
    connection.send(LOADED)
    try:
        outcome = judge(case, at, loaded, module, undamaged)
    except Exception as error:
        outcome = Outcome("unjudged", f"the judge failed: {error!r}")
    connection.send(outcome)


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
