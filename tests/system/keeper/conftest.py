"""Cells that are founded once, and copied for each test: a founding takes four seconds."""

import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from embedded_programs import Programs
from keepers import Keepers, keeping, start_three

_FOUNDING_PORT = 32_100
"""First port of the foundings. It lies above those of tests."""


def _founded(factory: pytest.TempPathFactory, name: str, found: Callable[[Path], None]) -> Path:
    """Return the folder of a cell, which the first worker that needs it founds for all of them."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = root / name
        if not folder.exists():
            made = factory.mktemp(name)
            found(made)
            made.rename(folder)
    return folder


@pytest.fixture(scope="session")
def founded_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the store of a cell of one."""

    def found(folder: Path) -> None:
        with keeping(folder, _FOUNDING_PORT) as keepers:
            one = keepers.start("one", "--replicas", 1)
            keepers.until(lambda: one.state == "serving")
            one.end(signal.SIGINT)

    return _founded(tmp_path_factory, "cell-of-one", found)


@pytest.fixture(scope="session")
def founded_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the stores of a cell of three."""

    def found(folder: Path) -> None:
        with keeping(folder, _FOUNDING_PORT + 2) as keepers:
            for each in start_three(keepers):
                each.end(signal.SIGINT)

    return _founded(tmp_path_factory, "cell-of-three", found)


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
