"""MetaImage files: .mha, and .mhd with the voxels in another file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from medattn.volumes.lps import lps_affine
from medattn.volumes.metaimage.geometry import read_geometry, read_scaling
from medattn.volumes.metaimage.header import Layout, read_header, read_layout
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.saving import storable
from medattn.volumes.stored import ReadOptions, Stored
from medattn.volumes.volume import Volume
from medattn.volumes.voxel_stream import Packing, check_end, open_voxels, pack, read_voxels

_TYPES = {"u1": "MET_UCHAR", "i2": "MET_SHORT", "i4": "MET_INT", "i8": "MET_LONG_LONG", "f4": "MET_FLOAT"}
_SPATIAL = (1, 2, 3)  # of a Layout's axes


def read(path: Path | Sequence[Path], options: ReadOptions) -> Stored:
    """What a MetaImage file stores; components or a fourth axis become the channels.

    Raises:
        VolumeError: if it is no whole file of that kind (see ``read_layout``), or its geometry is unusable (see
            ``read_geometry``).
    """
    assert isinstance(path, Path)
    header = read_header(path)
    layout = read_layout(path, header)
    grid, notes = read_geometry(header, layout.axes[1:4])
    scaling = read_scaling(header)
    scaled = not scaling.is_identity
    with open_voxels(layout.path, layout.packing, layout.offset) as stream:
        values = read_voxels(stream, layout.axes, _SPATIAL, layout.dtype, options, scaled=scaled)
        notes += check_end(stream)
    return Stored(values, grid, scaling, notes + _channels(layout), file_dtype=layout.dtype)


def _channels(layout: Layout) -> list[Note]:
    components, *_, times = layout.axes
    if times > 1:
        message = f"the fourth axis (time, or another series), of length {times}, became the channels"
        return [Note(NoteKind.CHANNELS, message, {"channels": times, "axis": "time"})]
    if components > 1:
        message = f"{components} components of each voxel became the channels"
        return [Note(NoteKind.CHANNELS, message, {"channels": components, "axis": "component"})]
    return []


def write(path: Path, volume: Volume) -> None:
    """Write a MetaImage file with its voxels in it, packed with zlib. A shear is kept, as ITK reads and writes it; a
    volume of unknown orientation gets its spacing only, as it was read, which ITK takes for L, P, S. Channels become
    components. Equal volumes give equal files.

    Raises:
        VolumeError: if the data is complex, or its integers need more than 64 bits with a sign.
    """
    array = storable(volume.data)
    packed = pack(array, Packing.ZLIB)
    fields = {
        "ObjectType": "Image",
        "NDims": "3",
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": "False",
        "CompressedData": "True",
        "CompressedDataSize": str(sum(map(len, packed))),
        **_geometry(volume),
        "DimSize": _joined(array.shape[:3]),
        **_components(array),
        "ElementType": _TYPES[array.dtype.str[1:]],
        "ElementDataFile": "LOCAL",
    }
    header = "".join(f"{name} = {value}\n" for name, value in fields.items())
    with path.open("wb") as file:
        file.writelines([header.encode(), *packed])


def _geometry(volume: Volume) -> dict[str, str]:
    spacing = volume.grid.spacing_mm.numpy()
    if not volume.orientation_known:
        return {"ElementSpacing": _joined(spacing.tolist())}
    affine = lps_affine(volume.grid)
    return {
        "TransformMatrix": _joined((affine[:3, :3] / spacing).T.ravel().tolist()),
        "Offset": _joined(affine[:3, 3].tolist()),
        "ElementSpacing": _joined(spacing.tolist()),
    }


def _components(array: NDArray[Any]) -> dict[str, str]:
    return {"ElementNumberOfChannels": str(array.shape[3])} if array.ndim == 4 else {}


def _joined(values: Iterable[float]) -> str:
    return " ".join(map(repr, values))
