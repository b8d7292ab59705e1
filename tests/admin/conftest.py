"""A service for each test that asks for one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra `admin` is not installed")
pytest.importorskip("httpx", reason="the extra `dev` is not installed")

from running import Admin, Gateway


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "admin.sqlite"


@pytest.fixture
def start(data: Path) -> Iterator[Callable[..., Admin]]:
    """A function that starts a service with these settings."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(Admin(data, **settings))


@pytest.fixture
def admin(start: Callable[..., Admin]) -> Admin:
    return start()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One that has registered with a service that serves all those tests of a file that change nothing there."""
    data = tmp_path_factory.mktemp("standing") / "admin.sqlite"
    with Admin(data) as admin, Gateway(admin.url, admin.token("paris")) as made:
        assert made.register().status_code == 200
        yield made


@pytest.fixture
def gateway(admin: Admin) -> Iterator[Gateway]:
    """One that has registered."""
    with Gateway(admin.url, admin.token("paris")) as made:
        assert made.register().status_code == 200
        yield made
