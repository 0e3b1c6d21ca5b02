"""The sample files inside pydicom: each is loaded with what its header says, or refused with the right reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from medattn.volumes import NoteKind, VolumeError, load_volume

pydicom = pytest.importorskip("pydicom")

FILES = Path(pydicom.__file__).parent / "data" / "test_files"
FOLDERS = FILES / "dicomdirtests"


def sample(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"this version of pydicom has no {path.name}")
    return path


@pytest.mark.filterwarnings("ignore::medattn.volumes.VolumeWarning")
@pytest.mark.parametrize(
    "name",
    [
        "CT_small",
        "MR_small",
        "MR_small_implicit",
        "MR_small_bigendian",
        "MR_small_expb",
        "MR_small_RLE",
        "MR_small_jp2klossless",
        "MR_small_jpeg_ls_lossless",
        "693_J2KI",
        "J2K_pixelrep_mismatch",
        "examples_overlay",
    ],
)
def test_one_slice(name: str) -> None:
    path = sample(FILES / f"{name}.dcm")
    dataset = pydicom.dcmread(path)
    volume = load_volume(path)
    slope, inter = float(dataset.get("RescaleSlope", 1)), float(dataset.get("RescaleIntercept", 0))
    expected = (dataset.pixel_array.astype(float) * slope + inter).T[None, :, :, None]
    np.testing.assert_array_equal(volume.data.numpy(), expected.astype(np.float32))
    spacing = [dataset.PixelSpacing[1], dataset.PixelSpacing[0], dataset.SliceThickness]
    np.testing.assert_allclose(volume.grid.spacing_mm.numpy(), np.array(spacing, float), atol=1e-9)
    origin = np.array(dataset.ImagePositionPatient, float) * [-1, -1, 1]
    np.testing.assert_allclose(volume.grid.origin_mm.numpy(), origin, atol=1e-9)
    assert NoteKind.THICKNESS_ASSUMED in {note.kind for note in volume.notes}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("MR_truncated", "PixelData is truncated: of 8192 bytes, the file holds 8130"),
        ("MR_small_padded", "PixelData must hold 8192 bytes .* but its length is 8320"),  # or 65 rows, for all we know
        ("SC_rgb_jpeg", "ImagePositionPatient is missing, so this Secondary Capture Image Storage has no place"),
        ("SC_rgb_rle_2frame", "its 2 frames have no positions"),
        ("SC_rgb_small_odd_big_endian", "has no place in space"),
        ("examples_ybr_color", "its 30 frames have no positions .* Ultrasound Multi-frame Image Storage is no volume"),
        ("examples_palette", "PhotometricInterpretation must be .* got 'PALETTE COLOR'"),
        ("rtdose", r"must be a DICOM image, got rtdose\.dcm \(RT Dose Storage\)"),
        ("rtplan", r"must be a DICOM image, got rtplan\.dcm \(RT Plan Storage\)"),
        ("reportsi", r"must be a DICOM image, got reportsi\.dcm \(Basic Text SR Storage\)"),
        ("waveform_ecg", "12-lead ECG Waveform Storage"),
        ("priv_SQ", "there is no SOPClassUID"),
    ],
)
def test_what_is_no_volume_is_refused(name: str, reason: str) -> None:
    with pytest.raises(VolumeError, match=reason):
        load_volume(sample(FILES / f"{name}.dcm"))


def test_a_series_of_five_slices() -> None:
    volume = load_volume(sample(FOLDERS / "98892001" / "CT5N"), strict=True)
    assert volume.data.shape == (1, 16, 16, 5)
    expected = [[-0.488281, 0, 0, 72.199997], [0, -0.488281, 0, 143], [0, 0, 2.5, -1.2375], [0, 0, 0, 1]]
    np.testing.assert_allclose(volume.grid.affine.numpy(), np.array(expected, float), atol=1e-9)


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("77654033/CT2", r"slices are missing: most are 1\.25 mm apart, but there are 202\.5 mm between 17106"),
        ("98892001/CT2N", "all slices must have one ImageOrientationPatient"),
        ("98892003/MR700", "all slices must have one ImageOrientationPatient"),
        ("98892003/MR1", r"several series lie here, .* \(MR, 'FAST LOCALIZER', 1 slice\)"),
        ("TINY_ALPHA", "IM000000: it is truncated or damaged: it ends before its pixels"),
    ],
)
def test_what_is_no_series_is_refused(folder: str, reason: str) -> None:
    with pytest.raises(VolumeError, match=reason):
        load_volume(sample(FOLDERS / folder))
