"""Peers that may not be there, or not work."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def peer(module: str, extra: str) -> Any:
    """``module``; where it cannot be imported, for whatever reason, the test module is skipped."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # a broken torchvision raises RuntimeError
        pytest.skip(f"{module} cannot be imported ({error}); {extra}", allow_module_level=True)
