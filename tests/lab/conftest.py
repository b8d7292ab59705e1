"""The lab is made once for all of its tests, where it can be made."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Networks and programs of tests are made there.
sys.path.insert(0, str(Path(__file__).parents[1] / "system"))

from internet import Internet
from netns import CommandError, Network

_TOOLS = ("ip", "tc", "iptables", "sysctl")


@pytest.fixture(scope="session")
def lab() -> Iterator[Internet]:
    """Three LANs and an Internet, with nothing running there."""
    _skip_where_impossible()
    with Internet() as made:
        yield made


def _skip_where_impossible() -> None:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    if os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces")
    try:
        with Network() as probe:
            probe.namespace()
    except CommandError as error:
        pytest.skip(f"no network namespaces here: {error}")
    if not Path("/dev/net/tun").exists():
        pytest.skip("no TUN devices here, for the delay line")
