"""Inspecting volumes one by one, and comparing the grids of those that may belong together."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from medattn.volumes import VolumeError, VolumeWarning, load_volume
from medattn.volumes.find import Source
from medattn.volumes.summary import VolumeSummary, summarize
from medattn.volumes.volume import grid_differences


@dataclass(frozen=True)
class Inspected:
    """A volume that was read, with its ``summary``, or refused, with the ``reason``."""

    source: Source
    summary: VolumeSummary | None
    reason: str = ""


class OtherGrid(NamedTuple):
    """Two volumes of one folder with one shape but different grids; ``fields`` says which fields, with both values."""

    first: Inspected
    second: Inspected
    fields: str


def inspect_source(source: Source, *, labels: bool, strict: bool) -> Inspected:
    """Read one volume with these options of ``load_volume``; only its summary is kept."""
    if source.problem:
        return Inspected(source, None, source.problem)
    what, series, labels = source.files or source.path, source.series or None, labels or source.labels
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VolumeWarning)  # the summary has them as notes
            summary = summarize(load_volume(what, labels=labels, strict=strict, series=series))
    except (VolumeError, OSError, ImportError) as error:
        reason = str(error).removeprefix(f"{len(source.files)} files: ").removeprefix(f"{source.path}: ")
        return Inspected(source, None, _without_folder(source, reason))
    notes = tuple(replace(note, message=_without_folder(source, note.message)) for note in summary.notes)
    return Inspected(source, replace(summary, notes=notes))


def _without_folder(source: Source, text: str) -> str:
    """``text`` with the files of a series by their names alone."""
    return text.replace(f"{source.path}{os.sep}", "") if source.files else text


def other_grids(inspected: Sequence[Inspected]) -> list[OtherGrid]:
    """Volumes whose grid is not that of the first volume with the same shape in their folder."""
    firsts: dict[tuple[Path, tuple[int, ...]], Inspected] = {}
    different = []
    for item in inspected:
        if item.summary is None:
            continue
        first = firsts.setdefault((item.source.folder, item.summary.grid.shape), item)
        assert first.summary is not None
        fields = grid_differences(first.summary.grid, item.summary.grid)
        if fields:
            different.append(OtherGrid(first, item, fields))
    return different


def as_json(inspected: Sequence[Inspected]) -> list[dict[str, Any]]:
    """One dict for each volume, of what JSON knows."""
    grids = {id(pair.second): pair for pair in other_grids(inspected)}
    return [_record(item, grids.get(id(item))) for item in inspected]


def _record(item: Inspected, pair: OtherGrid | None) -> dict[str, Any]:
    if item.summary is None:
        return {**_name(item.source), "status": "refused", "reason": item.reason}
    other = pair and {**_name(pair.first.source), "fields": pair.fields}
    return {**_name(item.source), "status": "read", **item.summary.to_json(), "other_grid_than": other}


def _name(source: Source) -> dict[str, Any]:
    return {"path": str(source.path), "series": source.series, "files": len(source.files) or 1}
