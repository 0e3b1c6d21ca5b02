"""``python -m medattn spectrum PATH...``: which wavelengths of an encoding are of use on these scans."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medattn.cli import INTERRUPTED
from medattn.cli.inspect import progress

if TYPE_CHECKING:
    from medattn.cli.spectrum_report import Refused, Scan
    from medattn.encodings import PositionalEncoding

_DESCRIPTION = """Say which frequencies of a positional encoding do something on the scans in these files and folders,
and which wavelengths to choose. Only headers are read. A band is aliased if its wavelength is shorter than twice the
distance of neighbouring tokens along its direction, dead if it is longer than four fields of view, else useful."""

_EPILOG = """The exit status is 1 if a scan was refused or a path holds none, and 2 for an encoding that cannot be built
or has no frequencies."""

_OPTIONS = {
    "wavelengths_mm": (2, ("SHORTEST", "LONGEST"), "range of the encoding's wavelengths"),
    "reference_spacing_mm": ("+", "MM", "what one voxel counts for in frame index, once or for each axis"),
    "reference_extent_mm": ("+", "MM", "what the field of view counts for in frame fraction, once or for each axis"),
}
"""Options of encodings that are given on: name, how many numbers, what they are called, help."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``spectrum`` with its arguments."""
    parser = subparsers.add_parser(
        "spectrum",
        help="show which wavelengths of an encoding are of use on scans",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file, or a folder to search")
    parser.add_argument("--encoding", default="rotary_axial", metavar="NAME", help="default: rotary_axial")
    parser.add_argument("--frame", default="mm", help="coordinate frame (default: mm)")
    parser.add_argument("--patch-size", nargs="+", type=int, default=[8], metavar="N", help="voxels (default: 8)")
    parser.add_argument("--dim", type=int, default=384, metavar="N", help="token width (default: 384)")
    parser.add_argument("--heads", type=int, default=6, metavar="N", help="attention heads (default: 6)")
    for name, (count, metavar, text) in _OPTIONS.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, nargs=count, type=float, metavar=metavar, help=text)  # type: ignore[arg-type]
    parser.add_argument("--json", action="store_true", help="print every band of every scan, in full precision")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the bands over the scans' ranges (.png or .svg)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Do what the arguments ask for; 0, 1 if a scan was refused or none found, 2 for a bad encoding, 130 on Ctrl-C."""
    from medattn.cli.spectrum_report import Report
    from medattn.volumes.find import LOOKED_FOR

    try:
        encoding = _encoding(arguments)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        scans, refused, empty = _read(arguments.paths)
    except KeyboardInterrupt:
        print("interrupted; no scan was judged", file=sys.stderr)
        return INTERRUPTED
    for path in empty:
        print(f"no volume found in {path}; looked for {LOOKED_FOR}", file=sys.stderr)
    for item in refused:
        print(f"{item.path}: {item.reason}", file=sys.stderr)
    if scans:
        report = Report.of(encoding, scans, refused, _patch_size(arguments), _options(arguments))
        report.print_json() if arguments.json else report.print_text()
        if arguments.plot:
            _plot(report, arguments.plot)
    return int(bool(empty) or bool(refused))


def _encoding(arguments: argparse.Namespace) -> PositionalEncoding:
    """The encoding that the arguments describe.

    Raises:
        ValueError: if it cannot be built, or has no spectrum, or the patch size or the plot's name is of no use.
    """
    import torch

    from medattn.encodings import create_encoding
    from medattn.encodings.spectrum import diagnose_spectrum
    from medattn.geometry import VoxelGrid

    if arguments.plot and arguments.plot.suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"--plot must end in .png or .svg, got {arguments.plot.name!r}")
    size = {"dim": arguments.dim, "num_heads": arguments.heads}
    torch.manual_seed(0)  # of frequencies that are drawn, so that each run judges the same
    encoding = create_encoding(arguments.encoding, **size, frame=arguments.frame, **_options(arguments))
    grid = VoxelGrid.from_spacing((2, 2, 2), 1.0)
    diagnose_spectrum(encoding, [grid], patch_size=_patch_size(arguments))  # refuses what it cannot judge
    return encoding


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(arguments, name) for name in _OPTIONS}
    return {
        name: values[0] if len(values) == 1 else tuple(values) for name, values in given.items() if values is not None
    }


def _patch_size(arguments: argparse.Namespace) -> Any:
    return arguments.patch_size[0] if len(arguments.patch_size) == 1 else arguments.patch_size


def _read(paths: list[Path]) -> tuple[list[Scan], list[Refused], list[Path]]:
    """(scans, those that cannot be read, paths without any)."""
    from medattn.cli.spectrum_report import Refused, Scan
    from medattn.volumes import VolumeError
    from medattn.volumes.find import find_volumes
    from medattn.volumes.grids import read_grid

    scans, refused = list[Scan](), list[Refused]()
    with progress() as bar:
        search = bar.add_task("looking for volumes", total=None)
        found = {path: find_volumes(path).sources for path in paths}
        bar.remove_task(search)
        sources = dict.fromkeys(source for each in found.values() for source in each)
        for source in bar.track(list(sources), description="reading headers"):
            try:
                scans.append(Scan(source.path, read_grid(source)))
            except (VolumeError, OSError, ImportError) as error:
                refused.append(Refused(source.path, str(error)))
    return scans, refused, [path for path, each in found.items() if not each]


def _plot(report: Any, path: Path) -> None:
    try:
        from medattn.cli.spectrum_plot import plot_spectrum
    except ImportError as error:
        raise SystemExit(f"--plot needs matplotlib: pip install 'medattn[studies]' ({error})") from error
    path.write_bytes(plot_spectrum(report, path.suffix.lower()[1:]))
    print(f"drawn in {path}", file=sys.stderr)
