"""Fixtures of tests on real sockets: networks of their own, for those that may make them."""

import os
import shutil
from collections.abc import Iterator

import pytest
from netns import CommandError, Network


@pytest.fixture(scope="session")
def require_root_and_netns() -> None:
    """Skips the test, with the reason, where network namespaces cannot be made."""
    missing = [tool for tool in ("ip", "tc", "iptables", "ip6tables", "sysctl") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    if os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces")
    try:
        with Network() as probe:
            probe.namespace()
    except CommandError as error:
        pytest.skip(f"no network namespaces here: {error}")


@pytest.fixture
def network(require_root_and_netns: None) -> Iterator[Network]:  # noqa: ARG001
    """An empty network that is gone after the test."""
    with Network() as made:
        yield made
