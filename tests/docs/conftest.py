"""Fixtures of the documentation tests: the built site, and the import path to modules of other test folders."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from doc_site import Site

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "system"), str(TESTS / "admin")]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The documentation's site, built once for all tests."""
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the extra `docs` is not installed")
    return Site(tmp_path_factory.mktemp("site"))
