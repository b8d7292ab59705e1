"""Fixtures: the packages, built once, and an environment outside of the repository with the wheel installed."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "docs"), str(TESTS / "system")]

pytest.importorskip("build", reason="the extra `dev` is not installed")

from built import Environment, Packages  # noqa: E402


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return Packages(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="session")
def installed(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("elsewhere") / "venv", packages)
