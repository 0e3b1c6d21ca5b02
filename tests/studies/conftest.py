import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_of_these_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Acquisitions made here are shared by these tests and kept out of the user's cache."""
    before = os.environ.get("MEDATTN_CACHE")
    os.environ["MEDATTN_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["MEDATTN_CACHE"]
    else:
        os.environ["MEDATTN_CACHE"] = before
