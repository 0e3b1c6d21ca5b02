"""The space of a NRRD file: where its axes point in the patient, and its units of length.

Source: "Definition of NRRD File Format" (teem.sourceforge.net/nrrd/format.html), section 4.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from medattn.volumes.errors import VolumeError
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.text_header import Header, shown

_ANATOMICAL = {
    "right-anterior-superior": (1, 1, 1),
    "left-anterior-superior": (-1, 1, 1),
    "left-posterior-superior": (-1, -1, 1),
}
_UNNAMED = {"scanner-xyz": (1, 1, 1), "3d-right-handed": (1, 1, 1), "3d-left-handed": (-1, 1, 1)}
_SHORT = {"ras": "right-anterior-superior", "las": "left-anterior-superior", "lps": "left-posterior-superior"}
_MM_PER_UNIT = {
    "mm": 1.0, "millimeter": 1.0, "millimetre": 1.0, "millimeters": 1.0, "millimetres": 1.0,
    "cm": 10.0, "centimeter": 10.0, "centimetre": 10.0,
    "m": 1000.0, "meter": 1000.0, "metre": 1000.0, "meters": 1000.0, "metres": 1000.0,
    "um": 1e-3, "µm": 1e-3, "μm": 1e-3, "micron": 1e-3, "microns": 1e-3, "micrometer": 1e-3, "micrometre": 1e-3,
    "nm": 1e-6, "nanometer": 1e-6, "nanometre": 1e-6,
}  # fmt: skip
_NO_UNIT = ("", "???", "none", "unknown")


class Frame(NamedTuple):
    """A space: ``signs`` turn its first three coordinates into RAS; ``known``: it says where the patient's right is."""

    signs: tuple[int, int, int]
    known: bool
    dimension: int


def read_frame(header: Header) -> Frame:
    """The space of the fields ``space`` or ``space dimension``.

    Raises:
        VolumeError: if there are none of them or both, or the space is unknown or has other dimensions than 3 and time.
    """
    text, dimension = header.fields.get("space"), header.fields.get("space dimension")
    if (text is None) == (dimension is None):
        raise VolumeError("space directions must come with one of the fields 'space' and 'space dimension'")
    if text is None:
        if dimension != "3":
            raise VolumeError(f"space dimension must be 3, got {shown(dimension or '')}")
        return Frame((1, 1, 1), False, 3)
    name = text.lower()
    name = f"{_SHORT[name[:3]]}-time" if name in ("rast", "last", "lpst") else _SHORT.get(name, name)
    with_time, name = name.endswith("-time"), name.removesuffix("-time")
    if name not in _ANATOMICAL and name not in _UNNAMED:
        known = ", ".join((*_SHORT, *_ANATOMICAL, *_UNNAMED))
        raise VolumeError(f"space must be one of {known}, or one of them with -time, got {shown(text)}")
    return Frame((_ANATOMICAL | _UNNAMED)[name], name in _ANATOMICAL, 4 if with_time else 3)


def mm_per_unit(header: Header, field: str, count: int, wanted: Sequence[int]) -> tuple[list[float], list[Note]]:
    """Millimetres per unit of each of the ``wanted`` coordinates or axes, of which ``field`` has ``count``.

    A file without that field is in millimetres, as all programs for medical images read and write it.

    Raises:
        VolumeError: if there are more or fewer units, or one is no unit of length.
    """
    text = header.fields.get(field)
    if text is None:
        return [1.0] * len(wanted), []
    units = re.findall(r'"([^"]*)"', text) or text.split()
    if len(units) != count:
        raise VolumeError(f"{field} must have {count} values, got {len(units)}: {shown(text)}")
    names = [units[axis].strip().lower() for axis in wanted]
    for name in names:
        if name not in _MM_PER_UNIT and name not in _NO_UNIT:
            raise VolumeError(f"{field} must be units of length such as mm, got {shown(name)}")
    message = f"{field} names no unit of length, but {shown(text)}: mm is assumed"
    notes = [Note(NoteKind.UNITS_ASSUMED, message)] if any(name in _NO_UNIT for name in names) else []
    return [_MM_PER_UNIT.get(name, 1.0) for name in names], notes
