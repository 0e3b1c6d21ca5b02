"""What a scanner would have done: noise, contrast, orientation, field of view and header. Never interpolates."""

from medattn.acquisition.grids import flip_array, permuted_spacing_header, truncate
from medattn.acquisition.intensity import add_noise, change_contrast, window

__all__ = ["add_noise", "change_contrast", "flip_array", "permuted_spacing_header", "truncate", "window"]
