"""From the first bytes of a NIfTI file to how its voxels are stored; geometry is in ``geometry``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from medattn.volumes.errors import VolumeError
from medattn.volumes.gzipped import ByteStream
from medattn.volumes.nifti.geometry import Header
from medattn.volumes.notes import Note, NoteKind
from medattn.volumes.stored import Scaling

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

_HEADER_BYTES = (348, 540)  # NIfTI-1, NIfTI-2; each file starts with this number, which also tells its byte order
_EXTENDER_BYTES = 4
_EOL_CHECK = (13, 10, 26, 10)
_MAX_DIMENSIONS = 7
_MAX_EXTENSION_BYTES = 64 << 20
_VECTORS = {1006: "displacement vectors", 1007: "vectors"}  # intent codes
_TYPES = "datatype must be a NIfTI type of integers or floats, or RGB24, or RGBA32, got"


class Layout(NamedTuple):
    """How voxels lie in a file.

    Attributes:
        header: fields as stored.
        axes: lengths of the array's axes, the first one the fastest: I, J, K, C; for colours C, I, J, K.
        spatial: which of the ``axes`` are I, J, K.
        dtype: of each number.
        offset: bytes before the first one.
    """

    header: Header
    axes: tuple[int, ...]
    spatial: tuple[int, int, int]
    dtype: np.dtype[Any]
    offset: int
    scaling: Scaling
    notes: list[Note]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(I, J, K)."""
        i, j, k = self.spatial
        return self.axes[i], self.axes[j], self.axes[k]


def read_layout(stream: ByteStream, *, pair: bool) -> Layout:
    """Read a header of NIfTI-1 or NIfTI-2, of either byte order, with its extensions, which are checked and left out.

    Args:
        stream: at the start of the file; afterwards at the first voxel, unless the voxels are in another file.
        pair: the voxels are in another file, the .img beside this .hdr.

    Raises:
        VolumeError: if it is no such header, or its shape, type, scaling or offset is none of a volume.
    """
    header = _header(stream, pair=pair)
    shape, channels, notes = _shape(header)
    dtype, colours = _dtype(header)
    if colours:
        if channels > 1:
            raise VolumeError(f"colours must have 3 axes, got shape {(*shape, channels)} of {colours} colours")
        message = f"the {colours} colours of each voxel became the channels"
        notes = [Note(NoteKind.CHANNELS, message, {"channels": colours, "axis": "colour"})]
    axes, spatial = ((colours, *shape), (1, 2, 3)) if colours else ((*shape, channels), (0, 1, 2))
    offset = _offset(header, 0 if pair else header.sizeof_hdr + _EXTENDER_BYTES)
    extensions = stream.read(_MAX_EXTENSION_BYTES + 1 if pair else offset - header.sizeof_hdr)
    if len(extensions) > _MAX_EXTENSION_BYTES:
        raise VolumeError(f"the extensions of a header must be at most {_MAX_EXTENSION_BYTES} bytes, and are more")
    _check_extensions(extensions, "little" if header.endianness == "<" else "big")
    scaling = Scaling() if colours else _scaling(header)  # the format scales no colours
    return Layout(header, axes, spatial, dtype, offset, scaling, notes + _bits(header))


def _header(stream: ByteStream, *, pair: bool) -> Nifti1Header:
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    classes = dict(zip(_HEADER_BYTES, (Nifti1Header, Nifti2Header), strict=True))
    content = stream.read(_HEADER_BYTES[0])
    sizes = {"<": int.from_bytes(content[:4], "little"), ">": int.from_bytes(content[:4], "big")}
    found = [(endianness, size) for endianness, size in sizes.items() if size in classes]
    if found:
        content += stream.read(found[0][1] - len(content))
    if not found or len(content) < found[0][1]:
        raise VolumeError(f"not a NIfTI file: {len(content)} bytes that do not start with a NIfTI header")
    endianness, size = found[0]
    header = classes[size](content, endianness=endianness, check=False)
    _check_magic(header, pair=pair)
    return header


def _check_magic(header: Nifti1Header, *, pair: bool) -> None:
    magic, expected = header["magic"].item(), header.pair_magic if pair else header.single_magic
    if magic in (header.pair_magic, header.single_magic) and magic != expected:
        kinds = ("a single file (.nii)", "half of a pair (.hdr and .img)")
        raise VolumeError(f"magic must be {expected!r} in {kinds[pair]}, got {magic!r}, which is {kinds[not pair]}")
    if magic != expected:
        raise VolumeError(
            f"not a NIfTI file: magic must be {expected!r}, got {magic!r}. Without it this is Analyze 7.5, which holds "
            "no orientation: left and right cannot be told; convert it with a program that knows where it came from"
        )
    if "eol_check" in header and tuple(header["eol_check"]) not in (_EOL_CHECK, (0, 0, 0, 0)):
        got = tuple(header["eol_check"].tolist())
        raise VolumeError(f"eol_check must be {_EOL_CHECK}, got {got}: line ends were converted, the file is damaged")


