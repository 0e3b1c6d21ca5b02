"""What ``inspect`` says, in tables and JSON, and its exit codes."""

import json
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

from medattn.cli import inspection, main
from medattn.volumes import load_volume, save_dicom_seg
from tests.volumes.dicom_writing import write_series

SPACING = (0.703, 0.703, 2.5)
AFFINE = np.diag([-0.703, 0.703, 2.5, 1.0]) + np.array([[0, 0, 0, 100.0], [0, 0, 0, -90.0], [0, 0, 0, 7.0], [0] * 4])


def write(path: Path, values: Any = None, affine: Any = AFFINE, *, code: int = 1) -> Path:
    """A NIfTI file, by default of 0 to 23 as int16 (2, 3, 4)."""
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4) if values is None else np.asarray(values)
    image = nibabel.Nifti1Image(array, affine, dtype=array.dtype)
    image.set_sform(affine, code=code)
    image.set_qform(affine, code=code)
    image.header.set_xyzt_units("mm")
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(image, path)
    return path


def truncated(path: Path) -> Path:
    write(path)
    path.write_bytes(path.read_bytes()[:370])
    return path


def shifted(by_mm: float) -> Any:
    affine = AFFINE.copy()
    affine[0, 3] += by_mm
    return affine


class Run:
    """Exit code and output of ``inspect`` with these arguments."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        capsys.readouterr()
        self.code = main(["inspect", *map(str, arguments)])
        self.out, self.err = capsys.readouterr()

    @property
    def records(self) -> Any:
        return json.loads(self.out)

    def line(self, start: str) -> str:
        """The first line that begins with this word, blanks made one."""
        return next(" ".join(line.split()) for line in self.out.splitlines() if line.split()[:1] == [start])


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout and stderr are taken for a terminal of 100 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")


def plain(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines()


# -- one volume ----------------------------------------------------------------------------------------


def test_one_file_is_shown_in_every_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, write(tmp_path / "scan.nii.gz"))
    assert run.code == 0
    assert run.out.splitlines()[0] == str(tmp_path / "scan.nii.gz")
    assert run.line("shape") == "shape 2 x 3 x 4 voxels, 1 channel"
    assert run.line("spacing") == "spacing 0.703 x 0.703 x 2.5 mm"
    assert run.line("extent") == "extent 1.406 x 2.109 x 10 mm"
    assert run.line("axes") == "axes LAS (i to left, j to anterior, k to superior)"
    assert run.line("obliquity") == "obliquity 0.0, 0.0, 0.0 degrees; axes at right angles"
    assert run.line("origin") == "origin 100.00, -90.00, 7.00 mm (RAS)"
    assert run.line("centre") == "centre 99.65, -89.30, 10.75 mm (RAS)"
    assert run.line("affine") == "affine -0.7030 0.0000 0.0000 100.0000"
    assert run.line("intensities") == "intensities 0 to 23, mean 11.5"
    assert run.line("percentiles") == "percentiles 1st 0, 99th 23"
    assert run.line("labels?") == "labels? looks like a label map (--labels): 24 distinct integers"


def test_notes_of_one_file_are_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.ones((2, 3, 4), np.float32)
    values[0, 0, 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = Run(capsys, write(tmp_path / "scan.nii", values, code=0))
    assert run.line("axes") == "axes unknown, taken as RAS"
    assert "warning      1 of 24 voxels are NaN or infinite; they are kept as they are" in run.out
    assert re.search(r"^warning +sform and qform codes are both 0", run.out, re.MULTILINE)


def test_labels_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "--labels", write(tmp_path / "labels.nii", np.full((2, 2, 2), 7, np.uint8)))
    assert run.line("labels") == "labels 1: 7"
    assert "intensities" not in run.out


def test_a_refused_file_gives_the_reason_and_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, truncated(tmp_path / "scan.nii"))
    assert run.code == 1
    assert "truncated" in run.line("refused")


def test_a_missing_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, tmp_path / "scan.nii")
    assert run.code == 1
    assert run.line("refused") == f"refused no such file: {tmp_path / 'scan.nii'}"


def test_strict_refuses_what_was_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "known.nii")
    write(tmp_path / "unknown.nii", code=0)
    assert Run(capsys, tmp_path).code == 0
    run = Run(capsys, "--strict", "--json", tmp_path)
    assert run.code == 1
    assert [record["status"] for record in run.records] == ["read", "refused"]
    assert "orientation_unknown" in run.records[1]["reason"]


# -- several -------------------------------------------------------------------------------------------


def test_several_volumes_have_a_line_each_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a_rather_long_name_of_a_volume_that_fills_most_of_a_line_of_a_terminal_" * 2
    write(tmp_path / f"{name}.nii", np.arange(-4, 4, dtype=np.float32).reshape(2, 2, 2) / 7)
    write(tmp_path / "b" / "time.nii", np.zeros((2, 3, 4, 5), np.int16))
    (tmp_path / "notes.txt").touch()
    run = Run(capsys, tmp_path)
    assert run.code == 0
    assert run.out.startswith(f"2 volumes in {tmp_path}\n")
    assert run.line(f"{name}.nii") == f"{name}.nii 2 2 2 1 0.703 0.703 2.500 LAS - 1.4 1.4 5.0 -0.5714 0.4286"
    assert run.line("b/time.nii") == "b/time.nii 2 3 4 5 0.703 0.703 2.500 LAS - 1.4 2.1 10.0 0 0 1 labels?"
    assert run.out.splitlines()[-1] == "2 volumes: 2 read, 0 with warnings, 0 refused; 1 other file ignored"
    assert all(line == line.rstrip() for line in run.out.splitlines())


def test_an_oblique_volume_shows_its_angle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cos, sin = np.cos(np.radians(35.5)), np.sin(np.radians(35.5))
    affine = np.array([[cos, -sin, 0, 0], [sin, cos, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1]])
    run = Run(capsys, write(tmp_path / "oblique.nii", affine=affine), write(tmp_path / "straight.nii"))
    assert " RAS 35.5 " in run.line("oblique.nii")
    assert " LAS - " in run.line("straight.nii")


def test_refused_volumes_are_told_below_the_table_and_do_not_stop_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truncated(tmp_path / "a.nii")
    (tmp_path / "b.nii.gz").write_bytes(b"no gzip")
    write(tmp_path / "c.nii")
    run = Run(capsys, tmp_path)
    assert run.code == 1
    assert run.line("a.nii") == "a.nii refused"
    assert "truncated" in run.line("a.nii:")
    assert run.line("b.nii.gz") == "b.nii.gz refused"
    assert run.line("c.nii").startswith("c.nii 2 3 4 ")
    assert "3 volumes: 1 read, 0 with warnings, 2 refused; 0 other files ignored" in run.out


def test_notes_are_numbered_and_one_message_names_all_its_volumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.nii", code=0)
    write(tmp_path / "c.nii")
    run = Run(capsys, tmp_path)
    assert run.line("a.nii").startswith("a.nii 2 3 4 0.703 0.703 2.500 RAS? ")
    assert run.line("b.nii").startswith("b.nii 2 3 4 ")
    assert [run.line(name).endswith(" 1! labels?") for name in ("a.nii", "b.nii", "c.nii")] == [True, True, False]
    assert run.line("1!").endswith(" a.nii, b.nii")
    assert "3 read, 2 with warnings" in run.out


def test_a_path_given_twice_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.nii")
    assert len(Run(capsys, "--json", path, path).records) == 1


def test_names_cannot_style_or_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "[red]a\x1b[2J.nii")
    write(tmp_path / "b.nii")
    run = Run(capsys, tmp_path)
    assert "[red]a\N{REPLACEMENT CHARACTER}[2J.nii" in run.out
    assert "\x1b" not in run.out


# -- DICOM ---------------------------------------------------------------------------------------------


def test_each_dicom_series_of_a_folder_is_a_volume_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_series(tmp_path / "scan" / "a", [0, 3, 6], SeriesDescription="thick", SeriesInstanceUID="1.5")
    write_series(tmp_path / "scan" / "b", [0, 1, 2, 3], SeriesDescription="thin", SeriesInstanceUID="1.6")
    for path in (tmp_path / "scan" / "b").iterdir():
        path.rename(tmp_path / "scan" / "a" / f"thin{path.name}")
    write_series(tmp_path / "scan" / "c", [0, 3, 9, 12], SeriesInstanceUID="1.7")
    run = Run(capsys, tmp_path)
    assert run.code == 1
    a, b, c, *_ = (line.split() for line in run.out.splitlines()[2:])
    assert a[:11] == ["a/", "1.5", "CT", "thick", "3", "2", "3", "1", "1", "3", "LPS"]
    assert b[:11] == ["a/", "1.6", "CT", "thin", "3", "2", "4", "1", "1", "1", "LPS"]
    assert c == ["c/", "refused"]
    assert re.search(r"^ +c/: .*\b1\.dcm\b.*\b2\.dcm\b", run.out, re.MULTILINE)
    records = Run(capsys, "--json", tmp_path).records
    assert [(record["series"], record["files"]) for record in records] == [("1.5", 3), ("1.6", 4), ("1.7", 4)]
    assert records[0]["path"] == str(tmp_path / "scan" / "a")
    assert "test" not in records[2]["reason"] and str(tmp_path) not in records[2]["reason"]


def test_one_dicom_series_is_shown_in_every_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_series(tmp_path / "scan", [0, 3, 6])
    run = Run(capsys, tmp_path / "scan")
    assert run.code == 0
    assert run.line("series") == "series 1.2.3.1 (3 files)"
    assert (run.line("modality"), run.line("description")) == ("modality CT", "description small")
    assert run.line("spacing") == "spacing 1 x 1 x 3 mm"


def test_a_dicom_segmentation_is_read_as_labels_without_being_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_series(tmp_path / "scan", [0, 3, 6])
    scan = load_volume(tmp_path / "scan")
    (tmp_path / "labels").mkdir()
    labels = replace(scan, data=(scan.data > 10).long() * 2)
    save_dicom_seg(tmp_path / "labels" / "x.dcm", labels, segmentation_type="labelmap")
    run = Run(capsys, tmp_path)
    assert run.code == 0
    assert run.line("labels/").endswith(" 0 2 2 labels")
    assert run.line("scan/").endswith(" 0 25 labels?")


def test_notes_name_the_files_of_a_series_without_their_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_series(tmp_path / "scan", [0, 3, 6], SpacingBetweenSlices=2)
    (record,) = Run(capsys, "--json", tmp_path).records
    (note,) = record["notes"]
    assert note["kind"] == "fields_disagree"
    assert "(0.dcm (instance 1))" in note["message"]


def test_without_pydicom_a_folder_of_dicom_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_series(tmp_path / "scan", [0, 3, 6])
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "LICENSE").touch()
    monkeypatch.setitem(sys.modules, "pydicom", None)
    run = Run(capsys, tmp_path)
    assert run.code == 1
    assert run.out.splitlines()[0] == str(tmp_path / "scan")
    assert "pip install 'medattn[dicom]'" in run.line("refused")


# -- on a terminal -------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
def test_lines_fit_the_terminal_and_names_are_whole(
    columns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "sub-01_ses-01_acquisition-mprage_reconstruction-norm_T1w.nii.gz"
    write(tmp_path / name, np.linspace(-1e6, 1e6, 24, dtype=np.float32).reshape(2, 3, 4))
    write(tmp_path / "time.nii", np.zeros((2, 3, 4, 15), np.float32), code=0)
    monkeypatch.chdir(tmp_path.parent)
    lines = plain(Run(capsys, Path(tmp_path.name)).out)
    assert max(len(line) for line in lines) <= columns
    assert lines[1:7] == [
        "volume  notes",
        "  shape  ch         spacing mm  axes  deg     extent mm       min      max",
        name,
        "  2 3 4   1  0.703 0.703 2.500  LAS     -  1.4 2.1 10.0  -1000000  1000000",
        "time.nii  1 2! labels?",
        "  2 3 4  15  0.703 0.703 2.500  RAS?    -  1.4 2.1 10.0         0        0",
    ]


def test_numbers_are_aligned_with_the_decimals_that_the_finest_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "clinical.nii", np.zeros((12, 120, 9), np.uint8), np.diag([0.5, 1.0, 12.5, 1.0]))
    write(tmp_path / "micro.nii", np.full((200, 3, 9), 0.5, np.float32), np.diag([-0.0035, 1.0, 1.0, 1.0]))
    truncated(tmp_path / "refused.nii")
    assert Run(capsys, tmp_path).out.splitlines()[1:5] == [
        "volume            shape             spacing mm  axes  deg        extent mm  min  max  notes",
        "clinical.nii   12 120 9  0.5000 1.0000 12.5000  RAS     -  6.0 120.0 112.5    0    0  labels?",
        "micro.nii     200   3 9  0.0035 1.0000  1.0000  LAS     -  0.7   3.0   9.0  0.5  0.5",
        "refused.nii   refused",
    ]


@pytest.mark.usefixtures("terminal")
def test_long_lists_are_cut_on_a_terminal_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in range(1, 9):
        values = np.zeros((2, 3, 4), np.float32)
        values.flat[:count] = np.inf
        write(tmp_path / f"{count}.nii", values, shifted(count))
    short = " ".join(" ".join(plain(Run(capsys, tmp_path).out)).split())
    assert "and 3 more of this kind" in short
    assert short.count("is not on the grid of 1.nii") == 5
    monkeypatch.delenv("FORCE_COLOR")
    full = Run(capsys, tmp_path).out
    assert "more" not in full
    assert full.count("is not on the grid of 1.nii") == 7


# -- grids that disagree -------------------------------------------------------------------------------


def test_volumes_of_one_shape_on_different_grids_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "image.nii", affine=shifted(0))
    write(tmp_path / "labels.nii", affine=shifted(-26.76))
    difference = "origin_mm [100.0, -90.0, 7.0] and [73.24, -90.0, 7.0]"
    out = Run(capsys, tmp_path).out
    assert "One shape in one folder, but different grids" in out
    assert f"labels.nii is not on the grid of image.nii: {difference}" in out
    image, labels = Run(capsys, "--json", tmp_path).records
    assert image["other_grid_than"] is None
    assert labels["other_grid_than"] == {
        "path": str(tmp_path / "image.nii"),
        "series": None,
        "files": 1,
        "fields": difference,
    }


def test_equal_grids_other_shapes_and_other_folders_do_not_disagree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a" / "image.nii", affine=shifted(0))
    write(tmp_path / "a" / "rounded.nii", affine=shifted(1e-4))
    write(tmp_path / "a" / "smaller.nii", np.zeros((2, 3, 3), np.int16), shifted(5))
    write(tmp_path / "b" / "image.nii", affine=shifted(5))
    assert [r["other_grid_than"] for r in Run(capsys, "--json", tmp_path).records] == [None] * 4
    assert "different grids" not in Run(capsys, tmp_path).out


# -- JSON ----------------------------------------------------------------------------------------------


def test_json_has_full_precision_and_paths_as_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    affine = AFFINE.astype(np.float32).astype(np.float64)
    write(tmp_path / "data" / "a.nii", affine=affine)
    truncated(tmp_path / "data" / "b.nii")
    monkeypatch.chdir(tmp_path)
    good, bad = Run(capsys, "--json", "data").records
    assert good["path"] == "data/a.nii"
    assert (good["status"], good["series"], good["files"]) == ("read", None, 1)
    assert good["affine"] == affine.tolist()
    assert good["intensities"]["mean"] == 11.5
    assert set(bad) == {"path", "series", "files", "status", "reason"}
    assert "data/b.nii" not in bad["reason"]


def test_json_of_one_file_is_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(Run(capsys, "--json", write(tmp_path / "a.nii")).records) == 1


# -- exit codes ----------------------------------------------------------------------------------------


def test_nothing_found_is_1_and_says_what_was_looked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    run = Run(capsys, tmp_path / "empty", write(tmp_path / "a.nii"))
    assert run.code == 1
    assert f"no volume found in {tmp_path / 'empty'}; looked for NIfTI (.nii" in run.err
    assert run.line("axes").startswith("axes LAS")
    assert (Run(capsys, tmp_path / "empty").code, Run(capsys, tmp_path / "empty").out) == (1, "")
    nothing = Run(capsys, "--json", tmp_path / "empty")
    assert (nothing.code, nothing.records) == (1, [])


@pytest.mark.parametrize("arguments", [(), ("--no-such-option", "x")])
def test_wrong_usage_is_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        Run(capsys, *arguments)
    assert exited.value.code == 2


def test_ctrl_c_prints_what_was_read_and_is_130(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / f"{name}.nii")
    load = inspection.load_volume

    def load_until_b(path: Path, **options: Any) -> Any:
        if path.name == "b.nii":
            raise KeyboardInterrupt
        return load(path, **options)

    monkeypatch.setattr(inspection, "load_volume", load_until_b)
    run = Run(capsys, "--json", tmp_path)
    assert run.code == 130
    assert [Path(record["path"]).name for record in run.records] == ["a.nii"]
    assert "interrupted" in run.err


def test_help_loads_neither_torch_nor_rich() -> None:
    code = (
        "import sys\nfrom medattn.cli import main\n"
        "try: main(['inspect', '--help'])\nexcept SystemExit: print({'torch', 'rich', 'numpy'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--strict" in run.stdout
    assert run.stdout.endswith("set()\n")
