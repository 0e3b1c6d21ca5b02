"""What a summary says about a volume, and that all of it is JSON."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from nibabel.affines import obliquity
from scipy.spatial.transform import Rotation

from medattn.geometry import VoxelGrid
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.summary import MOST_LABELS, VolumeSummary, obliquity_deg, summarize
from medattn.volumes.volume import Volume


def volume(values: Any, affine: Any = None, **fields: Any) -> Volume:
    """A volume (1, 2, 2, n) of the given values, by default on a grid of 1 mm."""
    data = torch.as_tensor(values).reshape(1, 2, 2, -1)
    return Volume(data, grid((2, 2, data.shape[-1]), np.eye(4) if affine is None else affine), **fields)


def grid(shape: tuple[int, int, int], affine: Any) -> VoxelGrid:
    return VoxelGrid(shape, torch.as_tensor(np.asarray(affine, dtype=np.float64)))


def rotated(angles_deg: Any, axes: str = "z", spacing: Any = (1.0, 1.0, 1.0)) -> VoxelGrid:
    affine = np.eye(4)
    affine[:3, :3] = Rotation.from_euler(axes, angles_deg, degrees=True).as_matrix() @ np.diag(spacing)
    return grid((4, 5, 6), affine)


# -- obliquity -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("angle", "expected"), [(0.0, 0.0), (9.3, 9.3), (35.5, 35.5), (-35.5, 35.5), (80.0, 10.0)])
def test_obliquity_of_a_rotation_about_one_axis_is_its_angle_to_the_nearest_axis(
    axis: int, angle: float, expected: float
) -> None:
    angles = obliquity_deg(rotated(angle, "xyz"[axis], (0.7, 0.7, 2.5))).tolist()
    assert angles == pytest.approx([0.0 if a == axis else expected for a in range(3)], abs=1e-9)


def test_obliquity_of_the_space_diagonal_is_the_largest_there_is() -> None:
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1], affine[:3, 2] = (1, 1, 1), (1, -1, 0), (1, 1, -2)
    expected = [math.degrees(math.acos(1 / math.sqrt(3))), 45.0, math.degrees(math.acos(2 / math.sqrt(6)))]
    assert obliquity_deg(grid((2, 2, 2), affine)).tolist() == pytest.approx(expected, abs=1e-9)


def test_obliquity_keeps_a_millionth_of_a_degree() -> None:
    assert obliquity_deg(rotated(1e-6)).tolist() == pytest.approx([1e-6, 1e-6, 0.0], rel=1e-6)


def test_obliquity_is_that_of_nibabel() -> None:
    """nibabel gives the angle of each world axis to the nearest array axis: ours of the inverse rotation."""
    for rotation in Rotation.random(50, random_state=0):
        affine = np.eye(4)
        affine[:3, :3] = rotation.as_matrix() @ np.diag([0.5, 1.0, 4.0])
        ours = obliquity_deg(grid((2, 2, 2), affine)).numpy()
        inverse = np.eye(4)
        inverse[:3, :3] = rotation.as_matrix().T
        np.testing.assert_allclose(ours, np.degrees(obliquity(inverse)), atol=1e-5)


def test_obliquity_does_not_depend_on_flips_order_of_axes_and_spacing() -> None:
    oblique = rotated([10.0, 20.0, 30.0], "xyz")
    angles = obliquity_deg(oblique)
    torch.testing.assert_close(obliquity_deg(oblique.flip(1)), angles)
    torch.testing.assert_close(obliquity_deg(oblique.permute((2, 0, 1))), angles[[2, 0, 1]])
    torch.testing.assert_close(obliquity_deg(oblique.with_spacing((3.0, 0.2, 7.0))), angles)


def test_a_tilted_gantry_shows_in_the_tilted_axis_only() -> None:
    affine = np.diag([1.0, 1.0, 3.0, 1.0])
    affine[1, 2] = 1.0
    expected = [0.0, 0.0, math.degrees(math.atan(1 / 3))]
    assert obliquity_deg(grid((2, 2, 2), affine)).tolist() == pytest.approx(expected, abs=1e-9)


# -- values --------------------------------------------------------------------------------------------


def test_intensities_are_those_of_the_finite_voxels() -> None:
    found = summarize(volume([math.nan, -math.inf, -2.0, 0.5, 1.0, 2.0, 3.0, math.inf]))
    assert found.nonfinite_voxels == 3
    assert found.intensities is not None
    assert (found.intensities.min, found.intensities.max, found.intensities.mean) == (-2.0, 3.0, 0.9)


def test_percentiles_are_values_that_occur() -> None:
    values = torch.randperm(1004, generator=torch.Generator().manual_seed(0)).float() - 0.5
    found = summarize(volume(values)).intensities
    assert found is not None
    assert (found.percentile_1, found.percentile_99) == (9.5, 992.5)  # positions 10.03 and 992.97 of 0 to 1003


def test_the_volume_is_left_as_it_was() -> None:
    values = torch.tensor([3.0, 1.0, 2.0, 0.0, 7.0, 5.0, 6.0, 4.0])
    scan = volume(values.clone())
    summarize(scan)
    assert torch.equal(scan.data.flatten(), values)


def test_channels_are_counted_and_pooled() -> None:
    data = torch.arange(24.0).reshape(3, 2, 2, 2) + 0.5
    found = summarize(Volume(data, VoxelGrid.from_spacing((2, 2, 2), 1.0)))
    assert found.channels == 3
    assert found.intensities is not None
    assert (found.intensities.min, found.intensities.max) == (0.5, 23.5)


def test_no_finite_voxel_no_intensities() -> None:
    found = summarize(volume([math.nan] * 8))
    assert found.intensities is None
    assert found.nonfinite_voxels == 8


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0, 1, 1, 1, 4, 4, 1001], 4),
        ([0] * 8, 1),
        (list(range(MOST_LABELS)), MOST_LABELS),
        (list(range(MOST_LABELS + 4)), None),
        ([-1, 0, 1, 2], None),
        ([0, 1, 2, 2.5], None),
    ],
    ids=["labels", "constant", "most", "too many", "negative", "real"],
)
def test_few_integers_look_like_labels(values: list[float], expected: int | None) -> None:
    found = summarize(volume([float(v) for v in values])).intensities
    assert found is not None
    assert found.label_like == expected


def test_a_label_map_has_its_labels_and_no_intensities() -> None:
    found = summarize(volume([7, 0, 0, 2**62, 7, 7, 1, 0]))
    assert found.labels == (0, 1, 7, 2**62)
    assert found.intensities is None


# -- JSON ----------------------------------------------------------------------------------------------


def in_json(summary: VolumeSummary) -> dict[str, Any]:
    text = json.dumps(summary.to_json(), allow_nan=False)
    content: dict[str, Any] = json.loads(text)
    return content


def test_geometry_in_json_is_that_of_the_grid() -> None:
    affine = [[0.0, 0.0, -2.5, 10.0], [-0.7, 0.0, 0.0, 20.0], [0.0, 0.3, 0.0, -30.0], [0.0, 0.0, 0.0, 1.0]]
    found = in_json(summarize(volume(torch.arange(12.0), affine)))
    assert found["shape"] == [2, 2, 3]
    assert found["channels"] == 1
    assert found["spacing_mm"] == [0.7, 0.3, 2.5]
    assert found["axcodes"] == "PSL"
    assert found["orientation_known"] is True
    assert found["obliquity_deg"] == [0.0, 0.0, 0.0]
    assert found["is_orthogonal"] is True
    assert found["extent_mm"] == [1.4, 0.6, 7.5]
    assert found["origin_mm"] == [10.0, 20.0, -30.0]
    assert found["fov_center_mm"] == pytest.approx([7.5, 19.65, -29.85])
    assert found["affine"] == affine


def test_a_sheared_grid_is_not_orthogonal() -> None:
    affine = np.eye(4)
    affine[1, 2] = 0.3
    assert in_json(summarize(volume([0.0] * 8, affine)))["is_orthogonal"] is False


def test_notes_in_json_say_what_kind_they_are_and_hold_no_nan() -> None:
    guess = Note(NoteKind.ORIENTATION_UNKNOWN, "no form", {"quatern": (math.nan, 0.5), "code": 0})
    found = in_json(summarize(volume([0.0] * 8, notes=(guess,), metadata={"modality": "CT", "uids": ("1.2", "1.3")})))
    assert found["orientation_known"] is False
    assert found["notes"] == [
        {
            "kind": "orientation_unknown",
            "message": "no form",
            "is_assumption": True,
            "is_warning": True,
            "values": {"quatern": [None, 0.5], "code": 0},
        }
    ]
    assert found["metadata"] == {"modality": "CT", "uids": ["1.2", "1.3"]}


def test_values_in_json() -> None:
    assert in_json(summarize(volume([0.5, 1.5, 2.5, math.nan])))["intensities"] == {
        "min": 0.5,
        "max": 2.5,
        "mean": 1.5,
        "percentile_1": 0.5,
        "percentile_99": 2.5,
        "label_like": None,
    }
    labels = in_json(summarize(volume([3, 0, 0, 3])))
    assert labels["labels"] == [0, 3]
    assert labels["intensities"] is None
