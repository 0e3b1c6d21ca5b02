"""Changes of intensity: noise in the image's unit, and window and contrast of a CT-like image."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def add_noise(image: Tensor, sd: float, generator: torch.Generator) -> Tensor:
    """``image`` + white Gaussian noise of standard deviation ``sd``, in the image's unit (HU for CT).

    The same ``sd`` at every voxel size, uncorrelated between voxels. In a real CT the variance goes with
    1 / (dose x thickness x in-plane spacing^3) and the reconstruction kernel colours it; give an ``sd`` that follows
    that law where it matters.

    Numbers are drawn on the generator's device, so a CPU generator gives the same noise on any device. They are drawn
    at ``sd`` 0 too: what the generator gives next does not depend on ``sd``.

    Args:
        image: any shape, floating point.

    Raises:
        ValueError: if ``sd`` is negative or not finite.
        TypeError: if ``image`` is not floating point.
    """
    _check_floating(image)
    if not (math.isfinite(sd) and sd >= 0):
        raise ValueError(f"sd must be finite and >= 0, in the image's unit, got {sd!r}")
    precision = torch.promote_types(image.dtype, torch.float32)
    noise = torch.randn(image.shape, generator=generator, dtype=precision, device=generator.device)
    return image + (sd * noise).to(image.device, image.dtype)


def window(image: Tensor, low: float, high: float) -> Tensor:
    """Intensities ``low`` to ``high`` (the image's unit) mapped to -1 to 1; what lies beyond is clipped.

    NaN stays NaN.

    Args:
        image: any shape, floating point.

    Raises:
        ValueError: if the limits are not finite with ``low`` < ``high``.
        TypeError: if ``image`` is not floating point.
    """
    _check_floating(image)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"window must have finite limits with low < high, got low {low!r}, high {high!r}")
    return ((image - (low + high) / 2) / ((high - low) / 2)).clamp(-1, 1)


def change_contrast(image: Tensor, *, gain: float = 1.0, offset: float = 0.0, gamma: float = 1.0) -> Tensor:
    """Contrast, brightness and tone of a windowed image, in this order; -1 to 1 in and out.

    y = clip(gain * image + offset, -1, 1), then 2 ((y + 1) / 2)^gamma - 1. The defaults return the clipped image
    bit for bit.

    Args:
        image: a result of ``window``, any shape, floating point.
        gain: > 0; about the middle of the window.
        offset: brightness, in half windows (2 shifts black to white).
        gamma: > 0; above 1 darkens the middle, below 1 brightens it. Black and white stay.

    Raises:
        ValueError: if gain or gamma is not positive, or a value is not finite.
        TypeError: if ``image`` is not floating point.
    """
    _check_floating(image)
    for name, value in (("gain", gain), ("gamma", gamma)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be finite and > 0, got {value!r}")
    if not math.isfinite(offset):
        raise ValueError(f"offset must be finite, got {offset!r}")
    linear = (gain * image + offset).clamp(-1, 1)
    return linear if gamma == 1 else 2 * ((linear + 1) / 2) ** gamma - 1


def _check_floating(image: Tensor) -> None:
    if not image.is_floating_point():
        raise TypeError(f"image must be floating point, got {image.dtype}")