def _shape(header: Header) -> tuple[tuple[int, int, int], int, list[Note]]:
    """(I, J, K), the number of channels, and what they are; trailing axes of length 1 are dropped."""
    dimensions = int(header["dim"][0])
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise VolumeError(f"dim[0], the number of axes, must be 1 to {_MAX_DIMENSIONS}, got {dimensions}")
    shape = tuple(int(n) for n in header["dim"][1 : dimensions + 1])
    if min(shape) < 1:
        raise VolumeError(f"dim must be positive on every axis, got shape {shape}")
    if len(shape) < 3:
        raise VolumeError(f"a volume must have 3 axes, got shape {shape}")
    times, components, *others = *shape[3:], 1, 1
    if min(times, components) > 1 or any(n > 1 for n in others):
        raise VolumeError(f"after its 3 axes a volume must have time or components, not both, got shape {shape}")
    notes = []
    if times > 1:
        message = f"the fourth axis (time, or another series), of length {times}, became the channels"
        notes.append(Note(NoteKind.CHANNELS, message, {"channels": times, "axis": "time"}))
    if components > 1:
        intent = int(header["intent_code"])
        what = _VECTORS.get(intent, f"intent code {intent}")
        message = f"the fifth axis, {components} components ({what}), became the channels; their numbers are as stored"
        notes.append(Note(NoteKind.CHANNELS, message, {"channels": components, "axis": "component", "intent": intent}))
    return (shape[0], shape[1], shape[2]), times * components, notes


def _dtype(header: Nifti1Header) -> tuple[np.dtype[Any], int]:
    """Type of each number in the file's byte order, and the number of colours of a voxel, 0 if it has none."""
    code = int(header["datatype"])
    try:
        dtype: np.dtype[Any] = header.get_data_dtype()
    except KeyError:
        raise VolumeError(f"{_TYPES} unknown code {code}") from None
    if dtype.names is not None:
        return np.dtype(np.uint8), len(dtype.names)
    if dtype.kind == "c":
        raise VolumeError(f"{_TYPES} complex numbers (code {code}): store their parts, or magnitude, as files of reals")
    if dtype.kind not in "iuf":
        raise VolumeError(f"{_TYPES} code {code} ({dtype})")
    return dtype, 0


def _bits(header: Nifti1Header) -> list[Note]:
    stored, needed = int(header["bitpix"]), 8 * header.get_data_dtype().itemsize
    if stored == needed:
        return []
    message = f"bitpix says {stored} bits a voxel, datatype {int(header['datatype'])} takes {needed}, which is used"
    return [Note(NoteKind.FIELDS_DISAGREE, message, {"bitpix": stored, "datatype_bits": needed})]


def _offset(header: Header, least: int) -> int:
    offset, most = float(header["vox_offset"]), least + _MAX_EXTENSION_BYTES
    if not (least <= offset <= most and offset.is_integer()):
        raise VolumeError(f"vox_offset must be a whole number from {least} to {most}, got {offset}")
    return int(offset)


def _check_extensions(content: bytes, byteorder: str) -> None:
    """``content``: 4 bytes, the first of which is 0 if there are no extensions, then the extensions."""
    at = _EXTENDER_BYTES if content[:1].strip(b"\0") else len(content)
    while at + 8 <= len(content):
        size = int.from_bytes(content[at : at + 4], byteorder, signed=True)  # type: ignore[arg-type]
        if size == 0:  # padding
            return
        if not 8 <= size <= len(content) - at:
            left = len(content) - at
            raise VolumeError(f"a header extension says it has {size} bytes, but must have 8 to {left}, which are left")
        at += size


def _scaling(header: Header) -> Scaling:
    slope, inter = float(header["scl_slope"]), float(header["scl_inter"])
    if slope == 0 or not math.isfinite(slope):  # the format's way to say: not scaled
        return Scaling(1.0, 0.0)
    if not math.isfinite(inter):
        raise VolumeError(f"scl_inter must be finite where scl_slope is set, got {inter} with slope {slope}")
    return Scaling(slope, inter)
