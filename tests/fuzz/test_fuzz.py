"""A short run of the fuzzer on every format, and that it finds what it is there to find."""

from __future__ import annotations

import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from medattn.volumes import Volume, VolumeError
from tests.fuzz import runner
from tests.fuzz.case import FORMATS, Case, format_module, make_case, write_files
from tests.fuzz.judge import SECRET, Loaded, judge, load
from tests.fuzz.memory import MAX_GROWTH_BYTES, MemoryWatch
from tests.fuzz.worker import LOADED, LOADING

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by way of /proc")

CASES, SEED = 100, 1


@pytest.mark.parametrize("name", FORMATS)
def test_readers_refuse_damaged_files_or_are_right(name: str) -> None:
    report = runner.run(name, SEED, range(CASES))
    assert list(report.told()) == []
    assert report.counts()["refused"] > CASES / 5
    assert report.counts()["right"] > CASES / 10


@pytest.mark.parametrize("name", FORMATS)
def test_a_case_is_the_same_each_time(name: str, tmp_path: Path) -> None:
    module = format_module(name)
    once, again = (module.samples(tmp_path / folder) for folder in "ab")
    assert once == again
    cases = [make_case(name, SEED, number, once, module.DAMAGES) for number in range(30)]
    assert [make_case(name, SEED, number, again, module.DAMAGES) for number in range(30)] == cases
    assert any(case.files != make_case(name, SEED + 1, n, once, module.DAMAGES).files for n, case in enumerate(cases))
    assert sum(case.files != case.sample.files for case in cases) > 20


# -- what is wrong is found ------------------------------------------------------------------------------------------


@pytest.fixture(params=["nifti", "nrrd", "metaimage", "dicom", "dicom-multiframe", "dicom-seg", "zip"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A sample that was read right: its case, folder, format and volume."""
    module = format_module(request.param)
    (tmp_path / "samples").mkdir()
    sample = module.samples(tmp_path / "samples")[0]
    case, folder = Case(sample, dict(sample.files), ("nothing",)), tmp_path / "case"
    write_files(case.files, folder)
    loaded = load(case, folder, lambda: "")
    assert judge(case, folder, loaded, module, None).kind == "right"
    return case, folder, module, loaded.volume


def judged(read: Any, volume: Volume | None = None, error: Exception | None = None, **more: Any) -> str:
    case, folder, module, right = read
    values = {"leaked": [], "seconds": 0.1, "growth_bytes": 0, "output": "", **more}
    return judge(case, folder, Loaded(volume, error, **values), module, right).kind


@pytest.mark.parametrize("axis", range(3))
def test_another_geometry_is_found(read: Any, axis: int) -> None:
    volume = read[-1]
    affine = volume.grid.affine
    affine[axis, 3] += 0.01
    moved = type(volume.grid)(volume.grid.shape, affine)
    assert judged(read, Volume(volume.data, moved)) == "wrong"
    assert judged(read, Volume(volume.data, volume.grid.flip(axis))) == "wrong"
    assert judged(read, Volume(volume.data.flip(axis + 1), volume.grid)) == "wrong"
    assert judged(read, volume.pad(0, 1)) == "wrong"


def test_another_voxel_is_found(read: Any) -> None:
    volume = read[-1]
    data = volume.data.clone()
    data[0, -1, -1, -1] += 1
    assert judged(read, Volume(data, volume.grid)) == "wrong"
    assert judged(read, Volume(torch.full_like(volume.data, 7), volume.grid)) == "wrong"
    assert judged(read, volume) == "right"


def test_what_no_oracle_can_read_must_be_as_it_was(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case, folder, module, volume = read

    def no_idea(*_: Any) -> Any:
        raise RuntimeError("no idea")

    monkeypatch.setattr(module, "expected", no_idea)
    assert judged(read, volume) == "right"
    assert judged(read, Volume(volume.data + 1, volume.grid)) == "unjudged"


def test_errors_and_leaks_are_told_apart(read: Any) -> None:
    path, volume = str(read[1] / read[0].sample.target), read[-1]
    out_of_memory = VolumeError(f"{path}: reading failed")
    out_of_memory.__cause__ = MemoryError()
    assert judged(read, error=VolumeError(f"{path}: bad")) == "refused"
    assert judged(read, error=VolumeError("bad")) == "bad message"
    assert judged(read, error=VolumeError(f"{path}: {'a' * 9999}")) == "bad message"
    assert judged(read, error=VolumeError(f"{path}: of {SECRET}")) == "patient data"
    assert judged(read, error=KeyError("x")) == "foreign error"
    assert judged(read, error=FileNotFoundError(path)) == "foreign error"
    assert judged(read, error=out_of_memory) == "memory"
    assert judged(read, volume, growth_bytes=MAX_GROWTH_BYTES + 1) == "memory"
    assert judged(read, volume, leaked=["UserWarning: x"]) == "leak"
    assert judged(read, volume, output="WARNING: in itkImage.cxx") == "leak"
    assert judged(read, Volume(volume.data, volume.grid, metadata={"series": SECRET})) == "patient data"


def test_memory_that_is_allocated_and_never_touched_counts() -> None:
    watch = MemoryWatch()
    space = np.empty(6 << 30, np.uint8)
    assert watch.growth_bytes() >= space.nbytes
    watch = MemoryWatch()
    np.ones(300 << 20, np.uint8)
    assert 300 << 20 <= watch.growth_bytes() < 400 << 20


# -- workers that fail -----------------------------------------------------------------------------------------------


def failing(connection: Connection, name: str, seed: int, folder: Path) -> None:
    """A worker whose case 1 hangs and whose case 2 crashes."""
    (folder / "output").write_text("what was printed")
    connection.send([])
    while (number := connection.recv()) is not None:
        connection.send(("sample", ("damage",)))
        connection.send(LOADING)
        if number == 1:
            time.sleep(60)
        if number == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        connection.send(LOADED)
        connection.send(runner.Outcome("right"))


def test_a_worker_that_hangs_or_crashes_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "serve", failing)
    monkeypatch.setattr(runner, "MAX_SECONDS", 1.0)
    report = runner.run("nifti", 0, range(5), jobs=2)
    assert [result.outcome.kind for result in report.results] == ["right", "hang", "crash", "right", "right"]
    assert "SIGSEGV" in report.findings[1].outcome.detail and "what was printed" in report.findings[1].outcome.detail
    assert "python -m tests.fuzz nifti --seed 0 --first 1 --cases 1" in next(report.told())


def test_an_unknown_format_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="format must be one of nifti, .*, got 'bmp'"):
        format_module("bmp")
