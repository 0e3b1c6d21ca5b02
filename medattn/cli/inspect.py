"""``python -m medattn inspect PATH...``: what is in volumes, what was assumed in reading them, and what disagrees."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from medattn.cli import INTERRUPTED

if TYPE_CHECKING:
    from rich.progress import Progress

_DESCRIPTION = """Read volumes and say what is in them: shape, spacing, orientation, obliquity, extent and range of
values, what had to be assumed because the file leaves it open, and what disagrees. Folders are searched for NIfTI,
NRRD, MetaImage and DICOM. One volume is shown in detail, several as a table."""

_EPILOG = """In the table, "axes" are the anatomical directions nearest to the array axes i, j, k, and "deg" is the
largest angle between an array axis and its direction. The exit status is 1 if a volume was refused or a path holds
none."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``inspect`` with its arguments."""
    parser = subparsers.add_parser(
        "inspect", help="show what volumes hold and what is odd about them", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file, or a folder to search")
    parser.add_argument("--labels", action="store_true", help="read label maps, not images")
    parser.add_argument("--strict", action="store_true", help="refuse volumes that leave anything to be assumed")
    parser.add_argument("--json", action="store_true", help="print all that is known, in full precision")


def run(arguments: argparse.Namespace) -> int:
    """Do what the arguments ask for; 0, or 1 if a volume was refused or none found, 130 after Ctrl-C."""
    from medattn.cli.inspect_report import report
    from medattn.cli.inspection import Inspected, inspect_source
    from medattn.volumes.find import LOOKED_FOR, Found, find_volumes

    found, inspected, interrupted = dict[Path, Found](), list[Inspected](), False
    try:
        with progress() as bar:
            search = bar.add_task("looking for volumes", total=None)
            for path in arguments.paths:
                found[path] = find_volumes(path)
            bar.remove_task(search)
            sources = dict.fromkeys(source for each in found.values() for source in each.sources)
            for source in bar.track(list(sources), description="reading"):
                inspected.append(inspect_source(source, labels=arguments.labels, strict=arguments.strict))
    except KeyboardInterrupt:
        interrupted = True
    report(inspected, sum(each.ignored for each in found.values()), arguments.json)
    empty = [path for path, each in found.items() if not each.sources]
    for path in empty:
        print(f"no volume found in {path}; looked for {LOOKED_FOR}", file=sys.stderr)
    if interrupted:
        print("interrupted; what comes after these volumes was not read", file=sys.stderr)
        return INTERRUPTED
    return int(bool(empty) or any(item.summary is None for item in inspected))


def progress() -> Progress:
    """A bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
