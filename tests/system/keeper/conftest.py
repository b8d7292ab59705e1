"""Cells that are founded once, and copied for each test: a founding takes four seconds."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_programs import Programs
from keepers import Keepers, keeping, start_three

_FOUNDING_PORT = 32_100
"""First port of the foundings. It lies above those of tests."""


def _founding_port(worker_id: str) -> int:
    return _FOUNDING_PORT + 4 * int(worker_id.removeprefix("gw") or 0) if worker_id.startswith("gw") else _FOUNDING_PORT


@pytest.fixture(scope="session")
def founded_one(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return a folder with the store of a cell of one."""
    folder = tmp_path_factory.mktemp("one")
    with keeping(folder, _founding_port(worker_id)) as keepers:
        one = keepers.start("one", "--replicas", 1)
        keepers.until(lambda: one.state == "serving")
        one.end(signal.SIGINT)
    return folder


@pytest.fixture(scope="session")
def founded_three(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return a folder with the stores of a cell of three."""
    folder = tmp_path_factory.mktemp("three")
    with keeping(folder, _founding_port(worker_id) + 2) as keepers:
        for each in start_three(keepers):
            each.end(signal.SIGINT)
    return folder


@pytest.fixture
def cell_of_one(founded_one: Path, tmp_path: Path, port: int) -> Iterator[Keepers]:
    """Yield a cell of one that is not running: its keeper is called "one"."""
    shutil.copytree(founded_one, tmp_path / "cell")
    with keeping(tmp_path / "cell", port) as keepers:
        yield keepers


@pytest.fixture
def cell_of_three(founded_three: Path, tmp_path: Path, port: int) -> Iterator[Keepers]:
    """Yield a cell of three that is not running: its keepers are called "a", "b" and "c"."""
    shutil.copytree(founded_three, tmp_path / "cell")
    with keeping(tmp_path / "cell", port) as keepers:
        yield keepers


@pytest.fixture
def programs() -> Iterator[Programs]:
    """Yield a maker of programs that keep by themselves, and kill them at the end."""
    started = Programs()
    yield started
    started.kill()
