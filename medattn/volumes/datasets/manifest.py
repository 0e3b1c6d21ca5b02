"""What can be fetched: the packages of ``manifest.json``, beside this file, and the datasets inside them."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

MANIFEST = files("medattn.volumes.datasets").joinpath("manifest.json")


@dataclass(frozen=True)
class DataFile:
    """A file of known content; ``path`` is where it lies: in an archive, or under its folder in the cache."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Package:
    """One version of a package of a registry, and the archive in which it comes.

    ``licence`` is the one that the package states for itself, ``data_licence`` what it says of the data.
    """

    registry: str
    kind: str
    name: str
    version: str
    archive: DataFile
    licence: str
    data_licence: str
    source: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Dataset:
    """What one name stands for: the files that make it up, and the one of them, or their folder, to open."""

    name: str
    description: str
    package: Package
    files: tuple[DataFile, ...]
    opens: str

    @property
    def bytes(self) -> int:
        """Size of all its files together."""
        return sum(file.bytes for file in self.files)

    @property
    def path(self) -> Path:
        """What to open, a file or a folder, in the cache; it need not be there yet."""
        return cached_path(self.package, self.opens)

    @property
    def is_cached(self) -> bool:
        """Whether every file is there and has its size (``fetch`` checks more: their content)."""
        paths = [(cached_path(self.package, file.path), file.bytes) for file in self.files]
        return all(path.is_file() and path.stat().st_size == size for path, size in paths)


def manifest() -> dict[str, Dataset]:
    """Everything that can be fetched, by name, in the order of the manifest."""
    packages = json.loads(MANIFEST.read_text(encoding="utf-8"))
    return {dataset.name: dataset for entry in packages for dataset in _datasets(entry)}


def _datasets(entry: dict[str, Any]) -> Iterator[Dataset]:
    package = Package(
        entry["registry"],
        entry["kind"],
        entry["package"],
        entry["version"],
        DataFile(*entry["archive"]),
        entry["licence"],
        entry["data_licence"],
        entry["source"],
    )
    for item in entry["datasets"]:
        members = tuple(DataFile(entry["root"] + path, size, sha256) for path, size, sha256 in item["files"])
        opens = entry["root"] + item["opens"] if "opens" in item else members[0].path
        yield Dataset(item["name"], item["description"], package, members, opens)


def find_dataset(name: str) -> Dataset:
    """The dataset of this name.

    Raises:
        ValueError: for a name that the manifest does not have; it says which names are near.
    """
    known = manifest()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=5)
        hint = f" (did you mean {', '.join(near)}?)" if near else ""
        raise ValueError(f"there is no dataset {name!r}{hint}; 'python -m medattn data list' lists them all")
    return known[name]


def cache_dir() -> Path:
    """Folder of fetched files: ``$MEDATTN_CACHE``, else ``$XDG_CACHE_HOME/medattn``, else ``~/.cache/medattn``."""
    own, shared = os.environ.get("MEDATTN_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own).expanduser().absolute()
    return (Path(shared).expanduser() if shared else Path.home() / ".cache").absolute() / "medattn"


def cached_path(package: Package, path: str) -> Path:
    """Where a member is kept; those of a source distribution lie under its name and version already."""
    return cache_dir() / path if package.kind == "sdist" else cache_dir() / f"{package.name}-{package.version}" / path
