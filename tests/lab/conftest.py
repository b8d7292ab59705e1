"""The lab is made once for all of its tests, where it can be made."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Networks and programs of tests are made there.
sys.path.insert(0, str(Path(__file__).parents[1] / "system"))

from internet import Internet
from netns import skip_where_impossible


@pytest.fixture(scope="session")
def lab() -> Iterator[Internet]:
    """Three LANs and an Internet, with nothing running there."""
    skip_where_impossible("ip", "tc", "iptables", "sysctl")
    if not Path("/dev/net/tun").exists():
        pytest.skip("no TUN devices here, for the delay line")
    with Internet() as made:
        yield made
