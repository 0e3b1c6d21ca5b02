"""Labels of DICOM segmentations lie where their frames do, with the slices that are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medattn.volumes import NoteKind, VolumeError, VolumeWarning

pydicom = pytest.importorskip("pydicom")
from tests.volumes.dicom_seg_writing import LEFT, RIGHT, frames_at, load, write_seg  # noqa: E402
from tests.volumes.dicom_writing import SAGITTAL, write_grid  # noqa: E402

# -- where they lie --------------------------------------------------------------------------------------------------


def test_k_ascends_along_the_normal_in_any_orientation(tmp_path: Path) -> None:
    frames = [(1, (6, 10, 20), LEFT), (2, (0, 10, 20), RIGHT)]
    volume = load(write_seg(tmp_path / "x.dcm", frames, orientation=SAGITTAL))
    assert volume.data[0, :, 0].tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 2]]  # normal (-1, 0, 0) in LPS
    expected = [[0, 0, 3, -6], [-0.7, 0, 0, -10], [0, -0.5, 0, 20], [0, 0, 0, 1]]
    assert np.allclose(volume.grid.affine, expected)


def test_a_gantry_tilt_is_kept(tmp_path: Path) -> None:
    volume = load(write_seg(tmp_path / "x.dcm", frames_at((0, 0, 0), (0, 1, 3), (0, 3, 9))))
    assert np.allclose(volume.grid.affine[:3, 2], [0, -1, 3])
    assert volume.data[0, 0, 0].tolist() == [1, 1, 0, 1]
    assert [note.kind for note in volume.notes] == [NoteKind.SHEARED]


@pytest.mark.parametrize(
    ("positions", "stated", "step", "slices", "kinds"),
    [
        ((0, 3, 6), 3, 3, 3, []),
        ((0, 3, 6), -3, 3, 3, []),
        ((0, 6, 15), 3, 3, 6, []),
        ((0, 3, 6), None, 3, 3, []),
        ((0, 3, 9), None, 3, 4, [NoteKind.STEP_ASSUMED]),
        ((0, 3, 9), 5, 3, 4, [NoteKind.FIELDS_DISAGREE]),
        ((0, 3, 9), 0, 3, 4, [NoteKind.STEP_ASSUMED]),
        ((0, 3, 6), 1.5, 1.5, 5, [NoteKind.FIELDS_DISAGREE]),
        ((0, 30), 3, 3, 11, []),
        ((0, 3.0003, 6.0006, 300.03), 3, 3.0003, 101, []),
        ((0, 3, 6.02, 9), 3, 3, 4, [NoteKind.UNEVEN_SLICES]),
    ],
)
@pytest.mark.filterwarnings("ignore::medattn.volumes.VolumeWarning")
def test_the_step_is_the_stated_one_if_it_fits_else_the_smallest(
    tmp_path: Path, positions: Any, stated: Any, step: float, slices: int, kinds: list[NoteKind]
) -> None:
    volume = load(write_seg(tmp_path / "x.dcm", frames_at(*positions), measures={"SpacingBetweenSlices": stated}))
    assert volume.grid.shape[2] == slices
    assert float(volume.grid.spacing_mm[2]) == pytest.approx(step, abs=5e-3)
    assert int(volume.data[0, 0, 0].sum()) == len(positions)
    assert [note.kind for note in volume.notes] == kinds


def test_a_wrong_statement_is_a_warning_and_an_assumed_step_is_strictly_refused(tmp_path: Path) -> None:
    path = write_seg(tmp_path / "x.dcm", frames_at(0, 3, 9), measures={"SpacingBetweenSlices": 5})
    with pytest.warns(VolumeWarning, match="SpacingBetweenSlices is 5 mm, but slices are 3 mm apart"):
        load(path)
    path = write_seg(tmp_path / "y.dcm", frames_at(0, 3, 9), measures={"SpacingBetweenSlices": None})
    with pytest.raises(VolumeError, match="step_assumed"):
        load(path, strict=True)


@pytest.mark.parametrize(
    ("measures", "thickness", "kinds"),
    [
        ({"SpacingBetweenSlices": 2, "SliceThickness": 5}, 2, []),
        ({"SpacingBetweenSlices": None, "SliceThickness": 5}, 5, [NoteKind.THICKNESS_ASSUMED]),
    ],
)
def test_one_slice_is_as_thick_as_stated(tmp_path: Path, measures: Any, thickness: float, kinds: Any) -> None:
    volume = load(write_seg(tmp_path / "x.dcm", frames_at(4), measures=measures))
    assert np.allclose(volume.grid.affine, [[-0.7, 0, 0, 0], [0, -0.5, 0, 0], [0, 0, thickness, 4], [0, 0, 0, 1]])
    assert [note.kind for note in volume.notes] == kinds


# -- what another library writes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["BINARY", "LABELMAP", "FRACTIONAL"])
@pytest.mark.parametrize("omit_empty_frames", [True, False])
def test_segmentations_made_by_highdicom_lie_on_the_grid_of_their_series(
    tmp_path: Path, kind: str, omit_empty_frames: bool
) -> None:
    seg = pytest.importorskip("highdicom").seg
    codes = pytest.importorskip("pydicom.sr.codedict").codes
    rotation = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    affine = np.eye(4)
    affine[:3, :3] = rotation * np.linalg.det(rotation) * [0.7, 0.9, 2.5]
    affine[:3, 3] = [-100, 50, 700]
    patient = dict.fromkeys(("PatientID", "PatientName", "PatientBirthDate", "PatientSex", "AccessionNumber"), "")
    study = {**patient, **dict.fromkeys(("StudyID", "StudyDate", "StudyTime"), ""), "SliceThickness": 2.5}
    paths = write_grid(tmp_path / "series", np.zeros((5, 7, 6), np.int16), affine, **study)
    labels = np.zeros((6, 7, 5), np.uint8)  # slices, rows, columns
    labels[1, 2:5, 1:3], labels[2, 3, 3], labels[4, 6, 4] = 1, 2, 3
    described = [
        seg.SegmentDescription(n, f"part {n}", codes.SCT.Tissue, codes.SCT.Tissue, "MANUAL") for n in (1, 2, 3)
    ]
    made = seg.Segmentation(
        [pydicom.dcmread(path) for path in paths],
        labels,
        kind,
        described,
        *("1.2.9", 1, "1.2.10", 1, "maker", "model", "1", "0"),
        omit_empty_frames=omit_empty_frames,
    )
    made.save_as(tmp_path / "x.dcm")
    volume = load(tmp_path / "x.dcm")
    first = 1 if omit_empty_frames else 0
    assert np.array_equal(volume.data[0], labels.T[:, :, first : 5 if omit_empty_frames else 6])
    assert np.allclose(volume.grid.to_world((4, 6, 4 - first)), (affine @ [4, 6, 4, 1])[:3], atol=1e-4)
    assert volume.metadata["segment_labels"] == ("1: part 1", "2: part 2", "3: part 3")
