"""``python -m medattn COMMAND``. Each command is a module here with ``add_parser(subparsers)`` and ``run(arguments)``.

Modules of commands import what is heavy inside ``run``, so that ``--help`` and usage errors come at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = ("inspect", "spectrum", "data")
"""Names of the commands, and of their modules."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (default: the program's arguments) names, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m medattn", description="Tools for volumes and data.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        import_module(f"medattn.cli.{command}").add_parser(subparsers)
    arguments = parser.parse_args(argv)
    try:
        status: int = import_module(f"medattn.cli.{arguments.command}").run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # as in "... | head"; nothing more can be written, not even what is buffered
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status
