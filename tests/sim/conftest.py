"""A network for each test.

`FJM2_SEED` chooses another seed; `FJM2_SLOW=1` runs far more of the stateful test.
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
    print(f"Network: {seed=}")  # pytest shows it when the test fails
    return Network(seed)


@pytest.fixture
def is_kind() -> Callable[..., Callable[[bytes], bool]]:
    """Makes a function that tells datagrams of some kinds of message from others."""

    def chooser(*kinds: type[Message]) -> Callable[[bytes], bool]:
        def is_one(datagram: bytes) -> bool:
            try:
                return isinstance(decode(datagram), kinds)
            except WireError:
                return False

        return is_one

    return chooser
