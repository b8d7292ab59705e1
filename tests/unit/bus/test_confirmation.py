"""Confirmation of PERSISTENT messages when subscribers say that they discarded some."""

import asyncio

import pytest

from fjm2.bus.completions import Completions, Receipt
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
        self.missing = frozenset[int]()
        self.has_begun = asyncio.Event()

    async def confirmed(self) -> frozenset[int]:
        self.has_begun.set()
        missing = self.missing
        await self.may_end.wait()
        return missing


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_subscriber_that_discards_has_not_confirmed(when: str) -> None:
    async def main() -> None:
        bus = Confirmable()
        confirmation = Confirmation(bus, pytest.fail)
        if when == "before":
            confirmation.note_discarded(7)
        confirmation.accepted = 1
        confirmation.start()
        waiting = confirmation.outcome()
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
        assert await confirmation.outcome() is None
        await confirmation.close()

    asyncio.run(main())


def test_notices_are_reported_besides_outages_and_once_for_each_round() -> None:
    async def main() -> None:
        bus, reports = Confirmable(), list[Exception]()
        confirmation = Confirmation(bus, reports.append)
        for number in (1, 2):
            bus.may_end.clear()
            confirmation.accepted, confirmation.unasked = number, 1
            confirmation.start()
            waiting = confirmation.outcome()
            await asyncio.sleep(0.01)
            confirmation.note_discarded(7)
            confirmation.note_discarded(7)
            bus.may_end.set()
            await waiting
            assert not confirmation.is_running
            assert len(reports) == number
            assert "1 of them discarded some" in str(reports[-1])
        assert not bus.outages.nodes
        await confirmation.close()
        assert len(reports) == 2  # such losses begin no outage, and have no summary

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
        assert isinstance(await confirmation.outcome(), UnconfirmedError)
        await confirmation.close()

    asyncio.run(main())


def test_every_send_that_waits_for_a_round_gets_its_outcome() -> None:
    """Each send waits for its turn. A round that failed is no success for those whose turn comes later."""

    async def main() -> None:
        bus = Confirmable()
        bus.missing = frozenset({7})
        confirmation = Confirmation(bus, pytest.fail)
        completions = Completions(object(), flushed, timeout_s=5.0)

        def send() -> asyncio.Future[None]:
            confirmation.accepted += 1
            receipt = Receipt()
            receipt.confirmed = confirmation.outcome()
            if not confirmation.is_running:
                confirmation.start()
            outcome = completions.new_outcome()
            completions.add((receipt, None, outcome, None))
            return outcome

        first = [send() for _ in range(3)]
        await bus.has_begun.wait()
        later = [send() for _ in range(3)]  # while the first round is under way: the next one asks for them
        bus.missing = frozenset()
        bus.may_end.set()
        outcomes = await asyncio.gather(*first, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [UnconfirmedError] * 3
        assert await asyncio.gather(*later) == [None] * 3
        await confirmation.close()

    async def flushed() -> None: ...

    asyncio.run(main())


def test_a_send_that_is_given_up_does_not_take_the_outcome_from_others() -> None:
    async def main() -> None:
        bus = Confirmable()
        confirmation = Confirmation(bus, pytest.fail)
        confirmation.accepted = 2
        confirmation.start()
        completions = Completions(object(), bus.confirmed, timeout_s=5.0)
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.01):
                await completions.confirm(confirmation.outcome())
        bus.may_end.set()
        await completions.confirm(confirmation.outcome())
        await confirmation.close()

    asyncio.run(main())
