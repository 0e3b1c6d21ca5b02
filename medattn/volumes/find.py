"""Finding the volumes in a folder tree: files by their names, DICOM series by what their files say."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from medattn.volumes.dicom.files import open_files
from medattn.volumes.dicom.header import read_header
from medattn.volumes.errors import VolumeError
from medattn.volumes.loading import READERS, file_suffix
from medattn.volumes.stored import MAX_BYTES

LOOKED_FOR = (
    "NIfTI (.nii, .nii.gz, .hdr with .img), NRRD (.nrrd, .nhdr), MetaImage (.mha, .mhd), "
    "DICOM (.dcm, .ima, or any file with DICM at byte 128; .zip)"
)


@dataclass(frozen=True)
class Source:
    """One volume that was found.

    Attributes:
        path: a file; or the folder or archive of a DICOM series.
        series: SeriesInstanceUID of a DICOM series; empty if its files have none.
        files: those of a DICOM series that lies in a folder.
        labels: True for DICOM segmentations, which can be read as label maps only.
        problem: why it cannot be read, if that is known already.
    """

    path: Path
    series: str | None = None
    files: tuple[Path, ...] = ()
    labels: bool = False
    problem: str = ""

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        return self.path if self.files else self.path.parent


@dataclass(frozen=True)
class Found:
    """The volumes of a tree, folder by folder in order of names, and how many files are no part of any."""

    sources: list[Source]
    ignored: int


_HEADERS = (".hdr", ".hdr.gz", ".mhd", ".nhdr")
_VOXELS = (".img", ".img.gz", ".raw", ".raw.gz", ".zraw")
"""Suffixes of files that hold a header only, and of those that hold its voxels, under the same name."""


def find_volumes(path: Path) -> Found:
    """The volumes at ``path``: a file stands for itself, an archive for its series; a folder is walked by names.

    Links are followed, and each folder is visited once, however many links lead to it. Names that begin with a dot
    are left out. A header and its voxels in two files are one volume, named by the header. DICOM images are one volume
    for each series of a folder. A folder that cannot be listed, and a DICOM file or archive that cannot be read, is a
    ``Source`` with that problem.
    """
    if not os.path.isdir(path):
        return _in_archive(path) if _is_archive(path) else Found([Source(path)], 0)
    sources, ignored = list[Source](), 0
    pending, visited = [path], set[tuple[int, int]]()
    while pending:
        folder = pending.pop()
        try:
            files, folders = _listed(folder, visited)
        except OSError as error:
            sources.append(Source(folder, problem=f"the folder cannot be listed: {error.strerror}"))
            continue
        pending += reversed(folders)
        here = _in_folder(folder, files)
        sources += here.sources
        ignored += here.ignored
    return Found(sources, ignored)


def _listed(folder: Path, visited: set[tuple[int, int]]) -> tuple[list[Path], list[Path]]:
    """Files and folders in ``folder``; none if it was visited, by whatever name."""
    status = folder.stat()
    if (status.st_dev, status.st_ino) in visited:
        return [], []
    visited.add((status.st_dev, status.st_ino))
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    folders = {entry for entry in entries if os.path.isdir(entry)}
    return [entry for entry in entries if entry not in folders], sorted(folders)


def _in_folder(folder: Path, files: list[Path]) -> Found:
    """The volumes among the ``files`` of one folder."""
    headers = {_stem(file, _HEADERS) for file in files} - {None}
    sources, rest, ignored = list[Source](), list[Path](), 0
    for file in files:
        if _stem(file, _VOXELS) in headers:
            continue
        if READERS.get(file_suffix(file), "dicom") != "dicom":
            sources.append(Source(file))
        elif _is_archive(file):
            inside = _in_archive(file)
            sources += inside.sources
            ignored += inside.ignored
        elif file.is_file():
            rest.append(file)
        else:
            ignored += 1
    dicom = _series(folder, rest)
    return Found(sources + dicom.sources, ignored + dicom.ignored)


def _stem(file: Path, suffixes: tuple[str, ...]) -> str | None:
    """The name without the one of ``suffixes`` that it ends in, if it does."""
    name = file.name.lower()
    return next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), None)


def _is_archive(path: Path) -> bool:
    return file_suffix(path) == ".zip" and path.is_file()


def _in_archive(archive: Path) -> Found:
    """Its DICOM series; one that has none counts as an ignored file, whatever else is in it."""
    try:
        found = _series(archive, archive)
    except VolumeError as error:
        return Found([Source(archive, problem=str(error))], 0)
    return Found(found.sources, int(not found.sources))


def _series(place: Path, path: Path | list[Path]) -> Found:
    """The DICOM series among the files at ``path``: an archive, or a list of files in the folder ``place``."""
    in_folder = isinstance(path, list)
    series, sources, ignored = dict[tuple[str, bool], list[Path]](), list[Source](), 0
    with open_files(path, MAX_BYTES) as found:
        for file in found.files:
            member = Path(file.name) if in_folder else place / file.name
            try:
                header = read_header(file)
            except VolumeError as error:
                sources.append(Source(member, problem=str(error).replace(file.name, member.name)))
                continue
            except ImportError:  # load_volume says what is missing
                return Found([Source(place)], ignored)
            if header is not None and header.is_image:
                series.setdefault((header.series, header.is_segmentation), []).append(member)
            else:
                ignored += 1
    for (uid, labels), members in series.items():
        sources.append(Source(place, uid, tuple(members) if in_folder else (), labels))
    return Found(sources, ignored + len(found.others))
