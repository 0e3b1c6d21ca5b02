"""Which of the files that lie together are one volume, and what is kept of their headers beside the geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from medattn.volumes.dicom.elements import integer, quiet, text
from medattn.volumes.dicom.files import FoundFiles
from medattn.volumes.dicom.header import Header, read_header
from medattn.volumes.errors import VolumeError, first_few, library_errors
from medattn.volumes.notes import Note, NoteKind

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_LISTED = 20
_MAX_TEXT = 64  # of a description (VR LO)


def choose_series(found: FoundFiles, series: str | None) -> tuple[list[Header], list[Note]]:
    """The images of the one series among the files, or of ``series`` (SeriesInstanceUID), and a note of what is left.

    Files without pixels, doses, and files that are not DICOM are left out; so are localizers in a series of others,
    and, unless it is chosen, a series none of whose images has a place in space (a screenshot, a scanned form).

    Raises:
        VolumeError: if a file is damaged, if there is no image, or if a series must be chosen.
    """
    others, images = list(found.others), list[Header]()
    for file in found.files:
        header = read_header(file)
        if header is None:
            others.append(file.name)
        elif header.is_image:
            images.append(header)
        else:
            others.append(f"{file.name} ({header.kind})")
    if not images:
        raise VolumeError(f"there must be a DICOM image, got {first_few(others) or 'no files'}")
    by_series: dict[str, list[Header]] = {}
    for header in images:
        by_series.setdefault(header.series, []).append(header)
    chosen = by_series[_chosen(by_series, series)]
    kept = [header for header in chosen if not _is_localizer(header)] or chosen
    if len(kept) < len(chosen):
        others += [f"{header.file.name} (localizer)" for header in chosen if _is_localizer(header)]
    others += [f"{h.file.name} (another series)" for h in images if h.series != chosen[0].series]
    return kept, [_skipped(others)] if others else []


def _chosen(by_series: Mapping[str, Sequence[Header]], series: str | None) -> str:
    if series is not None:
        if series in by_series:
            return series
        raise VolumeError(f"there is no series {series!r}, but {_listed(by_series)}")
    placed = [uid for uid, headers in by_series.items() if any(_has_place(header) for header in headers)]
    candidates = placed or list(by_series)
    if len(candidates) > 1:
        raise VolumeError(f"several series lie here, and series=UID must choose one: {_listed(by_series)}")
    return candidates[0]


def _listed(by_series: Mapping[str, Sequence[Header]]) -> str:
    return first_few((f"{uid or 'no UID'} ({_described(headers)})" for uid, headers in by_series.items()), _LISTED)


def _described(headers: Sequence[Header]) -> str:
    elements = headers[0].elements
    slices = sum(integer(header.elements, "NumberOfFrames") or 1 for header in headers)
    what = [text(elements, "Modality") or "no Modality", repr(_description(elements))]
    return ", ".join([*what, f"{slices} slice{'s' * (slices != 1)}"])


def _has_place(header: Header) -> bool:
    return "ImagePositionPatient" in header.elements or "PerFrameFunctionalGroupsSequence" in header.elements


def _is_localizer(header: Header) -> bool:
    return "LOCALIZER" in text(header.elements, "ImageType").split("\\")


def _skipped(names: list[str]) -> Note:
    message = f"{len(names)} file{'s' * (len(names) != 1)} left out: {first_few(names)}"
    return Note(NoteKind.SKIPPED, message, {"files": names})


def series_metadata(elements: Dataset) -> dict[str, str]:
    """What is kept of a header: modality, description and UIDs, as far as they are there."""
    found = {
        "modality": text(elements, "Modality"),
        "series_description": _description(elements),
        "series_uid": text(elements, "SeriesInstanceUID"),
        "study_uid": text(elements, "StudyInstanceUID"),
        "frame_of_reference_uid": text(elements, "FrameOfReferenceUID"),
    }
    return {key: value[:_MAX_TEXT] for key, value in found.items() if value}


def _description(elements: Dataset) -> str:
    """Decoded from the file's character set; what follows a 0 is no text, but may be the patient's name."""
    with library_errors("reading SeriesDescription"), quiet():
        described = str(elements.get("SeriesDescription", "")).partition("\0")[0]
    return " ".join(described.split())[:_MAX_TEXT]
