"""The manifest itself, what is written about it, and the demo's files where they have been fetched."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path, PurePosixPath

import pytest

from medattn.volumes import check_same_grid, fetch, load_volume
from medattn.volumes.datasets.manifest import MANIFEST, Package, cache_dir, cached_path, manifest

ROOT = Path(__file__).parents[2]
DATASETS = manifest()
PACKAGES = list(dict.fromkeys(dataset.package for dataset in DATASETS.values()))
ENDINGS = {"sdist": ".tar.gz", "wheel": "-py3-none-any.whl", "tgz": ".tgz", "deb": "_all.deb"}
REGISTRIES = {"sdist": "pypi", "wheel": "pypi", "tgz": "npm", "deb": "debian"}


def test_names_are_unique_and_plain() -> None:
    names = [item["name"] for entry in json.loads(MANIFEST.read_text(encoding="utf-8")) for item in entry["datasets"]]
    assert len(names) == len(set(names)) == len(DATASETS)
    assert [name for name in names if not re.fullmatch(r"[a-z][a-z0-9_]*", name)] == []
    assert {"totalsegmentator_ct", "totalsegmentator_labels"} <= set(names)


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_package_says_where_it_is_from_and_on_what_terms(package: Package) -> None:
    assert package.registry == REGISTRIES[package.kind]
    assert package.archive.path.endswith(ENDINGS[package.kind]) or package.name == "dipy"
    assert package.version in package.archive.path
    assert "/" not in package.archive.path
    assert package.licence and package.data_licence
    assert package.source.startswith("https://")


def test_files_have_a_size_and_a_checksum() -> None:
    files = [file for dataset in DATASETS.values() for file in dataset.files]
    for file in [*files, *(package.archive for package in PACKAGES)]:
        assert file.bytes > 0
        assert re.fullmatch("[0-9a-f]{64}", file.sha256), file.path
    assert len({package.archive.path for package in PACKAGES}) == len(PACKAGES)


def test_files_lie_below_their_own_place_in_the_cache() -> None:
    places = list[Path]()
    for dataset in DATASETS.values():
        for file in dataset.files:
            path = PurePosixPath(file.path)
            assert not path.is_absolute() and ".." not in path.parts and str(path) == file.path
            places.append(cached_path(dataset.package, file.path).relative_to(cache_dir()))
    assert len(places) == len(set(places))
    assert {place.parts[0] for place in places}.isdisjoint({"archives", "acquisitions"})


def test_what_is_opened_is_the_first_file_or_the_folder_of_all() -> None:
    for dataset in DATASETS.values():
        folders = {str(PurePosixPath(file.path).parent) for file in dataset.files}
        assert dataset.opens == dataset.files[0].path or {dataset.opens} == folders


def test_a_folder_holds_one_dataset_alone() -> None:
    for dataset in DATASETS.values():
        if dataset.opens == dataset.files[0].path:
            continue
        others = [d for d in DATASETS.values() if d.package == dataset.package and d is not dataset]
        assert [f.path for d in others for f in d.files if f.path.startswith(f"{dataset.opens}/")] == []


def test_the_readme_of_data_has_a_row_for_each_package_with_its_terms() -> None:
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    for package in PACKAGES:
        start = f"| [{package.name}]({package.source}) {package.version}, "
        rows = [line for line in text.splitlines() if line.startswith(start)]
        assert len(rows) == 1, start
        assert rows[0].endswith(f"| {package.licence} | {package.data_licence} |")
        assert f"| {sum(dataset.package == package for dataset in DATASETS.values())} |" in rows[0]


def test_facts_of_real_files_are_about_datasets_of_the_manifest() -> None:
    facts = json.loads((ROOT / "tests" / "volumes" / "real_data.json").read_text(encoding="utf-8"))
    assert set(facts) <= set(DATASETS)


def test_the_real_ct_and_its_labels_are_what_they_should_be() -> None:
    missing = [name for name in ("totalsegmentator_ct", "totalsegmentator_labels") if not DATASETS[name].is_cached]
    if missing:
        pytest.skip(f"not in the cache: {', '.join(missing)}; get them with 'python -m medattn data fetch NAME'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = load_volume(fetch("totalsegmentator_ct"))
        labels = load_volume(fetch("totalsegmentator_labels"), labels=True)
    check_same_grid(image, labels)
    assert image.data.shape == (1, 122, 101, 112)
    assert image.grid.spacing_mm.tolist() == pytest.approx([3, 3, 3], abs=1e-5)
    assert image.grid.origin_mm.tolist() == pytest.approx([-177.95633, 11.319, 94.30176], abs=1e-4)
    assert image.grid.axcodes == ("R", "A", "S")
    assert (float(image.data.min()), float(image.data.max())) == (-1207, 3382)
    spans = [(0, 11), (14, 14), (18, 22), (25, 33), (52, 52), (63, 68), (75, 89), (98, 103), (110, 115), (117, 117)]
    assert labels.data.unique().tolist() == [n for low, high in spans for n in range(low, high + 1)]
