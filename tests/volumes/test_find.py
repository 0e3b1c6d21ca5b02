"""Which files and folders of a tree are volumes."""

import os
import zipfile
from pathlib import Path

import pytest

from medattn.volumes.find import Source, find_volumes
from tests.volumes.dicom_writing import write_series, write_slice


def tree(root: Path, *names: str) -> Path:
    """A folder with empty files of these names."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def found(root: Path) -> list[str]:
    return [os.path.relpath(source.path, root) for source in find_volumes(root).sources]


def test_volumes_are_found_by_suffix_in_any_case_and_the_rest_is_counted(tmp_path: Path) -> None:
    volumes = ["a.nii", "b.nii.gz", "c.nrrd", "d.nhdr", "e.mha", "f.mhd", "g.hdr", "h.NII.GZ"]
    others = ["notes.txt", "i.nii.bak", "j.png", "k.gz", "nii"]
    tree(tmp_path, *volumes, *others)
    assert found(tmp_path) == volumes
    assert find_volumes(tmp_path).ignored == len(others)


def test_a_tree_is_walked_in_order_files_before_folders(tmp_path: Path) -> None:
    tree(tmp_path, "b/2.nii", "b/1.nii", "b/a/3.nii", "a/4.nii", "c.nii")
    assert found(tmp_path) == ["c.nii", "a/4.nii", "b/1.nii", "b/2.nii", "b/a/3.nii"]


def test_a_file_stands_for_itself_whatever_it_is_called(tmp_path: Path) -> None:
    for name in ("x.nii", "notes.txt", "missing.nii"):
        assert find_volumes(tmp_path / name).sources == [Source(tmp_path / name)]


@pytest.mark.parametrize(
    ("names", "volume"),
    [
        (("x.hdr", "x.img"), "x.hdr"),
        (("x.hdr.gz", "x.img.gz"), "x.hdr.gz"),
        (("x.HDR", "x.img"), "x.HDR"),
        (("x.mhd", "x.raw"), "x.mhd"),
        (("x.mhd", "x.zraw"), "x.mhd"),
        (("x.mhd", "x.img"), "x.mhd"),
        (("x.nhdr", "x.raw.gz"), "x.nhdr"),
        (("x.y.nhdr", "x.y.raw"), "x.y.nhdr"),
    ],
)
def test_a_header_and_its_voxels_are_one_volume(names: tuple[str, str], volume: str, tmp_path: Path) -> None:
    tree(tmp_path, *names)
    assert found(tmp_path) == [volume]
    assert find_volumes(tmp_path).ignored == 0


def test_voxels_without_a_header_of_their_name_are_not_hidden(tmp_path: Path) -> None:
    tree(tmp_path, "x.hdr", "y.img", "y.raw")
    assert found(tmp_path) == ["x.hdr", "y.img"]
    assert find_volumes(tmp_path).ignored == 1


def test_names_that_begin_with_a_dot_are_left_out(tmp_path: Path) -> None:
    tree(tmp_path, "x.nii", "._x.nii", ".git/annex/y.nii")
    assert found(tmp_path) == ["x.nii"]
    assert found(tmp_path / ".git") == ["annex/y.nii"]


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/x.nii")
    tree(tmp_path / "elsewhere", "y.nii")
    (root / "a" / "up").symlink_to(root)
    (root / "again").symlink_to(root / "a")
    (root / "itself").symlink_to(root / "itself")
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (root / "z.nii").symlink_to(tmp_path / "elsewhere" / "y.nii")
    assert found(root) == ["z.nii", "a/x.nii", "link/y.nii"]


def test_a_link_to_a_missing_file_is_a_volume_that_will_be_refused(tmp_path: Path) -> None:
    (tmp_path / "x.nii.gz").symlink_to(tmp_path / "missing")
    assert found(tmp_path) == ["x.nii.gz"]


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert find_volumes(tmp_path).sources == []


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a/x.nii", "b/y.nii")
    list_folder = Path.iterdir

    def listing(folder: Path) -> object:
        if folder.name == "a":
            raise PermissionError(13, "Permission denied")
        return list_folder(folder)

    monkeypatch.setattr(Path, "iterdir", listing)
    assert find_volumes(tmp_path).sources == [
        Source(tmp_path / "a", problem="the folder cannot be listed: Permission denied"),
        Source(tmp_path / "b" / "y.nii"),
    ]


def test_nothing_is_found_in_an_empty_folder(tmp_path: Path) -> None:
    assert find_volumes(tmp_path).sources == []
    assert find_volumes(tmp_path).ignored == 0


# -- DICOM ---------------------------------------------------------------------------------------------


def series_at(folder: Path, uid: str, count: int, **options: object) -> tuple[Path, ...]:
    """The files of a series of so many slices."""
    return tuple(write_series(folder, range(count), SeriesInstanceUID=uid, **options))


def zipped(archive: Path, *files: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as target:
        for number, file in enumerate(files):
            target.write(file, f"inside/{number}")
    return archive


def test_dicom_files_of_a_folder_are_grouped_by_series_whatever_their_names(tmp_path: Path) -> None:
    for uid in ("1.1", "1.2"):
        for number, path in enumerate(series_at(tmp_path / "x", uid, 3)):
            path.rename(tmp_path / f"IM{number}{uid[-1]}")  # IM01, IM02, IM11, ...
    contours = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.481.3", "PixelData": None, "Rows": None, "Columns": None}
    write_slice(tmp_path / "structures", [[1, 2]], (0, 0, 0), **contours)
    tree(tmp_path, "DICOMDIR", "notes.txt", "y.nii")
    first, second = (tuple(tmp_path / f"IM{number}{n}" for number in range(3)) for n in (1, 2))
    assert find_volumes(tmp_path).sources == [
        Source(tmp_path / "y.nii"),
        Source(tmp_path, "1.1", first),
        Source(tmp_path, "1.2", second),
    ]
    assert find_volumes(tmp_path).ignored == 3  # the structure set has no pixels


def test_a_series_copied_to_another_folder_is_another_volume(tmp_path: Path) -> None:
    a, b = series_at(tmp_path / "a", "1.1", 2), series_at(tmp_path / "b", "1.1", 2)
    assert find_volumes(tmp_path).sources == [Source(tmp_path / "a", "1.1", a), Source(tmp_path / "b", "1.1", b)]


def test_relative_paths_stay_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series_at(tmp_path / "a", "1.1", 1)
    monkeypatch.chdir(tmp_path)
    assert find_volumes(Path("a")).sources == [Source(Path("a"), "1.1", (Path("a/0.dcm"),))]


def test_files_without_a_series_are_one_series(tmp_path: Path) -> None:
    files = tuple(write_series(tmp_path, [0, 1], SeriesInstanceUID=None))
    assert find_volumes(tmp_path).sources == [Source(tmp_path, "", files)]


def test_a_segmentation_is_to_be_read_as_labels_even_in_the_series_of_its_image(tmp_path: Path) -> None:
    files = series_at(tmp_path, "1.1", 2)
    segmentation = write_slice(
        tmp_path / "labels.dcm", [[1]], (0, 0, 0), SOPClassUID="1.2.840.10008.5.1.4.1.1.66.4", SeriesInstanceUID="1.1"
    )
    assert find_volumes(tmp_path).sources == [
        Source(tmp_path, "1.1", files),
        Source(tmp_path, "1.1", (segmentation,), labels=True),
    ]


def test_a_damaged_dicom_file_is_told_and_the_others_are_found(tmp_path: Path) -> None:
    files = series_at(tmp_path, "1.1", 2)
    (tmp_path / "bad.dcm").write_bytes(b"none")
    (bad, good) = find_volumes(tmp_path).sources
    assert bad == Source(
        tmp_path / "bad.dcm", problem="bad.dcm: there is no SOPClassUID: it is truncated or damaged, or no DICOM file"
    )
    assert good == Source(tmp_path, "1.1", files)


def test_an_archive_is_searched_for_series_by_itself_and_in_a_folder(tmp_path: Path) -> None:
    files = [path for uid in ("1.1", "1.2") for path in series_at(tmp_path / "x" / uid, uid, 2)]
    (tmp_path / "data").mkdir()
    archive = zipped(tmp_path / "data" / "scan.ZIP", *files)
    expected = [Source(archive, "1.1"), Source(archive, "1.2")]
    assert find_volumes(archive).sources == find_volumes(tmp_path / "data").sources == expected
    assert find_volumes(archive).ignored == 0


def test_an_archive_without_series_is_one_ignored_file_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    tree(tmp_path / "x", "1.txt", "2.txt")
    zipped(tmp_path / "text.zip", tmp_path / "x" / "1.txt", tmp_path / "x" / "2.txt")
    (tmp_path / "x.zip").write_bytes(b"PK")
    found_here = find_volumes(tmp_path)
    (damaged,) = found_here.sources
    assert damaged.path == tmp_path / "x.zip" and "truncated or damaged" in damaged.problem
    assert found_here.ignored == 3
    assert find_volumes(tmp_path / "text.zip").sources == []
