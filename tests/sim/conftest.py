"""Fixtures: a simulated network for each test, and filters for datagrams.

`FJM2_SEED` chooses another seed. `FJM2_SLOW=1` lets the stateful test run many more examples.
"""

import os
from collections.abc import Callable

import pytest

from fjm2.errors import WireError
from fjm2.norm.core.wire import Message, decode
from fjm2.norm.sim import Network


@pytest.fixture
def net() -> Network:
    seed = int(os.environ.get("FJM2_SEED", "1"))
    print(f"Network: {seed=}")  # pytest shows this line if the test fails
    return Network(seed)


@pytest.fixture
def is_kind() -> Callable[..., Callable[[bytes], bool]]:
    """Return a function that takes kinds of messages, and returns a filter for datagrams of these kinds."""

    def chooser(*kinds: type[Message]) -> Callable[[bytes], bool]:
        def is_one(datagram: bytes) -> bool:
            try:
                return isinstance(decode(datagram), kinds)
            except WireError:
                return False

        return is_one

    return chooser
