"""``docs/encodings.md`` out of the entries: a table of all, then a section for each."""

from __future__ import annotations

from collections.abc import Sequence

from medattn.attention.cost import layer_macs
from medattn.catalogue.entry import DIM, FFN_RATIO, HEADS, KINDS, TOKENS, Entry
from medattn.catalogue.kernels import EXTENT_MM, PATCH
from medattn.coordinates import Frame

UNITS = {
    Frame.SEQUENCE: "tokens",
    Frame.INDEX: "voxels",
    Frame.FRACTION: "fields of view",
    Frame.MM: "mm",
    Frame.PATIENT_MM: "mm",
    Frame.SCANNER_MM: "mm",
}
"""What the coordinates of each frame count."""

FIGURE = "figures/encoding_kernels.png"
"""From the page."""

_LAYER_MACS = layer_macs(TOKENS, DIM, FFN_RATIO * DIM).total

_HEAD = f"""<!-- Written by scripts/make_encoding_docs.py from what the code declares: change that, and run it. -->

# Encodings

An encoding turns where tokens are into a signal. Where they are is told in a frame; every encoding runs in every frame
in which it is defined. All lengths are given in mm, in each frame: where coordinates count voxels, fractions or tokens,
they are first multiplied by a reference (`reference_spacing_mm`, `reference_extent_mm`, `reference_step_mm`), so that
at the reference all frames compute the same function from the same parameters.

In formulas, x and y are the places of a query and a memory, q and k their vectors in a head of width d, z a token, s a
logit. Parameters and costs are those of {DIM} channels, {HEADS} heads and {TOKENS} tokens with default options. Without
positions a layer of that size does {_LAYER_MACS / 1e9:.2f} G multiply-accumulates (feed-forward network {FFN_RATIO}
times as wide as a token); costs count matrix products and convolutions.

An invariance is something done to all places that changes no logit between tokens of equal content. The tests check
that those which are listed hold, and that all others do not.

`python -m medattn spectrum scans/` says which wavelengths are of use on your scans.
"""

_GALLERY = f"""
## What they do to a logit

![Mean logit against displacement for each encoding]({FIGURE})

The mean logit between the token in the middle and those before and behind it along one axis, less what it is without
positions: over all contents, the same at both places, with identity projections, as initialised, mean of the heads. Two
acquisitions of one field of view of {EXTENT_MM:g} mm: slices of 1 mm (tokens {PATCH} mm apart) and of 5 mm
({5 * PATCH} mm apart). The reference is 1 mm, so both frames agree on the first; on the second, an index arm sees
everything five times nearer. In the mm frame the two agree where both have tokens, unless the encoding knows how large
a patch is (`rotary_extent`). What is linear in the query (`relative_decomposed`) is 0 in the mean.
"""


def encodings_page(entries: Sequence[Entry]) -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_summary(entries), _GALLERY, *map(_section, entries)]).rstrip() + "\n"


def summary_rows(entries: Sequence[Entry]) -> list[list[str]]:
    """Name, what it does, frames, invariances, parameters: for the page and the README."""
    return [
        [f"`{entry.name}`", _kinds(entry), _frames(entry), _main_invariances(entry), f"{entry.parameters:,}"]
        for entry in entries
    ]


def _summary(entries: Sequence[Entry]) -> list[str]:
    title = ["encoding", "what it does", "frames", "invariant to", "parameters"]
    rows = [[f"[{row[0]}](#{entry.name})", *row[1:]] for entry, row in zip(entries, summary_rows(entries), strict=True)]
    return [_row(title), "| --- | --- | --- | --- | ---: |", *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _kinds(entry: Entry) -> str:
    return ", ".join(KINDS[kind] for kind in entry.kinds) or "nothing"


def _frames(entry: Entry) -> str:
    if len(entry.invariances) == len(Frame):
        return "all"
    return ", ".join(f"`{frame}`" for frame in entry.invariances)


def _main_invariances(entry: Entry) -> str:
    return ", ".join(entry.invariances[entry.frame]) or "-"


def _section(entry: Entry) -> str:
    about = entry.cls.about
    lines = [f"## {entry.name}", "", "```math", about.formula, "```", "", entry.prose, "", about.when, ""]
    facts = {
        "What it does": _kinds(entry),
        "Frames": _frames_with_units(entry),
        "Invariant to": _all_invariances(entry),
        "Parameters": f"{entry.parameters:,}",
        "Cost": _cost(entry),
        "Source": about.source,
    }
    lines += [f"- **{name}:** {text}" for name, text in facts.items() if text]
    if entry.example:
        lines += [f"- **As described here:** `{dict(entry.example)!r}`"]
    if entry.options:
        lines += ["", "| option | default | meaning |", "| --- | --- | --- |"]
        lines += [_row([f"`{o.name}`", f"`{o.default}`", o.text]) for o in entry.options]
    return "\n".join([*lines, ""])


def _frames_with_units(entry: Entry) -> str:
    units: dict[str, list[str]] = {}
    for frame in entry.invariances:
        units.setdefault(UNITS[frame], []).append(f"`{frame}`")
    told = ", ".join(f"{', '.join(frames)} ({unit})" for unit, frames in units.items())
    return f"{told}; {entry.cls.why_undefined}" if len(entry.invariances) < len(Frame) else told


def _all_invariances(entry: Entry) -> str:
    """Once if all frames agree, otherwise frame by frame."""
    sets: dict[tuple[str, ...], list[str]] = {}
    for frame, invariances in entry.invariances.items():
        sets.setdefault(tuple(i.value for i in invariances), []).append(f"`{frame}`")
    told = {", ".join(invariances) or "nothing": frames for invariances, frames in sets.items()}
    if len(told) == 1:
        return next(iter(told))
    return "; ".join(f"{invariances} in {', '.join(frames)}" for invariances, frames in told.items())


def _cost(entry: Entry) -> str:
    once = f"{entry.signal_macs / 1e6:,.1f} M multiply-accumulates once" if entry.signal_macs else ""
    each = (
        f"{entry.layer_macs / 1e6:,.1f} M in each layer ({100 * entry.layer_share:.1f} %)" if entry.layer_macs else ""
    )
    return ", ".join(filter(None, [once, each])) or "no matrix product"
