"""Loading 256 x 256 x 150 int16 to float32, in every format, beside the peers that read it; and saving .nii.gz.

The volume is like a CT: noise on a smooth field inside a body, constant outside; 8 MiB as .nii.gz. MONAI reads NRRD and
MetaImage only with packages that are not among the project's, so it is left out there. TorchIO runs if it is installed.

python benchmarks/loading.py [--csv benchmarks/loading.csv]
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import SimpleITK as sitk
import torch
import torch.nn.functional as F
from monai.transforms import LoadImage
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid
from timing import arguments, compare, save, show

from medattn import VoxelGrid
from medattn.volumes import Volume, load_volume, save_volume

SHAPE, SPACING = (256, 256, 150), (0.8, 0.8, 1.5)
NIFTI = ("ct.nii", "ct.nii.gz")
OTHERS = ("ct.nrrd", "packed.nrrd", "ct.mha", "packed.mha", "dicom")


def main() -> None:
    options, rows = arguments("Loading speed beside peers.", threads=1), []
    warnings.simplefilter("ignore")  # the peers'
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder), voxels())
        for threads in sorted({options.threads, 2}):
            torch.set_num_threads(threads)
            sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(threads)
            for path in paths:
                unit = "nibabel float32" if path.name in NIFTI else "SimpleITK"
                show(f"load {path.name}, threads {threads}", compare(readers(path), options.rounds), unit, rows)
            unit = "nibabel"
            show(f"save .nii.gz, threads {threads}", compare(writers(Path(folder)), options.rounds), unit, rows)
    save(options.csv, rows)


def voxels() -> Any:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(1, 1, 8, 8, 6, generator=generator)
    smooth = F.interpolate(coarse, size=SHAPE, mode="trilinear")[0, 0]
    values = 100 * smooth + 40 * torch.randn(SHAPE, generator=generator)
    x, y = torch.meshgrid(torch.linspace(-1, 1, SHAPE[0]), torch.linspace(-1, 1, SHAPE[1]), indexing="ij")
    values[x**2 + (y / 0.9) ** 2 > 0.9] = -1024
    return values.round().numpy().astype(np.int16)


def write_files(folder: Path, array: Any) -> list[Path]:
    """Each file in a folder of its own: asked for x.nii.gz, SimpleITK reads an x.nii that lies beside it."""
    image = sitk.GetImageFromArray(np.ascontiguousarray(array.T))
    image.SetSpacing(SPACING)
    paths = [folder / name.replace(".", "_") / name for name in (*NIFTI, *OTHERS)]
    for path in paths:
        path.parent.mkdir()
        if path.name == "dicom":
            write_series(path, array)
        elif path.name in NIFTI:
            nibabel.save(nibabel.Nifti1Image(array, np.diag([*SPACING, 1.0])), path)
        else:
            sitk.WriteImage(image, str(path), useCompression=path.stem == "packed")
    return paths


def write_series(folder: Path, array: Any) -> None:
    folder.mkdir()
    series = {"StudyInstanceUID": generate_uid(), "SeriesInstanceUID": generate_uid(), "Modality": "CT"}
    layout = {"Rows": SHAPE[1], "Columns": SHAPE[0], "SamplesPerPixel": 1, "PhotometricInterpretation": "MONOCHROME2"}
    bits = {"BitsAllocated": 16, "BitsStored": 16, "HighBit": 15, "PixelRepresentation": 1}
    scale = {"RescaleSlope": 1, "RescaleIntercept": 0}
    places = {"PixelSpacing": [SPACING[1], SPACING[0]], "ImageOrientationPatient": [1, 0, 0, 0, 1, 0]}
    for number in range(SHAPE[2]):
        item = Dataset()
        item.SOPClassUID, item.SOPInstanceUID = CTImageStorage, generate_uid()
        item.update({**series, **layout, **bits, **scale, **places, "InstanceNumber": number + 1})
        item.ImagePositionPatient = [0, 0, SPACING[2] * number]
        item.PixelData = array[:, :, number].T.tobytes()
        item.file_meta = FileMetaDataset()
        item.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        item.save_as(folder / f"{number:03}.dcm", enforce_file_format=True)


def readers(path: Path) -> dict[str, Callable[[], object]]:
    candidates: dict[str, Callable[[], object]] = {"medattn": partial(load_volume, path)}
    if path.name in NIFTI:
        candidates["nibabel float32"] = lambda: nibabel.load(path).get_fdata(dtype=np.float32)
    if path.name.endswith(".nii.gz"):  # of a .nii this would only map the file
        candidates["nibabel as stored"] = lambda: np.asanyarray(nibabel.load(path).dataobj)
    candidates["SimpleITK"] = partial(read_itk, path)
    if path.name not in OTHERS or path.is_dir():
        loader = LoadImage(image_only=True, reader="PydicomReader" if path.is_dir() else "NibabelReader")
        candidates["MONAI"] = partial(loader, path)
    if find_spec("torchio"):
        import torchio

        candidates["TorchIO"] = lambda: torchio.ScalarImage(path).data.float()
    return candidates


def read_itk(path: Path) -> Any:
    if path.is_dir():
        image = sitk.ReadImage(sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(path)))
    else:
        image = sitk.ReadImage(str(path))
    return sitk.GetArrayViewFromImage(image).astype(np.float32)


def writers(folder: Path) -> dict[str, Callable[[], object]]:
    array = voxels()
    volume = Volume(torch.from_numpy(np.asfortranarray(array))[None], VoxelGrid.from_spacing(SHAPE, SPACING))
    image = sitk.GetImageFromArray(np.ascontiguousarray(array.T))
    target = folder / "saved.nii.gz"
    return {
        "medattn": partial(save_volume, target, volume),
        "nibabel": lambda: nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), target),
        "SimpleITK": partial(sitk.WriteImage, image, str(target), useCompression=True),
    }


if __name__ == "__main__":
    main()
