"""Which place on a regular grid each slice of a stack has, and what becomes of places without a slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.errors import VolumeError, first_few
from medattn.volumes.notes import Note, NoteKind

Floats = NDArray[np.float64]

TOLERANCE = 0.02
"""How far from its place a slice may lie, in steps. Positions that a scanner rounded to 0.1 mm at a step of 7 mm are
1.2 % off; next to a missing slice they are off by a third of a step or more."""

_TOLD_MM = 0.01
_MOST_PER_SLICE = 10
_PLAUSIBLE = 0.1


class Places(NamedTuple):
    """Ascending ``indices`` of the slices on a grid of ``total``: whole, or between two places of the grid."""

    indices: Floats
    total: int
    notes: list[Note]

    def layers(self) -> Iterator[tuple[int, int, float]]:
        """For each place: the slice below, the one above, and the weight of that; a slice that lies there is both."""
        for k in range(self.total):
            nearest = int(np.abs(self.indices - k).argmin())
            if abs(self.indices[nearest] - k) <= TOLERANCE:
                yield nearest, nearest, 0.0
                continue
            upper = int(np.searchsorted(self.indices, k))
            below, above = self.indices[upper - 1 : upper + 1]
            yield upper - 1, upper, float((k - below) / (above - below))


def find_places(positions: Floats, depths: Floats, names: Sequence[str], *, regrid: bool) -> Places:
    """Places of n > 1 slices at ``positions`` (n, 3), whose distances along the normal, ``depths`` (n,), ascend.

    They are evenly spaced if none is more than ``TOLERANCE`` steps off its place on the regular grid from the first to
    the last. If they are not, ``regrid`` makes a grid from the first to the last: if some slices are missing and the
    others lie on a grid, that grid; otherwise one whose step is the nearest to the median step that fits.

    Raises:
        VolumeError: if slices do not follow a straight line, if they are uneven and not to be regridded, or if over
            nine tenths of the grid would have to be made up.
    """
    _check_straight(positions, depths, names)
    count = len(depths)
    step = (depths[-1] - depths[0]) / (count - 1)
    if np.abs(depths - np.linspace(depths[0], depths[-1], count)).max() <= TOLERANCE * step:
        off = np.linalg.norm(positions - np.linspace(positions[0], positions[-1], count), axis=1)
        return Places(np.arange(count, dtype=np.float64), count, _uneven_note(off, names))
    places = _on_a_grid(depths)
    if not regrid:
        raise _uneven_error(depths, names) if places is None else _missing_error(depths, places, names)
    if places is None:
        length = depths[-1] - depths[0]
        places = (depths - depths[0]) / length * max(1.0, np.rint(length / np.median(np.diff(depths))))
    return _regridded(places)


def _check_straight(positions: Floats, depths: Floats, names: Sequence[str]) -> None:
    along = (depths - depths[0]) / (depths[-1] - depths[0])
    line = positions[0] + along[:, None] * (positions[-1] - positions[0])
    off = np.linalg.norm(positions - line, axis=1)
    worst = int(off.argmax())
    if off[worst] > TOLERANCE * np.median(np.diff(depths)):
        at = ", ".join(f"{value:.6g}" for value in positions[worst])
        raise VolumeError(
            f"slices must follow a straight line, but {names[worst]} at ({at}) is {off[worst]:.4g} mm off the line "
            f"from {names[0]} to {names[-1]}"
        )


def _uneven_note(off: Floats, names: Sequence[str]) -> list[Note]:
    worst = int(off.argmax())
    if off[worst] <= _TOLD_MM:
        return []
    message = f"slices are not quite evenly spaced: {names[worst]} is {off[worst]:.3g} mm off its place"
    return [Note(NoteKind.UNEVEN_SLICES, message, {"largest_mm": float(off[worst])})]


def _on_a_grid(depths: Floats) -> Floats | None:
    """Whole places of the slices, if they lie on a grid some of whose slices are missing."""
    steps = np.diff(depths)
    likely = steps[steps >= _PLAUSIBLE * np.median(steps)]
    usual = np.median(likely[likely < 1.5 * likely.min()])
    places = np.concatenate([[0.0], np.cumsum(np.rint(steps / usual))])
    step = (depths[-1] - depths[0]) / places[-1]
    off = np.abs(depths - depths[0] - places * step)
    return places if np.diff(places).min() > 0 and off.max() <= TOLERANCE * step else None


def _regridded(indices: Floats) -> Places:
    count = int(indices[-1]) + 1
    if count > _MOST_PER_SLICE * len(indices):
        raise VolumeError(
            f"a regular grid may have at most {_MOST_PER_SLICE} times as many slices as there are, but it would take "
            f"{count} to regrid these {len(indices)}"
        )
    places = Places(indices, count, [])
    made = [k for k, (lower, upper, _) in enumerate(places.layers()) if lower != upper]
    message = f"{len(made)} of {count} slices were interpolated between their neighbours: {first_few(map(str, made))}"
    return places._replace(notes=[Note(NoteKind.SLICES_INTERPOLATED, message, {"slices": made})])


def _missing_error(depths: Floats, places: Floats, names: Sequence[str]) -> VolumeError:
    steps = np.diff(places)
    gaps = [_between(int(number), depths, names) for number in np.flatnonzero(steps > 1)]
    usual = (depths[-1] - depths[0]) / places[-1]
    return VolumeError(
        f"slices are missing: most are {usual:.6g} mm apart, but there are {first_few(gaps)}, which leaves out "
        f"{int(steps.sum()) - len(steps)}; regrid=True interpolates what is missing"
    )


def _uneven_error(depths: Floats, names: Sequence[str]) -> VolumeError:
    steps = np.diff(depths)
    least, most = (_between(int(number), depths, names) for number in (steps.argmin(), steps.argmax()))
    return VolumeError(
        f"slices must be evenly spaced (to {TOLERANCE:.0%} of a step), but there are {least}, and {most}; regrid=True "
        "interpolates a regular grid"
    )


def _between(number: int, depths: Floats, names: Sequence[str]) -> str:
    below, above = depths[number], depths[number + 1]
    return f"{above - below:.6g} mm between {names[number]} at {below:.6g} and {names[number + 1]} at {above:.6g} mm"
