"""Fixtures of the tests of the node-list service: running services, and gateways registered with them."""

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
    """Return a function that starts a service with the given settings. The services end with the test."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(Admin(data, **settings))


@pytest.fixture
def admin(start: Callable[..., Admin]) -> Admin:
    return start()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Return a registered gateway that all tests of a file share, with its service.

    Tests that use it must not change anything.
    """
    data = tmp_path_factory.mktemp("standing") / "admin.sqlite"
    with Admin(data) as admin, Gateway(admin.url, admin.token("paris")) as made:
        assert made.register().status_code == 200
        yield made


@pytest.fixture
def gateway(admin: Admin) -> Iterator[Gateway]:
    """Return a gateway that is registered with the test's own service."""
    with Gateway(admin.url, admin.token("paris")) as made:
        assert made.register().status_code == 200
        yield made
