"""Downloading a package's archive with its registry's own client: pip, npm or apt, as it is set up on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from medattn.volumes.datasets.manifest import Package
from medattn.volumes.datasets.pip_download import guarded_pip, pip_arguments

TAIL_LINES = 8
"""How many of the client's last lines an error repeats."""
_POLL_SECONDS = 0.1


class DownloadError(Exception):
    """A client did not deliver; the message ends with the last lines that it printed."""


def download_command(package: Package) -> list[str]:
    """What a person types to get the archive into the working directory."""
    return {
        "pypi": ["python", "-m", "pip", *pip_arguments(package)],
        "npm": ["npm", "pack", f"{package.name}@{package.version}"],
        "debian": ["apt-get", "download", f"{package.name}={package.version}"],
    }[package.registry]


def download(package: Package, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Download the archive of ``package`` into the empty ``folder``, without running its code; its path there.

    Args:
        package: what to download.
        folder: also takes the client's temporary files.
        on_bytes: told every now and then how many bytes have arrived.

    Raises:
        DownloadError: if the client cannot be started, fails, or leaves anything but one file.
    """
    temporary, target = folder / "temporary", folder / "archive"
    temporary.mkdir()
    target.mkdir()
    command, environment = _guarded_command(package, folder)
    returncode = _run(command, target, {**os.environ, **environment, "TMPDIR": str(temporary)}, on_bytes)
    if returncode != 0:
        lines = _log(target).read_text(encoding="utf-8", errors="replace").strip().splitlines()[-TAIL_LINES:]
        raise DownloadError(
            "\n  ".join([f"{command[0]} failed with exit status {returncode}; its last lines:", *lines])
        )
    files = sorted(target.iterdir())
    if len(files) != 1:
        raise DownloadError(f"{command[0]} was to leave one archive, got {[file.name for file in files]}")
    return files[0]


def _guarded_command(package: Package, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command that is run, and what it needs in its environment."""
    if package.registry == "pypi":
        return guarded_pip(package, folder)
    command = download_command(package)
    program = shutil.which(command[0])
    if program is None:
        raise DownloadError(f"{command[0]} is not installed here")
    return [program, *command[1:], *(["--ignore-scripts"] if package.registry == "npm" else [])], {}


def _log(target: Path) -> Path:
    return target.parent / "log"


def _run(command: list[str], target: Path, environment: dict[str, str], on_bytes: Callable[[int], None]) -> int:
    """Exit status of ``command``, run in ``target``; it does not outlive an interrupted caller."""
    with _log(target).open("wb") as log:
        try:
            process = subprocess.Popen(
                command, cwd=target, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        except OSError as error:
            raise DownloadError(f"{command[0]} could not be started: {error}") from error
        try:
            while process.poll() is None:
                on_bytes(_size(target.parent))
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
    return process.returncode


def _size(folder: Path) -> int:
    """Bytes of all files in ``folder``; files and folders may vanish meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total
