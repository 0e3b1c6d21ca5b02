"""Zip archives with a DICOM series: damage to the archive, to its members before they are packed, and hostile names."""

from __future__ import annotations

import io
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from numpy.random import Generator

from tests.fuzz.case import Expected, Files, Sample, Unreadable, read_files
from tests.fuzz.damage import INTEGERS, damage_bytes, pick
from tests.fuzz.dicom_damage import GEOMETRY, element_damages
from tests.fuzz.dicom_oracle import images
from tests.fuzz.judge import SECRET
from tests.volumes.dicom_writing import write_series

_NAME = "x.zip"
_HOSTILE = (
    *(
        "../0.dcm",
        "a/../../0.dcm",
        "/0.dcm",
        "C:\\0.dcm",
        "..\\0.dcm",
        "\\\\host\\0.dcm",
        "a\0.dcm",
        "",
        ".",
        "a/",
        "0" * 300,
    ),
    *("0.dcm/1.dcm", "é.dcm", "x.zip", "DICOMDIR", ".0.dcm"),
)
_LOCAL, _CENTRAL, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"

Members = list[tuple[str, bytes]]


def samples(folder: Path) -> list[Sample]:
    """Stored, deflated, in folders, and with other files beside the series."""
    made = []
    variants: dict[str, dict[str, Any]] = {
        "explicit": {"RescaleSlope": "2"},
        "implicit": {"syntax": "implicit"},
        "deflated": {"syntax": "deflated"},
    }
    for name, attributes in variants.items():
        write_series(folder / name, (0, 3, 6), PatientName=SECRET, **attributes)
        files = list(read_files(folder / name).items())
        made.append(Sample(f"{name}, stored", {_NAME: _pack(files, zipfile.ZIP_STORED)}, _NAME))
        nested = [(f"study/a{number}/{file}", content) for number, (file, content) in enumerate(files)]
        others = [("notes.txt", b"hello"), ("study/DICOMDIR", bytes(200)), ("study/", b"")]
        made.append(Sample(f"{name}, packed", {_NAME: _pack([*nested, *others], zipfile.ZIP_DEFLATED)}, _NAME))
    return made


def _pack(members: Members, method: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, content)
    return stream.getvalue()


def _unpack(content: bytes) -> tuple[Members, int]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos = [info for info in archive.infolist() if info.file_size < 1 << 20]
        return [(info.filename, archive.read(info)) for info in infos], infos[0].compress_type


def _repacked(change: Callable[[Members, Generator], str]) -> Any:
    def damage(files: Files, rng: Generator) -> str:
        try:
            members, method = _unpack(files[_NAME])
            what = change(members, rng) if members else ""
            files[_NAME] = _pack(members, method)
        except Exception:  # an archive that earlier damage made unreadable
            return ""
        return what

    return damage


def _rename(members: Members, rng: Generator) -> str:
    at, name = int(rng.integers(len(members))), pick(_HOSTILE, rng)
    members[at] = name, members[at][1]
    return f"member {at} named {name[:40]!r}"


def _double(members: Members, rng: Generator) -> str:
    at = int(rng.integers(len(members)))
    members.append(members[at] if rng.random() < 0.5 else (f"copy/{members[at][0]}", members[at][1]))
    return f"member {at} twice"


def _damage_member(members: Members, rng: Generator) -> str:
    at = int(rng.integers(len(members)))
    name, content = members[at]
    if rng.random() < 0.5:
        content, what = damage_bytes(content, content, rng)
    else:
        files = {name: content}
        what = pick(element_damages(GEOMETRY), rng)(files, rng)
        content = files[name]
    members[at] = name, content
    return f"{what} in member {name}"


def _bomb(members: Members, rng: Generator) -> str:
    at, size = int(rng.integers(len(members))), int(pick((1 << 20, 64 << 20), rng))
    members[at] = members[at][0], members[at][1] + bytes(size)
    return f"{size} zeros behind member {at}"


def _record(files: Files, rng: Generator) -> str:
    """A number in a local header, in the central directory or at the end becomes another."""
    content = files.get(_NAME, b"")
    mark, offsets = pick(
        (
            (_LOCAL, ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))),
            (_CENTRAL, ((6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (38, 4), (42, 4))),
            (_END, ((4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2))),
        ),
        rng,
    )
    places = [found.start() for found in re.finditer(re.escape(mark), content)]
    if not places:
        return ""
    (offset, size), value = pick(offsets, rng), int(pick((*INTEGERS, 8, 12, 14), rng))
    at = int(pick(places, rng)) + offset
    packed = struct.pack("<Q", value % (1 << 64))[:size]
    files[_NAME] = content[:at] + packed + content[at + size :]
    return f"{size} bytes {offset} of a {mark!r} record become {value}"


DAMAGES = (
    *map(_repacked, (_rename, _rename, _double, _damage_member, _damage_member, _damage_member, _bomb)),
    _record,
    _record,
)


def expected(folder: Path, sample: Sample) -> Expected:
    """By ``dicom_oracle`` on the members, as Python's zipfile reads them."""
    with zipfile.ZipFile(folder / _NAME) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        for info in infos:
            parts = info.filename.replace("\\", "/").split("/")
            if ".." in parts or not parts[0] or parts[0].endswith(":") or info.flag_bits & 1:
                raise Unreadable(f"member {info.filename!r}")
        names = [info for info in infos if _is_candidate(info.filename)]
        members = [(info.filename, archive.read(info)) for info in names]
    marked = [content for name, content in members if content[128:132] == b"DICM" or name.endswith(".dcm")]
    return images({str(number): content for number, content in enumerate(marked)}, sample)


def _is_candidate(path: str) -> bool:
    name = PurePosixPath(path).name
    return not name.startswith(".") and name != "DICOMDIR" and not name.endswith(".zip")
