"""Settings that every test shares: repeatable property tests, and GPU tests skipped where there is no GPU."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25, database=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def denormals_are_kept() -> Iterator[None]:
    """Studies flush them in this whole process, and floats are then not what property tests take them for."""
    yield
    torch.set_flush_denormal(False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
