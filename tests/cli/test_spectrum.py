"""What ``spectrum`` says of a folder of scans, in text, JSON and a figure, and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from medattn import Volume, VoxelGrid, save_volume
from medattn.cli import main, spectrum


def write(path: Path, shape: tuple[int, int, int] = (64, 64, 20), spacing: Any = (1.0, 1.0, 5.0)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_volume(path, Volume(torch.zeros(1, *shape), VoxelGrid.from_spacing(shape, spacing)))
    return path


class Run:
    """Exit code and output of ``spectrum`` with these arguments."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        capsys.readouterr()
        self.code = main(["spectrum", *map(str, arguments)])
        self.out, self.err = capsys.readouterr()
        self.lines = [" ".join(line.split()) for line in self.out.splitlines()]

    @property
    def record(self) -> Any:
        return json.loads(self.out)


def test_scans_of_one_geometry_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path / "a.nii")
    write(tmp_path / "b.nrrd")
    other = write(tmp_path / "c.nii", (64, 64, 64), 1.0)
    run = Run(capsys, tmp_path, "--patch-size", 4, "--dim", 192)
    assert run.code == 0
    assert run.lines == [  # 16 pairs: 6, 5, 5 of 16 to 250 mm: 16, 27.7, ... along i and 16, 31.8, 63.2, ... along k
        "rotary_axial in mm, patches of 4 x 4 x 4 voxels; aliased / useful / dead bands",
        "scans token pitch mm field of view mm along i along j along k",
        f"2 4 4 20 64 64 100 0 / 6 / 0 0 / 5 / 0 2 / 3 / 0 {first} and 1 more",
        f"1 4 4 4 64 64 64 0 / 6 / 0 0 / 5 / 0 0 / 5 / 0 {other}",
        "Bands on all scans: 2 aliased, 30 useful, 0 dead. With --wavelengths-mm 40 100: 0 aliased, 32 useful, 0 dead "
        f"({first} has tokens 20 mm apart).",
    ]
    assert run.err == ""


def test_the_advice_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.nii")
    run = Run(capsys, tmp_path, "--patch-size", 4, "--wavelengths-mm", 40, 100)
    assert "Bands on all scans: 0 aliased, 32 useful, 0 dead." in run.out


def test_tokens_too_coarse_for_any_wavelength_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.nii")
    run = Run(capsys, tmp_path, "--patch-size", 16)
    assert f"No wavelength would do for all, since {path} has tokens 80 mm apart" in run.out


def test_json_has_every_band(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.nii")
    arguments = ("--patch-size", 4, 4, 2, "--frame", "index", "--reference-spacing-mm", 2, "--json")
    run = Run(capsys, path, *arguments)
    record, (group,) = run.record, run.record["groups"]
    assert run.code == 0
    assert (record["encoding"], record["frame"], record["patch_size"]) == ("rotary_axial", "index", [4, 4, 2])
    assert group["paths"] == [str(path)]
    assert group["token_pitch_mm"] == [4, 4, 10]
    assert group["extent_mm"] == [64, 64, 100]
    assert len(group["bands"]) == 32
    first = group["bands"][0]
    assert first.pop("wavelength_mm") == pytest.approx(8)  # 16 mm at 2 mm are 8 voxels, here of 1 mm
    assert (first.pop("pitch_mm"), first.pop("extent_mm")) == (pytest.approx(4), pytest.approx(64))
    assert first == {"head": None, "pair": 0, "direction": [1, 0, 0], "verdict": "useful"}
    assert sum(record["counts"].values()) == 32
    assert record["recommended_wavelengths_mm"] == [16, 128]  # 8 and 64 voxels of 2 mm


def test_scans_that_differ_in_orientation_alone_differ_in_the_patients_frame(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = VoxelGrid.from_spacing((32, 32, 32), 2.0)
    for name, each in (("a.nii", grid), ("b.nii", grid.flip(0))):
        save_volume(tmp_path / name, Volume(torch.zeros(1, 32, 32, 32), each))
    assert len(Run(capsys, tmp_path, "--json").record["groups"]) == 1
    run = Run(capsys, tmp_path, "--json", "--frame", "patient_mm")
    assert len(run.record["groups"]) == 2
    assert "along R" in Run(capsys, tmp_path, "--frame", "patient_mm").out


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_figure_is_drawn(ending: str, start: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    write(tmp_path / "a.nii")
    figure = tmp_path / f"bands.{ending}"
    assert Run(capsys, tmp_path, "--plot", figure).code == 0
    assert figure.read_bytes().startswith(start)
    wider = tmp_path / f"wider.{ending}"
    assert Run(capsys, tmp_path, "--plot", wider, "--wavelengths-mm", 4, 2000).code == 0
    assert wider.read_bytes() != figure.read_bytes()


def test_what_cannot_be_read_is_refused_and_the_rest_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.nii")
    bad = tmp_path / "b.nii"
    bad.write_bytes(b"no header")
    run = Run(capsys, tmp_path, "--json")
    assert run.code == 1
    assert [item["path"] for item in run.record["refused"]] == [str(bad)]
    assert len(run.record["groups"]) == 1
    assert str(bad) in run.err


def test_a_path_without_scans_gives_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, tmp_path)
    assert (run.code, run.out) == (1, "")
    assert f"no volume found in {tmp_path}" in run.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--encoding", "none"), "made of frequencies to have a spectrum, got 'none'"),
        (("--encoding", "sincus"), "encoding must be one of"),
        (("--frame", "sequence"), "frame of space, got 'sequence'"),
        (("--wavelengths-mm", 5, 1), "wavelengths_mm must be"),
        (("--patch-size", 0), "patch_size must be"),
        (("--dim", 10), "dim must be a multiple of num_heads"),
        (("--plot", "bands.pdf"), "--plot must end in .png or .svg, got 'bands.pdf'"),
    ],
)
def test_settings_of_no_use_give_2(
    arguments: tuple[object, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, write(tmp_path / "a.nii"), *arguments)
    assert (run.code, run.out) == (2, "")
    assert message in run.err


def test_ctrl_c_gives_130(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(spectrum, "_read", interrupt)
    run = Run(capsys, write(tmp_path / "a.nii"))
    assert (run.code, run.out) == (130, "")


def test_help_and_wrong_arguments_load_neither_torch_nor_matplotlib() -> None:
    code = "import sys; from medattn.cli import main\ntry: main(['spectrum', '--help'])\nexcept SystemExit: pass\n"
    loaded = subprocess.run(
        [sys.executable, "-c", f"{code}print(sorted({{'torch', 'matplotlib', 'numpy'}} & set(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.splitlines()[-1] == "[]"


def test_frequencies_that_are_drawn_are_the_same_in_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.nii")
    one, other = (Run(capsys, tmp_path, "--encoding", "rotary_mixed", "--dim", 96, "--json").out for _ in range(2))
    assert one == other
    assert {band["head"] for band in json.loads(one)["groups"][0]["bands"]} == set(range(6))
    assert "oblique" in Run(capsys, tmp_path, "--encoding", "rotary_mixed").out
