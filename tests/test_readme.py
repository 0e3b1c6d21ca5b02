"""What the README shows is run as it stands."""

import re
from pathlib import Path

import pytest
import torch

import medattn
from medattn import NoteKind, Volume, VoxelGrid, load_volume, save_volume

ROOT = Path(__file__).resolve().parents[1]


def snippet(number: int) -> str:
    """A Python example of the README, by its place among them."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[number]


def test_the_snippet_runs_as_printed(tmp_path, monkeypatch, capsys):
    grid = VoxelGrid.from_spacing((40, 24, 32), (1.0, 1.0, 1.5))
    save_volume(tmp_path / "scan.nii.gz", Volume(torch.randn(1, *grid.shape), grid))
    monkeypatch.chdir(tmp_path)
    assert len(snippet(0).strip().splitlines()) <= 12
    names: dict[str, object] = {}
    exec(compile(snippet(0), "README.md", "exec"), names)
    assert names["coords"].shape == (5 * 3 * 4, 3)
    assert names["batch"].tokens.shape == (2, 60, 192)
    assert names["batch"].mask.sum(1).tolist() == [60, 5 * 3 * 2]
    assert "'R', 'A', 'S'" in capsys.readouterr().out


def test_the_snippet_about_files_runs_as_printed(tmp_path, monkeypatch):
    dicom_writing = pytest.importorskip("tests.volumes.dicom_writing", reason="needs pydicom")
    monkeypatch.chdir(tmp_path)
    dicom_writing.write_series(tmp_path / "ct_series", [0, 2, 4])
    scan = load_volume("ct_series")
    save_volume("organs.nii.gz", Volume(torch.ones_like(scan.data).long(), scan.grid))
    monkeypatch.setattr(medattn, "fetch", lambda name: {"colin27_t1": "ct_series"}[name])
    names: dict[str, object] = {}
    exec(compile(snippet(1), "README.md", "exec"), names)
    assert names["work"].grid.axcodes == ("R", "A", "S")
    bone = load_volume("bone.nii.gz", labels=True)
    assert bone.grid.is_close(scan.grid)
    assert (bone.data.shape, bone.data.unique().tolist()) == (scan.data.shape, [0])


def test_contributing_example_makes_an_encoding(monkeypatch):
    from medattn.encodings import create_encoding, registry

    monkeypatch.setattr(registry, "_ENCODINGS", dict(registry._ENCODINGS))
    example = re.search(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL).group(1)
    exec(
        compile("\n".join(line[3:] for line in example.splitlines()), "CONTRIBUTING.md", "exec"),
        {"__name__": "example"},
    )
    encoding = create_encoding("linear", dim=12, num_heads=2, frame="mm", scale_mm=50.0)
    assert encoding(torch.zeros(1, 5, 3)).additive.shape == (1, 5, 12)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/formats.md", "docs/log.md"]
)
def test_links_to_files_lead_somewhere(page):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / page).read_text())
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert not missing


def test_the_table_of_notes_is_that_of_the_code():
    rows = re.findall(
        r"^\| `(\w+)` \| (yes)? ?\| (yes)? ?\| (.*) \|$", (ROOT / "docs" / "formats.md").read_text(), re.MULTILINE
    )
    flags = {kind: (bool(warns), bool(assumes)) for kind, warns, assumes, _ in rows}
    assert flags == {kind.value: (kind.is_warning, kind.is_assumption) for kind in NoteKind}
