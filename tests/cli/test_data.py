"""``python -m medattn data``: what it prints, where, and its exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from medattn.cli import INTERRUPTED, main
from medattn.volumes.datasets.manifest import cache_dir, manifest
from tests.packages import FETCH_MODULE, FakeDownload, fake_download, tiny_package, use_manifest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDownload:
    """Three packages with two datasets each, and an empty cache."""
    entries, archives = [], {}
    for name in ("ant", "bee", "cow"):
        files = {f"{name}_{number}": {f"{number}.bin": name.encode() * 1000} for number in (1, 2)}
        entry, archives[f"{name}_pack"] = tiny_package("wheel", files, name=f"{name}-pack")
        entries.append(entry)
    use_manifest(monkeypatch, tmp_path, entries)
    return fake_download(monkeypatch, **archives)


def path_of(name: str) -> str:
    return str(manifest()[name].path)


# -- list ------------------------------------------------------------------------------------------------------------


def test_the_list_has_each_dataset_with_its_package_and_licence(three: FakeDownload, capsys: Any) -> None:
    assert main(["data", "fetch", "bee_1"]) == 0
    capsys.readouterr()
    assert main(["data", "list"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    size = manifest()["ant_1"].package.archive.bytes / 1000
    assert lines[:4] == [
        f"ant-pack 1.0, pypi wheel of {size:.1f} kB, https://example.org",
        "licence: Apache-2.0; of the data: not stated",
        "ant_1 3.0 kB what ant_1 is",
        "ant_2 3.0 kB what ant_2 is",
    ]
    assert "bee_1 3.0 kB cached what bee_1 is" in lines
    assert lines[-1] == f"2 of 6 are cached in {cache_dir()}"


def test_the_list_of_the_real_manifest_fits_100_columns_and_cuts_no_name(capsys: Any) -> None:
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= 100  # the last has a path
    assert set(manifest()) <= {line.split()[0] for line in lines if line}
    assert "\x1b" not in "".join(lines)


def test_the_list_in_a_narrow_terminal_cuts_no_name(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "72")
    assert main(["data", "list"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" in text  # it took the output for a terminal
    assert [name for name in manifest() if not re.search(rf"\b{name}\b", text)] == []


def test_the_json_list_has_everything(three: FakeDownload, capsys: Any) -> None:
    main(["data", "fetch", "bee_1"])
    capsys.readouterr()
    assert main(["data", "list", "--json"]) == 0
    facts = {fact["name"]: fact for fact in json.loads(capsys.readouterr().out)}
    assert list(facts) == ["ant_1", "ant_2", "bee_1", "bee_2", "cow_1", "cow_2"]
    assert [fact["cached"] for fact in facts.values()] == [False, False, True, True, False, False]
    assert facts["bee_1"]["path"] == path_of("bee_1")
    assert facts["bee_1"]["bytes"] == 3000
    assert facts["bee_1"]["package"]["licence"] == "Apache-2.0"
    assert [file["path"] for file in facts["bee_1"]["files"]] == ["tiny_pack/data/1.bin"]


def test_a_cut_off_file_does_not_count_as_cached(three: FakeDownload, capsys: Any) -> None:
    main(["data", "fetch", "bee_1"])
    Path(path_of("bee_1")).write_bytes(b"cut")
    capsys.readouterr()
    main(["data", "list", "--json"])
    assert [fact["name"] for fact in json.loads(capsys.readouterr().out) if fact["cached"]] == ["bee_2"]


# -- fetch -----------------------------------------------------------------------------------------------------------


def test_fetch_prints_paths_alone_and_tells_the_terms_beside_them(three: FakeDownload, capsys: Any) -> None:
    assert main(["data", "fetch", "cow_2", "ant_1"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [path_of("ant_1"), path_of("cow_2")]
    assert all(Path(line).is_file() for line in out.splitlines())
    assert "ant-pack 1.0" in err and "cow-pack 1.0" in err and "bee-pack" not in err
    assert err.count("licence: Apache-2.0; of the data: not stated") == 2
    assert err.count("https://example.org") == 2


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--all"], ["ant_1", "ant_2", "bee_1", "bee_2", "cow_1", "cow_2"]),
        (["*_2"], ["ant_2", "bee_2", "cow_2"]),
        (["bee_*", "bee_1", "ant_[2-9]"], ["ant_2", "bee_1", "bee_2"]),
    ],
)
def test_fetch_takes_patterns(three: FakeDownload, capsys: Any, arguments: list[str], names: list[str]) -> None:
    assert main(["data", "fetch", *arguments]) == 0
    assert capsys.readouterr().out.splitlines() == [path_of(name) for name in names]


def test_a_package_that_fails_is_tried_once_and_does_not_stop_the_others(three: FakeDownload, capsys: Any) -> None:
    three.archives["bee-pack"] = b"wrong"
    assert main(["data", "fetch", "--all"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [path_of(name) for name in ("ant_1", "ant_2", "cow_1", "cow_2")]
    assert "could not fetch 'bee_1'" in err and "1. python -m pip download --no-deps" in err
    assert three.calls == ["ant-pack", "bee-pack", "cow-pack"]


def test_unknown_names_get_near_ones_and_nothing_is_fetched(three: FakeDownload, capsys: Any) -> None:
    assert main(["data", "fetch", "ant_1", "be_1"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "no dataset 'be_1' (did you mean bee_1" in err
    assert three.calls == []


@pytest.mark.parametrize("arguments", [["data", "fetch"], ["data", "fetch", "ant_1", "--all"], ["data"], []])
def test_wrong_usage_is_status_2(three: FakeDownload, capsys: Any, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m medattn" in capsys.readouterr().err


def test_an_interrupted_fetch_says_so(three: FakeDownload, monkeypatch: Any, capsys: Any) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FETCH_MODULE, "download", interrupted)
    assert main(["data", "fetch", "ant_1"]) == INTERRUPTED
    assert capsys.readouterr().err.endswith("interrupted\n")


# -- as a process ----------------------------------------------------------------------------------------------------


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *arguments], env=environment, text=True, check=False, **options)


@pytest.mark.parametrize("arguments", [["--help"], ["data", "--help"], ["data", "fetch", "--help"], ["inspect", "-h"]])
def test_help_loads_no_library(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom medattn.cli import main\n"
        f"try:\n    main({arguments})\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print('loaded:', *sorted({'torch', 'numpy', 'rich', 'nibabel', 'medattn.volumes'} & set(sys.modules)))"
    )
    result = python("-c", script, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert "usage: python -m medattn" in result.stdout
    assert result.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_reader_that_stops_early_ends_the_list_quietly(option: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout:
        result = python("-m", "medattn", "data", "list", *option, stdout=stdout, stderr=subprocess.PIPE)
    assert (result.returncode, result.stderr) == (1, "")
