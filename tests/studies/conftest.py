import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def cache_of_these_tests(shared_cache: Path) -> Iterator[None]:
    """Acquisitions made here are shared by these tests and kept out of the user's cache, and of other tests."""
    before = os.environ.get("MEDATTN_CACHE")
    os.environ["MEDATTN_CACHE"] = str(shared_cache)
    yield
    if before is None:
        del os.environ["MEDATTN_CACHE"]
    else:
        os.environ["MEDATTN_CACHE"] = before
