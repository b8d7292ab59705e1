"""Confirmation of PERSISTENT messages when subscribers say that they discarded some."""

import asyncio

import pytest

from fjm2.bus.confirmation import Confirmation
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.losses.names import PeerNames
from fjm2.bus.statistics import BusStats
from fjm2.bus.waiting.outages import Outages


class Confirmable:
    """Subscribers that confirm when they are told to."""

    def __init__(self) -> None:
        self.outages = Outages(BusStats(), PeerNames())
        self.may_end = asyncio.Event()

    async def confirmed(self) -> frozenset[int]:
        await self.may_end.wait()
        return frozenset()


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_subscriber_that_discards_has_not_confirmed(when: str) -> None:
    async def main() -> None:
        bus = Confirmable()
        confirmation = Confirmation(bus, pytest.fail)
        if when == "before":
            confirmation.note_discarded(7)
        confirmation.accepted = 1
        confirmation.start()
        waiting = confirmation.wait(1)
        await asyncio.sleep(0.01)
        if when == "during":
            confirmation.note_discarded(7)
        bus.may_end.set()
        error = await waiting
        if when == "during":
            assert isinstance(error, UnconfirmedError)
            assert error.unacknowledged_nodes == {7}
            assert "1 of them discarded some" in str(error)
        else:
            assert error is None
        confirmation.note_discarded(7)  # too late for the first message, too early for the next
        confirmation.accepted = 2
        if not confirmation.is_running:
            confirmation.start()
        assert await confirmation.wait(2) is None
        await confirmation.close()

    asyncio.run(main())


def test_a_notice_while_a_transaction_is_published_makes_it_unconfirmed() -> None:
    async def main() -> None:
        bus = Confirmable()
        bus.may_end.set()
        confirmation = Confirmation(bus, pytest.fail)
        confirmation.note_discarded(7)
        confirmation.accepted = 1
        confirmation.doubt_latest()
        confirmation.start()
        assert isinstance(await confirmation.wait(1), UnconfirmedError)
        await confirmation.close()

    asyncio.run(main())
