"""Fixture of the lab, which is made once for all tests that use it.

These tests are skipped if the lab cannot be made.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The modules `netns` and `peers` are in that folder.
sys.path.insert(0, str(Path(__file__).parents[1] / "system"))

from internet import Internet
from netns import skip_where_impossible


@pytest.fixture(scope="session")
def lab() -> Iterator[Internet]:
    """Yield three LANs and an Internet without any running programs."""
    skip_where_impossible("ip", "tc", "iptables", "sysctl")
    if not Path("/dev/net/tun").exists():
        pytest.skip("no TUN devices here, for the delay line")
    with Internet() as made:
        yield made
