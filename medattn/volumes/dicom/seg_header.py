"""What highdicom wants to know of a segmentation: the images that were segmented, and what each segment is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from medattn.geometry import VoxelGrid
from medattn.volumes.dicom.seg_segments import Segment
from medattn.volumes.errors import VolumeError
from medattn.volumes.stored import Metadata
from medattn.volumes.volume import Volume

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_PATIENT_AND_STUDY = (
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "ReferringPhysicianName", "AccessionNumber"),
    *("StudyID", "StudyDate", "StudyTime"),
)
_CT_IMAGE = "1.2.840.10008.5.1.4.1.1.2"
_MAX_NAME = 64
_TO_LPS = torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)


def names_instances(source: Metadata) -> bool:
    """True if ``source`` has all UIDs that a reference to its instances takes."""
    return all([source.get("series_uid"), source.get("sop_class_uid"), *(source.get("instance_uids") or [""])])


def source_images(grid: VoxelGrid, source: Volume) -> list[Dataset]:
    """Headers of the images that were segmented, with ``grid``'s geometry and nothing about a patient.

    Fields about the patient that the standard wants to exist are there and empty. highdicom refers a frame to the
    image in its plane: where images are not the slices of ``grid`` one by one, all lie in the plane before the first.
    Without UIDs in ``source``, there is one image with new ones, which exists nowhere. All pass for CT images, as
    highdicom wants more of multi-frame ones and knows not every class; ``correct_references`` puts that right.
    """
    metadata = source.metadata
    known = names_instances(metadata)
    uids = metadata["instance_uids"] if known else [fresh_uid()]
    one_by_one = source.source_grid.is_close(grid) and len(uids) == grid.shape[2]
    shared = {
        **dict.fromkeys(_PATIENT_AND_STUDY, ""),
        "SOPClassUID": _CT_IMAGE,
        "StudyInstanceUID": metadata.get("study_uid") or fresh_uid(),
        "SeriesInstanceUID": metadata["series_uid"] if known else fresh_uid(),
        "FrameOfReferenceUID": metadata.get("frame_of_reference_uid") or fresh_uid(),
        "Columns": grid.shape[0],
        "Rows": grid.shape[1],
    }
    return [_image({**shared, "SOPInstanceUID": uid}, grid, k if one_by_one else -1) for k, uid in enumerate(uids)]


def correct_references(dataset: Dataset, source: Metadata) -> None:
    """Make highdicom's references to ``source_images`` say what was segmented, or nothing if that is unknown."""
    if not names_instances(source):
        del dataset.SourceImageSequence, dataset.ReferencedSeriesSequence
        return
    derived = [item for frame in dataset.PerFrameFunctionalGroupsSequence for item in frame.DerivationImageSequence]
    listed = (*dataset.SourceImageSequence, *dataset.ReferencedSeriesSequence[0].ReferencedInstanceSequence)
    for image in (*listed, *(image for item in derived for image in item.SourceImageSequence)):
        image.ReferencedSOPClassUID = source["sop_class_uid"]


def _image(attributes: dict[str, Any], grid: VoxelGrid, k: int) -> Dataset:
    """A frame is a slice k, with rows along i and columns along j."""
    from highdicom import PixelMeasuresSequence, PlaneOrientationSequence
    from pydicom.dataset import Dataset

    image = Dataset()
    for keyword, value in attributes.items():
        setattr(image, keyword, value)
    i, j, along = grid.direction.T * _TO_LPS
    spacing = grid.spacing_mm
    step = float(torch.linalg.cross(i, j) @ along * spacing[2])
    image.update(PixelMeasuresSequence(spacing[:2].flip(0).tolist(), step, step)[0])
    image.update(PlaneOrientationSequence("PATIENT", [*i.tolist(), *j.tolist()])[0])
    image.update(plane_position(grid, k)[0])
    return image


def plane_position(grid: VoxelGrid, k: int) -> Any:
    """PlanePositionSequence of slice ``k``."""
    from highdicom import PlanePositionSequence

    return PlanePositionSequence("PATIENT", (grid.to_world((0, 0, k)) * _TO_LPS).tolist())


def segment_description(number: int, segment: Segment | None) -> Any:
    """Description of segment ``number``; without a code, it is some tissue.

    Raises:
        VolumeError: if its name is no text of 1 to 64 characters, or has a backslash or control characters.
    """
    from highdicom.seg import SegmentDescription
    from highdicom.sr import CodedConcept

    name, code = segment or Segment(f"Label {number}")
    if not (isinstance(name, str) and 1 <= len(name.strip()) <= _MAX_NAME) or "\\" in name or not name.isprintable():
        raise VolumeError(
            f"the name of segment {number} must be 1 to {_MAX_NAME} printable characters, no backslash, got {name!r}"
        )
    tissue = CodedConcept("85756007", "SCT", "Tissue")
    kind = CodedConcept(code.value, code.scheme, code.meaning) if code else tissue
    return SegmentDescription(number, name, tissue, kind, "MANUAL")


def fresh_uid() -> str:
    """A new UID, from a random UUID, which says nothing about the machine."""
    from pydicom.uid import generate_uid

    return generate_uid(prefix=None)
