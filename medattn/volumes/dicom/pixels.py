"""The pixels of a DICOM file, frame by frame, of any transfer syntax, as they are stored."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from medattn.volumes.dicom.codestream import PLUGINS, Picture, check_picture, compressed_frames
from medattn.volumes.dicom.elements import integer, quiet
from medattn.volumes.dicom.format import PixelFormat, frame_bytes, frame_count
from medattn.volumes.dicom.header import BIG_ENDIAN, NATIVE, Header, PixelElement
from medattn.volumes.errors import VolumeError, library_errors

if TYPE_CHECKING:
    from pydicom.pixels.decoders.base import Decoder


def read_frames(header: Header, form: PixelFormat, numbers: Collection[int]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Number and pixels (see ``PixelFormat.shape``) of those frames of a file, in its order, from 0.

    Values are as stored, without what BitsStored says is no part of them.

    Raises:
        VolumeError: naming the file, if it is truncated or damaged, or cannot be decoded.
    """
    assert header.pixels is not None
    with header.file.errors(), header.file.open() as stream:
        with library_errors("reading PixelData"):
            stream.seek(header.pixels.offset)
        frames = _native if header.syntax in NATIVE else _compressed
        for number, pixels in frames(stream, header, form, numbers):
            yield number, _used_bits(header, pixels)


def _native(
    stream: BinaryIO, header: Header, form: PixelFormat, numbers: Collection[int]
) -> Iterator[tuple[int, NDArray[Any]]]:
    assert header.pixels is not None
    big = header.syntax == BIG_ENDIAN
    swapped = big and header.pixels.vr == "OW" and form.dtype.itemsize == 1
    dtype = form.dtype.newbyteorder("big" if big else "little")
    size, decoder = frame_bytes(header, form), None
    if form.photometric.startswith("YBR"):
        decoder = _decoder(NATIVE[1])
    for number in range(frame_count(header)):
        if number not in numbers:
            continue
        content = _read_swapped(stream, header.pixels, number * size, size, swapped=swapped)
        if decoder is not None:
            yield number, _decoded(decoder, content, header, form)
        else:
            pixels = np.frombuffer(content, dtype).astype(form.dtype, copy=False)
            yield number, _channels_last(pixels, form, planar=integer(header.elements, "PlanarConfiguration") == 1)


def _read_swapped(stream: BinaryIO, pixels: PixelElement, start: int, size: int, *, swapped: bool) -> bytes:
    """``size`` bytes; of big-endian words that hold two 8-bit numbers each, if ``swapped``."""
    odd = start % 2 if swapped else 0
    wanted = size + odd + (size + odd) % 2 if swapped else size
    with library_errors("reading PixelData"):
        stream.seek(pixels.offset + start - odd)
        content = stream.read(wanted)
    if len(content) != wanted:
        raise VolumeError("PixelData is truncated")
    return np.frombuffer(content, np.uint16).byteswap().tobytes()[odd : odd + size] if swapped else content


def _channels_last(pixels: NDArray[Any], form: PixelFormat, *, planar: bool) -> NDArray[Any]:
    if form.samples == 1 or not planar:
        return pixels.reshape(form.shape)
    return np.moveaxis(pixels.reshape(form.samples, form.rows, form.columns), 0, -1)


def _compressed(
    stream: BinaryIO, header: Header, form: PixelFormat, numbers: Collection[int]
) -> Iterator[tuple[int, NDArray[Any]]]:
    from pydicom.encaps import encapsulate

    assert header.pixels is not None
    frames = compressed_frames(stream, header.pixels.available, frame_count(header))
    wanted = Picture(form.rows, form.columns, form.samples, form.dtype.itemsize * 8)
    decoder = _decoder(header.syntax)
    for number in sorted(numbers):
        check_picture(frames[number], header.syntax, wanted)
        yield number, _decoded(decoder, encapsulate([frames[number]], has_bot=False), header, form)


def _decoder(syntax: str) -> Decoder:
    from pydicom.pixels import get_decoder
    from pydicom.uid import UID

    return get_decoder(UID(syntax))


def _decoded(decoder: Decoder, content: bytes, header: Header, form: PixelFormat) -> NDArray[Any]:
    plugin = PLUGINS.get(header.syntax, "")
    bits = form.dtype.itemsize * 8
    options: dict[str, Any] = {
        "pixel_keyword": "PixelData",
        "number_of_frames": 1,
        "rows": form.rows,
        "columns": form.columns,
        "samples_per_pixel": form.samples,
        "photometric_interpretation": form.photometric,
        "planar_configuration": integer(header.elements, "PlanarConfiguration") or 0,
        "bits_allocated": bits,
        "bits_stored": bits if plugin == "gdcm" else integer(header.elements, "BitsStored"),  # GDCM aborts otherwise
        "pixel_representation": integer(header.elements, "PixelRepresentation"),
    }
    with library_errors(f"decoding PixelData ({decoder.UID.name})"), quiet():
        pixels, found = decoder.as_array(content, index=0, decoding_plugin=plugin, **options)
    photometric = str(found["photometric_interpretation"])
    if pixels.shape != form.shape or pixels.dtype != form.dtype or (form.samples == 3 and photometric != "RGB"):
        raise VolumeError(f"PixelData decodes to {pixels.dtype} {pixels.shape} {photometric}, not to {form}")
    return pixels


def _used_bits(header: Header, pixels: NDArray[Any]) -> NDArray[Any]:
    """Without bits above BitsStored, which may be overlays; signed numbers get their sign from its highest bit."""
    stored = integer(header.elements, "BitsStored")
    if pixels.dtype.kind == "f" or stored is None or stored == pixels.dtype.itemsize * 8:
        return pixels
    shift = pixels.dtype.itemsize * 8 - stored
    return np.asarray((pixels << shift) >> shift)
