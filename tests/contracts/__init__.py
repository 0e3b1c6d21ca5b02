"""Suites that every implementation of an interface runs through."""

import pytest

pytest.register_assert_rewrite("tests.contracts.encoding_contract")
