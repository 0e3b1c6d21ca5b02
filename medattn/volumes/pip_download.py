"""Download a source distribution with pip, without running its code or installing anything.

``pip download`` always asks a source distribution for its metadata. By default it installs the build requirements for
that and runs the package's ``setup.py``. Here, pip is told to use the build tools of its own environment instead, and
is shown, in place of setuptools, a stand-in that answers from the metadata in the archive (its PKG-INFO file). That
covers packages that are built with setuptools, which a package in the manifest must be.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TAIL_LINES = 8
"""How many of pip's last lines an error repeats."""

_STAND_IN = """
import sys
from pathlib import Path


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = Path(metadata_directory, {dist_info!r})
    folder.mkdir()
    (folder / "METADATA").write_bytes(Path("PKG-INFO").read_bytes())
    return folder.name


__legacy__ = sys.modules[__name__]
"""
_OPTIONS = ("--no-build-isolation", "--use-pep517", "--no-input", "--disable-pip-version-check", "--progress-bar=off")


class PipError(Exception):
    """pip did not deliver; the message ends with the last lines that it printed."""


def pip_arguments(package: str, version: str) -> list[str]:
    """Arguments after ``pip`` that download the source distribution and nothing else."""
    return ["download", "--no-deps", f"--no-binary={package}", f"{package}=={version}"]


def download_sdist(package: str, version: str, folder: Path) -> Path:
    """Download ``package`` into the empty ``folder`` and return the path of the archive.

    Raises:
        PipError: if pip cannot be started, fails, or leaves anything but one file.
    """
    with tempfile.TemporaryDirectory() as stand_in:
        _write_stand_in(Path(stand_in, "setuptools"), package, version)
        command = [sys.executable, "-m", "pip", *pip_arguments(package, version), *_OPTIONS, "-d", str(folder)]
        paths = [stand_in, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        try:
            result = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", check=False
            )
        except OSError as error:
            raise PipError(f"pip could not be started: {error}") from error
    if result.returncode != 0:
        lines = (result.stdout + result.stderr).strip().splitlines()[-TAIL_LINES:]
        raise PipError("\n  ".join([f"pip failed with exit status {result.returncode}; its last lines:", *lines]))
    files = sorted(folder.iterdir())
    if len(files) != 1:
        raise PipError(f"pip was to leave one archive, got {[file.name for file in files]}")
    return files[0]


def _write_stand_in(module: Path, package: str, version: str) -> None:
    module.mkdir()
    (module / "__init__.py").touch()
    dist_info = f"{package.replace('-', '_')}-{version}.dist-info"
    (module / "build_meta.py").write_text(_STAND_IN.format(dist_info=dist_info), encoding="utf-8")
