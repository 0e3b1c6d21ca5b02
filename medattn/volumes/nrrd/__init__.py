"""NRRD files: .nrrd, and .nhdr with the voxels in another file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from medattn.volumes.lps import lps_affine
from medattn.volumes.nrrd.geometry import read_geometry
from medattn.volumes.nrrd.header import read_header, read_layout
from medattn.volumes.saving import storable
from medattn.volumes.stored import ReadOptions, Stored
from medattn.volumes.volume import Volume
from medattn.volumes.voxel_stream import Packing, check_end, open_voxels, pack, read_voxels

_TYPES = {"u1": "unsigned char", "i2": "short", "i4": "int", "i8": "long long int", "f4": "float"}


def read(path: Path | Sequence[Path], options: ReadOptions) -> Stored:
    """What a NRRD file stores; an axis without direction (time, components, colours) becomes the channels.

    Raises:
        VolumeError: if it is no whole file of that kind (see ``read_layout``), or its geometry is unusable (see
            ``read_geometry``).
    """
    assert isinstance(path, Path)
    header = read_header(path)
    layout = read_layout(path, header)
    grid, spatial, notes = read_geometry(header, layout.axes)
    with open_voxels(layout.path, layout.packing, layout.offset) as stream:
        stream.read(layout.skip)
        values = read_voxels(stream, layout.axes, spatial, layout.dtype, options)
        notes += check_end(stream)
    return Stored(values, grid, notes=notes, file_dtype=layout.dtype)


def write(path: Path, volume: Volume) -> None:
    """Write a NRRD file in the frame LPS, packed with gzip. A shear is kept; a volume of unknown orientation gets its
    spacing only, as it was read. Channels are the first axis, of kind vector. Equal volumes give equal files.

    Raises:
        VolumeError: if the data is complex, or its integers need more than 64 bits with a sign.
    """
    array = storable(volume.data)
    channels = list(array.shape[3:])
    fields = {
        "type": _TYPES[array.dtype.str[1:]],
        "dimension": str(3 + len(channels)),
        **({"space": "left-posterior-superior"} if volume.orientation_known else {}),
        "sizes": _joined(map(str, [*channels, *array.shape[:3]])),
        **_geometry(volume, len(channels)),
        "kinds": _joined(["vector"] * len(channels) + ["domain"] * 3),
        "endian": "little",
        "encoding": "gzip",
    }
    header = "".join(f"{name}: {value}\n" for name, value in fields.items())
    with path.open("wb") as file:
        file.writelines([f"NRRD0004\n{header}\n".encode(), *pack(array, Packing.GZIP)])


def _geometry(volume: Volume, other_axes: int) -> dict[str, str]:
    if not volume.orientation_known:
        spacings = ["nan"] * other_axes + [repr(value) for value in volume.grid.spacing_mm.tolist()]
        return {"spacings": _joined(spacings)}
    affine = lps_affine(volume.grid)
    vectors = ["none"] * other_axes + [_vector(affine[:3, axis].tolist()) for axis in range(3)]
    return {"space directions": _joined(vectors), "space origin": _vector(affine[:3, 3].tolist())}


def _vector(values: Iterable[float]) -> str:
    return f"({','.join(map(repr, values))})"


def _joined(values: Iterable[str]) -> str:
    return " ".join(values)
