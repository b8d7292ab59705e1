"""The durable consumers of one JMS session, which is a session at the cell as well."""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

from fjm2.base.done import DONE
from fjm2.base.logs import Log
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.inbox import Inbox
from fjm2.cell.service.reasons import Reason
from fjm2.cell.wire.requests import SELECTOR_CHARACTERS_MAX, TEXT_CHARACTERS_MAX
from fjm2.messages.errors import JMSError, ResourceAllocationError
from fjm2.messages.selector import Selector

from ..settings import SessionMode
from .consumer import DurableConsumer, Wanted
from .inbox import DurableInbox, OneByOneInbox
from .publishers import wait_for_publishers
from .refusals import ended, fenced, fenced_commit, file_lost, refusal, silent_cell
from .taken_id import TakenId

if TYPE_CHECKING:
    from ..dispatcher import Dispatcher
    from ..endpoint import Endpoint
    from .client import DurableClient

log = Log("fjm2.jms")

DECIDED_S: Final = 15.0
"""Longest wait for a decision on a subscription: longer than several takeovers."""
_MAY_CHANGE: Final = (Reason.CLIENT_ID_TAKEN, Reason.NO_SESSION)
"""Refusals after which a session is asked for again."""


class DurableSession:
    """Creates and closes durable consumers, and has the cell acknowledge what they got."""

    def __init__(
        self, endpoint: "Endpoint", client: "DurableClient", mode: SessionMode, number: int, dispatcher: "Dispatcher"
    ) -> None:
        self.mode = mode
        self.consumers: list[DurableConsumer] = []
        self._endpoint = endpoint
        self._client = client
        self._session = number
        self._dispatcher = dispatcher
        self._loop = asyncio.get_running_loop()
        self._number = 0
        """Number of the session at the cell; 0 while it has none."""
        self._outcome: asyncio.Future[Reason] | None = None
        """Result of the request to open or to close it."""
        self._establishing = asyncio.Lock()
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    def has(self, inbox: Inbox) -> bool:
        """Return True if an inbox is that of a consumer."""
        return any(each.inbox is inbox for each in self.consumers)

    # Creating.

    def _check_lengths(self, subject: str, selector: str) -> None:
        """Raise ResourceAllocationError for texts that keepers refuse, of which some do not fit into a request."""
        client_id = self._endpoint.client_id or ""
        if len(client_id) > TEXT_CHARACTERS_MAX or len(selector) > SELECTOR_CHARACTERS_MAX:
            raise refusal(subject, Reason.TEXT_TOO_LONG)

    async def create(self, wanted: Wanted, selector: Selector | None) -> DurableInbox:
        """Create a consumer, and return its inbox."""
        self._check_lengths(str(wanted), wanted.selector)
        await self._end_lingering(wanted.name, is_durable=wanted.is_durable, gives_back=True)
        endpoint = self._endpoint
        kind = OneByOneInbox if self.mode is SessionMode.AUTO_ACKNOWLEDGE else DurableInbox
        left_out = endpoint.connection_id if wanted.no_local else None
        settings, report_loss = endpoint.settings.consumer, endpoint.subscriptions.report_loss
        inbox = kind(wanted.topic, selector, left_out, settings, lambda: None, report_loss)
        inbox.on_file = lambda name, size: endpoint.report(file_lost(str(wanted), wanted.topic, name, size))
        consumer = DurableConsumer(self._client, wanted, inbox, self.mode)
        endpoint.subscriptions.adopt(inbox, self._session)
        self.consumers.append(consumer)
        try:
            await endpoint.ready()
            version = await self._establish(consumer)
            await wait_for_publishers(endpoint.bus, str(wanted), version)
            endpoint.check_open()
            self._dispatcher.check_open()
        except BaseException:
            self._forget(consumer)
            self._client.close_consumer(consumer)
            raise
        self._dispatcher.add(inbox)
        return inbox

    async def _establish(self, consumer: DurableConsumer) -> int:
        """Have the cell make a consumer. Return the version of the table that has its subscription."""
        subject = str(consumer.wanted)
        async with self._establishing:
            until, taken = self._loop.time() + DECIDED_S, self._taken_id()
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        outcome = await self._attempt(consumer)
                except TimeoutError:
                    raise silent_cell(subject, self._endpoint.bus.config, DECIDED_S) from None
                if not isinstance(outcome, Reason):
                    consumer.is_placed = True
                    return outcome
                is_taken = outcome is Reason.CLIENT_ID_TAKEN
                if (is_taken and not await taken.may_be_free()) or outcome not in _MAY_CHANGE:
                    raise refusal(f"client_id={self._endpoint.client_id!r}" if is_taken else subject, outcome)

    def _taken_id(self) -> TakenId:
        return TakenId(self._endpoint.bus, self._endpoint.client_id or "")

    async def _attempt(self, consumer: DurableConsumer) -> Reason | int:
        reason = await self._open()
        return reason if reason is not Reason.GRANTED else await self._client.subscribe(consumer, self._number)

    async def _open(self) -> Reason:
        """Open the session at the cell, unless it is open."""
        if self._number:
            return Reason.GRANTED
        self._outcome = self._loop.create_future()
        self._number = self._client.open_session(self, self._endpoint.client_id or "")
        return await asyncio.shield(self._outcome)

    def note_opened(self) -> None:
        """Note that the cell has opened the session."""
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(Reason.GRANTED)

    def note_ended(self, reason: Reason, lost: list[DurableConsumer]) -> None:
        """Note that the cell has refused or ended the session, and which consumers it had. They begin anew."""
        self._number = 0
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(reason)
        for consumer in lost:
            was_placed, consumer.is_placed = consumer.is_placed, False
            is_wanted = consumer in self.consumers and not consumer.inbox.is_closed
            if was_placed and is_wanted and not self._is_closed:
                self._start(self._resume(consumer))
            elif consumer.is_lingering:
                self._forget(consumer)

    def _start(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resume(self, consumer: DurableConsumer) -> None:
        """Go on after the cell has lost the session: this process was silent for too long."""
        log.tell(logging.WARNING, "session_fenced", f"{consumer.wanted}: the keepers lost this session; it begins anew")
        while not (self._is_closed or consumer.inbox.is_closed):
            try:
                await self._establish(consumer)
                if not consumer.wanted.is_durable:
                    self._endpoint.report(ended(str(consumer.wanted), consumer.wanted.topic))
            except ResourceAllocationError as error:
                self._endpoint.report(error)
            except JMSError as error:
                self._endpoint.report(error)
                consumer.inbox.close()
                return
            else:
                return

    # Acknowledging.

    def has_late(self) -> bool:
        """Return True if the client has messages that the cell delivers again, because it lost the session."""
        inboxes = {each.inbox for each in self.consumers}
        return any(
            delivery.inbox in inboxes and delivery.inbox.is_late(delivery.received)
            for delivery in self._dispatcher.deliveries.unacknowledged
            if isinstance(delivery.inbox, DurableInbox)
        )

    def decide(self) -> Awaitable[None]:
        """Have the cell acknowledge what is done. Return an awaitable of the decision."""
        decisions: list[asyncio.Future[Reason]] = []
        late = 0
        for consumer in self.consumers:
            decision = consumer.flush()
            if decision is not None:
                decisions.append(decision)
            late += consumer.inbox.late_count
            consumer.inbox.late_count = 0
        if not decisions and not late:
            return DONE
        return asyncio.ensure_future(self._decided(decisions, late))

    async def _decided(self, decisions: "list[asyncio.Future[Reason]]", late: int) -> None:
        timeout_s, is_commit = self._endpoint.settings.confirm_timeout_s, self.mode is SessionMode.SESSION_TRANSACTED
        if decisions:
            await asyncio.wait(decisions, timeout=timeout_s)
        for lingering in [each for each in self.consumers if each.is_lingering]:
            if not self._dispatcher.deliveries.tracks(lingering.inbox):
                self._forget(lingering)
                self._client.close_consumer(lingering)
        if not all(decision.done() for decision in decisions):
            raise UnconfirmedError(
                f"the keepers did not decide on an acknowledgement for {timeout_s:g} s (confirm_timeout_s): the "
                "messages may come again, flagged as redelivered"
            )
        reasons = {decision.result() for decision in decisions if not decision.cancelled()} - {Reason.GRANTED}
        if late or reasons & {Reason.NO_SESSION, Reason.NO_CONSUMER, Reason.NOT_HELD}:
            raise fenced_commit() if is_commit else fenced("acknowledge")
        for reason in reasons:
            raise refusal("commit" if is_commit else "acknowledge", reason)

    # Ending.

    async def unsubscribe(self, name: str) -> None:
        """End a subscription."""
        subject = f"subscription {name!r}"
        self._check_lengths(subject, "")
        await self._end_lingering(name, is_durable=True, gives_back=False)
        until, taken = self._loop.time() + DECIDED_S, self._taken_id()
        try:
            async with asyncio.timeout_at(until):
                while True:
                    async with self._establishing:
                        reason = await self._open()
                    if reason is Reason.GRANTED:
                        reason = await self._client.unsubscribe(self._number, name)
                    is_taken = reason is Reason.CLIENT_ID_TAKEN
                    if (is_taken and not await taken.may_be_free()) or reason not in _MAY_CHANGE:
                        break
        except TimeoutError:
            raise silent_cell(subject, self._endpoint.bus.config, DECIDED_S) from None
        if reason is not Reason.GRANTED:
            raise refusal(subject, reason)

    async def _end_lingering(self, name: str, *, is_durable: bool, gives_back: bool) -> None:
        """Close consumers of a subscription that linger for nothing. With `gives_back`, close all that linger: what the
        client has not acknowledged comes again."""
        deliveries = self._dispatcher.deliveries
        lingering = [each for each in self.consumers if each.is_lingering]
        for consumer in [each for each in lingering if each.wanted.is_named(name, is_durable)]:
            if gives_back:
                deliveries.forget(consumer.inbox)
            if not deliveries.tracks(consumer.inbox):
                self._forget(consumer)
                await self._close(consumer)

    async def close_consumer(self, inbox: Inbox) -> None:
        """Close a consumer. The client can still acknowledge what it has got."""
        consumer = next(each for each in self.consumers if each.inbox is inbox)
        consumer.flush()
        if self._dispatcher.deliveries.tracks(inbox):
            consumer.is_lingering = True
            self._endpoint.subscriptions.release(inbox)
            self._client.set_room(consumer)
            return
        self._dispatcher.deliveries.forget(inbox)
        self._forget(consumer)
        await self._close(consumer)

    def _forget(self, consumer: DurableConsumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        self._endpoint.subscriptions.release(consumer.inbox)

    async def _close(self, consumer: DurableConsumer) -> None:
        await asyncio.wait([self._client.close_consumer(consumer)], timeout=self._endpoint.settings.confirm_timeout_s)

    async def close(self, limit: AbstractAsyncContextManager[None]) -> None:
        """Close the session at the cell. What was not acknowledged comes again to the next consumers."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        for consumer in self.consumers:
            consumer.flush()
        number = self._number
        if number:
            self._outcome = self._loop.create_future()
            self._client.close_session(number)
            try:
                async with limit:
                    await self._outcome
            except TimeoutError:
                pass  # its lease ends by itself
        for consumer in list(self.consumers):
            self._forget(consumer)
            self._dispatcher.inboxes.pop(consumer.inbox, None)
