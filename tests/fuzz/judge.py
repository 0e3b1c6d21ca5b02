"""Loads the files of a case and judges what came of it."""

from __future__ import annotations

import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medattn.volumes import Volume, VolumeError, VolumeWarning, load_volume
from tests.fuzz.case import Case, Expected, Format, NoOpinion, Unreadable
from tests.fuzz.memory import MAX_GROWTH_BYTES, MemoryWatch

MAX_BYTES = 1 << 20
"""``max_bytes`` for the reader: every sample fits, and what a header lies about does not."""

SECRET = "Xyzzy^Plugh"
"""Name of the patient in all DICOM samples: it must appear nowhere."""

_MAX_MESSAGE = 5000
_PLAUSIBLE_MM, _PLAUSIBLE_ORIGIN_MM = (1e-6, 1e6), 1e7


class Outcome(NamedTuple):
    """``kind``: refused, right, or a finding, which ``detail`` explains."""

    kind: str
    detail: str = ""
    seconds: float = 0.0
    growth_bytes: int = 0
    implausible: str = ""

    @property
    def is_finding(self) -> bool:
        """True if a reader must not do that."""
        return self.kind not in ("refused", "right")


class Loaded(NamedTuple):
    """What ``load_volume`` did: a volume or an error, and the warnings that are not its own."""

    volume: Volume | None
    error: BaseException | None
    leaked: list[str]
    seconds: float
    growth_bytes: int
    output: str


def load(case: Case, folder: Path, output: Any) -> Loaded:
    """Load the files that were written to ``folder``; ``output()`` gives what was printed since it was last asked."""
    path = folder / case.sample.target
    volume, error, leaked = None, None, list[str]()

    def note_warning(message: Any, category: type[Warning], *_: Any) -> None:
        if not issubclass(category, VolumeWarning):
            own = [f for f in traceback.extract_stack() if "medattn" in f.filename]
            where = f"{own[-1].filename.rsplit('/', 1)[-1]}:{own[-1].lineno}" if own else "?"
            leaked.append(f"{category.__name__} at {where}: {message}")

    output()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note_warning
        watch, start = MemoryWatch(), time.perf_counter()
        try:
            volume = load_volume(path, **{"max_bytes": MAX_BYTES, **case.sample.options})
        except Exception as raised:
            error = raised
        seconds, growth = time.perf_counter() - start, watch.growth_bytes()
    return Loaded(volume, error, leaked, seconds, growth, output())


def judge(case: Case, folder: Path, loaded: Loaded, module: Format, undamaged: Volume | None) -> Outcome:
    """Whether that is right; ``undamaged`` is the sample's volume."""
    kind, detail = _kind(case, folder, loaded, module, undamaged)
    outcome = Outcome(kind, detail, loaded.seconds, loaded.growth_bytes)
    if loaded.volume is not None and kind == "right":
        outcome = outcome._replace(implausible=_implausible(loaded.volume))
    return outcome


def _kind(case: Case, folder: Path, loaded: Loaded, module: Format, undamaged: Volume | None) -> tuple[str, str]:
    if loaded.growth_bytes > MAX_GROWTH_BYTES:
        return "memory", f"{loaded.growth_bytes >> 20} MiB were allocated"
    if loaded.error is not None:
        kind, detail = _refusal(case, folder, loaded.error)
    else:
        assert loaded.volume is not None
        kind, detail = _rightness(case, folder, loaded.volume, module, undamaged)
    if kind in ("refused", "right") and (loaded.leaked or loaded.output):
        return "leak", f"(otherwise {kind}) {'; '.join(loaded.leaked)} {loaded.output}"
    return kind, detail


def _refusal(case: Case, folder: Path, error: BaseException) -> tuple[str, str]:
    chain, link = [error], error
    while (link := link.__cause__ or link.__context__) is not None:
        chain.append(link)
    trace = "".join(traceback.format_exception(error))
    if any(isinstance(e, MemoryError) for e in chain) or "bad_alloc" in trace or "allocate" in str(error):
        return "memory", trace
    if isinstance(error, FileNotFoundError) and not (folder / case.sample.target).exists():
        return "refused", str(error)
    message = str(error)
    if not isinstance(error, VolumeError):
        return "foreign error", trace
    if str(folder / case.sample.target) not in message:
        return "bad message", f"does not name the file: {message}"
    if len(message) > _MAX_MESSAGE:
        return "bad message", f"{len(message)} characters: {message[:200]}..."
    if any(part in message for part in SECRET.split("^")):
        return "patient data", message
    return "refused", message


def _rightness(case: Case, folder: Path, volume: Volume, module: Format, undamaged: Volume | None) -> tuple[str, str]:
    told = repr((volume.notes, volume.metadata))
    if case.damages and any(part in told for part in SECRET.split("^")):
        return "patient data", told
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = module.expected(folder, case.sample)
    except Unreadable as error:
        return "should be refused", f"{error}; but it was read: {_shown(volume)}"
    except Exception as error:
        if undamaged is not None and _difference(volume, _as_expected(undamaged)) == "":
            return "right", "as the undamaged sample"
        how = str(error) if isinstance(error, NoOpinion) else "".join(traceback.format_exception(error))
        return "unjudged", f"{_shown(volume)}: {how}"
    wrong = _difference(volume, expected)
    return ("wrong", f"{wrong}; notes: {[str(n.kind) for n in volume.notes]}") if wrong else ("right", "")


def _as_expected(volume: Volume) -> Expected:
    return Expected(volume.grid.affine.numpy(), tuple(volume.data.shape), volume.data.numpy())


def _shown(volume: Volume) -> str:
    affine, notes = volume.grid.affine.tolist(), [str(note.kind) for note in volume.notes]
    return f"shape {tuple(volume.data.shape)}, affine {affine}, notes {notes}"


def _difference(volume: Volume, expected: Expected) -> str:
    """What differs from ``expected``; empty if nothing does."""
    if tuple(volume.data.shape) != tuple(expected.shape):
        return f"shape is {tuple(volume.data.shape)}, must be {tuple(expected.shape)}"
    affine = volume.grid.affine.numpy()
    smallest = np.linalg.norm(expected.affine[:3, :3], axis=0).min()
    last = np.array(expected.shape[1:]) - 1.0
    corners = np.array([[*(last * (n >> np.arange(3) & 1)), 1.0] for n in range(8)])
    off = np.abs(corners @ (affine - expected.affine).T).max()
    if not off <= 1e-4 * smallest + 1e-6 * np.abs(expected.affine[:3]).max():
        return f"affine is {affine.tolist()}, must be {expected.affine.tolist()}"
    if expected.values is None:
        return ""
    values, right = volume.data.numpy(), np.reshape(expected.values, expected.shape)
    if values.dtype.kind == "f":
        same = np.isclose(values, right.astype(np.float32), rtol=1e-5, atol=1e-30, equal_nan=True)
    else:
        same = values == np.rint(right)
    if same.all():
        return ""
    where = tuple(int(n) for n in np.argwhere(~same)[0])
    return (
        f"{int((~same).sum())} of {same.size} voxels differ, at {where} it is {values[where]}, must be {right[where]}"
    )


def _implausible(volume: Volume) -> str:
    spacing, origin = volume.grid.spacing_mm, float(volume.grid.origin_mm.abs().max())
    low, high = float(spacing.min()), float(spacing.max())
    if low < _PLAUSIBLE_MM[0] or high > _PLAUSIBLE_MM[1] or origin > _PLAUSIBLE_ORIGIN_MM:
        return f"spacing {spacing.tolist()}, origin {volume.grid.origin_mm.tolist()}"
    return ""
