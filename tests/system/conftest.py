"""Fixtures for tests on real sockets: private networks, if the user is allowed to make them."""

from collections.abc import Iterator

import pytest
from netns import Network, skip_where_impossible


@pytest.fixture(scope="session")
def require_root_and_netns() -> None:
    """Skip the test, with the reason, if network namespaces cannot be made."""
    skip_where_impossible("ip", "tc", "iptables", "ip6tables", "sysctl")


@pytest.fixture
def network(require_root_and_netns: None) -> Iterator[Network]:  # noqa: ARG001
    """Yield a private network without hosts. It is removed after the test."""
    with Network() as made:
        yield made
