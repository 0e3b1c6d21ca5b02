"""Download an archive with pip, without running its code or installing anything.

``pip download`` always asks a source distribution for its metadata. By default it installs the build requirements for
that and runs the package's ``setup.py``. Here, pip is told to use the build tools of its own environment instead, and
is shown, in place of setuptools, a stand-in that answers from the metadata in the archive (its PKG-INFO file). That
covers packages that are built with setuptools, which a source distribution in the manifest must be. pip checks the
archive's SHA-256 before it looks inside.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import metadata
from pathlib import Path

from medattn.volumes.datasets.manifest import Package

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
_WHEEL = ("--only-binary=:all:", "--platform=manylinux2014_x86_64", "--python-version=3.11")
"""The same wheel on every machine: it is opened as an archive, and need not run here."""
_OPTIONS = ("--no-build-isolation", "--use-pep517", "--no-input", "--disable-pip-version-check", "--progress-bar=off")


def pip_arguments(package: Package) -> list[str]:
    """Arguments after ``pip`` that download the archive, and nothing else, into the working directory."""
    kind = _WHEEL if package.kind == "wheel" else (f"--no-binary={package.name}",)
    return ["download", "--no-deps", *kind, f"{package.name}=={package.version}"]


def guarded_pip(package: Package, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The same as a command that runs no code of the package, and the environment for it; ``folder`` is for its files.

    The pin moves into a requirements file, which is where pip takes hashes from.
    """
    stand_in, requirements = folder / "stand_in", folder / "requirements.txt"
    _write_stand_in(stand_in / "setuptools", package)
    *arguments, pin = pip_arguments(package)
    requirements.write_text(f"{pin} --hash=sha256:{package.archive.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", *arguments, *_OPTIONS, *_resuming(), "-r", str(requirements)]
    paths = [str(stand_in), *filter(None, [os.environ.get("PYTHONPATH")])]
    return command, {"PYTHONPATH": os.pathsep.join(paths)}


def _resuming() -> list[str]:
    """Options that let pip continue a broken download, which it can from 25.1 on."""
    try:
        version = re.match(r"(\d+)\.(\d+)", metadata.version("pip"))
    except metadata.PackageNotFoundError:
        return []  # starting pip will say so
    return ["--resume-retries=5"] if version and (int(version[1]), int(version[2])) >= (25, 1) else []


def _write_stand_in(module: Path, package: Package) -> None:
    module.mkdir(parents=True)
    (module / "__init__.py").touch()
    dist_info = f"{package.name.replace('-', '_')}-{package.version}.dist-info"
    (module / "build_meta.py").write_text(_STAND_IN.format(dist_info=dist_info), encoding="utf-8")
