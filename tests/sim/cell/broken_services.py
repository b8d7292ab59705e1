"""Ways to break the rules of the service to clients, each by changing one decision of the code."""

from collections.abc import Callable
from typing import Any

import pytest
from service_worlds import ServiceKeeper
from subscribers import TOPICS

from fjm2.base.ledger import Ledger
from fjm2.bus.inbox import Delivery, Received
from fjm2.cell.doubts.doubts import Doubts
from fjm2.cell.ledger_table import LedgerTable, Successions
from fjm2.cell.service import decided, hands, judge, pages
from fjm2.cell.service.backlog import Backlog
from fjm2.cell.service.clients import Clients
from fjm2.cell.service.cursors import Cursor
from fjm2.cell.service.decided import Decided
from fjm2.cell.service.desk import RequestDesk
from fjm2.cell.service.due_times import DueTimes
from fjm2.cell.service.judge import Judge
from fjm2.cell.service.order import older_unread
from fjm2.cell.service.section import ServiceSection
from fjm2.cell.service.state_codec import encode_state
from fjm2.cell.subscriber import portion_reader
from fjm2.cell.subscriber.durable_reader import DurableReader
from fjm2.cell.subscriber.tenure import Tenure
from fjm2.jms.durable.inbox import DurableInbox
from fjm2.messages.header import FRAME_BYTES

Patch = pytest.MonkeyPatch


def take_snapshots_of_nothing(patch: Patch) -> None:
    """A snapshot has none of what decisions left."""
    patch.setattr(ServiceSection, "encode", lambda *_: encode_state(Decided()))


def share_client_ids(patch: Patch) -> None:
    """Two clients may have one client id."""
    patch.setattr(Decided, "owner", lambda *_: None)


def share_durable_subscriptions(patch: Patch) -> None:
    """A durable subscription takes a second consumer."""
    judge_alone = Judge._judge_subscribe

    def judge_subscribe(self: Judge, session: Any, number: int, request: Any) -> Any:
        cursors = list(self._state.cursors.values())
        consumers = [cursor.consumers for cursor in cursors]
        for cursor in cursors:
            cursor.consumers = {}
        try:
            return judge_alone(self, session, number, request)
        finally:
            for cursor, present in zip(cursors, consumers, strict=True):
                cursor.consumers = present

    patch.setattr(Judge, "_judge_subscribe", judge_subscribe)
    share_client_ids(patch)


def trust_ended_sessions(patch: Patch) -> None:
    """Requests of sessions that have ended are granted."""
    judge_honestly = Judge.judge

    def trusting(self: Judge, ledger: Any, sequence: int, request: Any) -> Any:
        judgement = judge_honestly(self, ledger, sequence, request)
        return type(judgement)(type(judgement.reason)(0)) if judgement.reason.name == "NO_SESSION" else judgement

    patch.setattr(Judge, "judge", trusting)


def keep_sessions(patch: Patch) -> None:
    """A session never lapses."""
    patch.setattr(RequestDesk, "_lapses", lambda *_: [])


def release_for_one(patch: Patch) -> None:
    """A message is released when one of its subscriptions has acknowledged it."""
    cursors_of = Decided.cursors_of
    patch.setattr(Decided, "cursors_of", lambda self, frame_hash: cursors_of(self, frame_hash)[:1])


def begin_late(patch: Patch) -> None:
    """A new subscription begins some messages after what has been seen."""
    highest_seen = LedgerTable.highest_seen
    patch.setattr(LedgerTable, "highest_seen", lambda self, ledger: highest_seen(self, ledger) + 30)


def answer_from_an_old_state(patch: Patch) -> None:
    """A keeper answers a consumer that it does not know yet: it does not know what an earlier one acknowledged."""
    cursor_of = Decided.cursor_of
    topics = [place.frame_hash for place in TOPICS]

    def any_cursor(state: Decided, session: int, consumer: int) -> Cursor | None:
        return cursor_of(state, session, consumer) or next(
            (cursor for frame_hash in topics for cursor in state.cursors_of(frame_hash)), None
        )

    def answer(self: Clients, query: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Decided, "cursor_of", any_cursor)
            _ANSWER(self, query)

    patch.setattr(Clients, "answer", answer)


def forget_cursors(patch: Patch) -> None:
    """A page names what has been acknowledged as well."""
    patch.setattr(Cursor, "gaps", lambda *span: iter((span[2:],)))


def decide_behind_holes(patch: Patch) -> None:
    """A page decides about sequences that the keeper has not got."""
    decided_through = pages.decided_through
    patch.setattr(pages, "decided_through", lambda *arguments: decided_through(*arguments) + 5)


def hand_out_twice(patch: Patch) -> None:
    """Messages that a consumer holds are handed to others as well."""
    patch.setattr(Cursor, "free", lambda self, ledger, end: self.gaps(ledger, 1, end))


def take_from_anybody(patch: Patch) -> None:
    """A consumer acknowledges messages that others hold by now."""
    patch.setattr(Judge, "_holds", staticmethod(lambda *_: True))


def flag_nothing(patch: Patch) -> None:
    """Messages that come back are handed out as if they were new."""
    patch.setattr(Cursor, "again_within", lambda *_: [])


def decide_about_what_is_not_handed(patch: Patch) -> None:
    """A keeper that does not know yet what a consumer holds tells it that there is nothing."""
    patch.setattr(Cursor, "end_held", lambda *_: 1 << 63)


def let_the_dead_hold(patch: Patch) -> None:
    """A session that ends takes along what its consumers hold."""
    patch.setattr(Cursor, "give_back", lambda *_: None)


def keep_unused_subscriptions(patch: Patch) -> None:
    """A subscription that is not durable stays when its last consumer is gone."""
    patch.setattr(RequestDesk, "_end_unused", lambda *_: [])


def end_with_any_consumer(patch: Patch) -> None:
    """Subscriptions that are not durable end while they have consumers."""
    patch.setattr(
        Decided, "unused_cursors", lambda self: (each for each in self.cursors.values() if not each.is_durable)
    )


def end_durable_subscriptions(patch: Patch) -> None:
    """A durable subscription ends with its last consumer, too."""
    patch.setattr(
        Decided, "unused_cursors", lambda self: (each for each in self.cursors.values() if not each.consumers)
    )


def share_names(patch: Patch) -> None:
    """A durable subscription of the same name is taken for one that is not durable."""
    for module in (decided, judge):
        for name in ("key_of", "key_for"):
            if hasattr(module, name):
                original = getattr(module, name)
                patch.setattr(module, name, lambda *arguments, f=original: f(*arguments)._replace(is_durable=True))


def hand_out_early(patch: Patch) -> None:
    """Delayed messages are handed out before they are due."""
    advance = DueTimes.advance
    patch.setattr(DueTimes, "advance", lambda self, time_ms: advance(self, time_ms + 1000))


def hand_out_what_waits_as_well(patch: Patch) -> None:
    """A portion reaches back over messages that are not due."""
    patch.setattr(Backlog, "others_before", lambda *_: 1)


def reread_nothing(patch: Patch) -> None:
    """A keeper does not look for messages that came before it knew the subscription."""
    patch.setattr(ServiceKeeper, "reread", lambda *_: None)


def apply_without_requests(patch: Patch) -> None:
    """A keeper that restarted skips decisions whose requests it has not in memory."""
    patch.setattr(Clients, "_is_missing", lambda *_: False)

    def tell(self: ServiceKeeper, cell: Any, ledger: Any, sequence: int, frame: bytes) -> None:
        if frame[:1] == b"M" or self.world.random.random() > 0.2:
            _TELL(self, cell, ledger, sequence, frame)

    patch.setattr(ServiceKeeper, "tell", tell)


def decide_twice(patch: Patch) -> None:
    """A new manager judges anew what is decided in the log, and not applied yet."""

    def begin(self: RequestDesk, now: float) -> Decided:
        self._draft = Decided()
        self._judge = Judge(self._draft, self._replica.ledgers)
        self._began_at = now
        return self._draft

    patch.setattr(RequestDesk, "_begin", begin)


def doubt_nothing(patch: Patch) -> None:
    """Frames that were counted before the subscription was heard of count as kept. Random faults show it seldom:
    `test_late_followers.py` makes the case."""
    patch.setattr(Doubts, "add", lambda *_, **__: None)


def read_successors_first(patch: Patch) -> None:
    """A keeper does not tell a consumer that a ledger succeeds another one."""
    patch.setattr(pages, "older_unread", lambda *_: None)


def hand_out_successors_first(patch: Patch) -> None:
    """A manager hands out messages of a ledger while it has others from before."""
    patch.setattr(hands, "older_unread", lambda *_: None)


def deliver_portions_as_they_come(patch: Patch) -> None:
    """A consumer of a shared subscription delivers what it has, whatever it was handed before."""
    patch.setattr(portion_reader, "is_older", lambda *_: False)


def trust_one_keeper(patch: Patch) -> None:
    """A keeper that knows nothing of a ledger says that there was none."""

    def known_only(ledger: Ledger, cursor: Cursor, backlog: Backlog, ledgers: LedgerTable) -> Ledger | None:
        older = older_unread(ledger, cursor, backlog, ledgers)
        return older if older in ledgers else None

    patch.setattr(pages, "older_unread", known_only)


def leave_successors_open(patch: Patch) -> None:
    """A manager closes ledgers as it likes, and not the older ones first."""
    patch.setattr(Successions, "open_before", lambda *_: [])


def want_closed_ledgers(patch: Patch) -> None:
    """A new subscription gets what some keeper still has of ledgers that were closed before."""
    patch.setattr(Cursor, "_acked_of", lambda self, ledger: self._acked.get(ledger))


def wait_for_what_is_no_more(patch: Patch) -> None:
    """A consumer does not heed that a ledger is closed."""
    patch.setattr(DurableReader, "_learn_end", lambda *_: None)


def use_what_comes_again_first(patch: Patch) -> None:
    """Messages that are flagged overtake those that wait in an inbox without a flag."""

    def deliver_again(self: DurableInbox, received: Received) -> None:
        self.held += 1
        self.held_bytes += received.header[FRAME_BYTES]
        self.again.append(Delivery(received, self, 2, 0, None))

    patch.setattr(DurableInbox, "_deliver_again", deliver_again)


_ANSWER = Clients.answer
_TELL = ServiceKeeper.tell


def trust_silent_sessions(patch: Patch) -> None:
    """A client that was stopped uses what it holds without a question."""
    patch.setattr(Tenure, "until", property(lambda _: float("inf")))


BROKEN: dict[str, Callable[[Patch], None]] = {
    "take snapshots of nothing": take_snapshots_of_nothing,
    "share client ids": share_client_ids,
    "share durable subscriptions": share_durable_subscriptions,
    "trust ended sessions": trust_ended_sessions,
    "keep sessions": keep_sessions,
    "release for one": release_for_one,
    "begin late": begin_late,
    "answer from an old state": answer_from_an_old_state,
    "forget cursors": forget_cursors,
    "decide behind holes": decide_behind_holes,
    "hand out twice": hand_out_twice,
    "take from anybody": take_from_anybody,
    "flag nothing": flag_nothing,
    "decide about what is not handed": decide_about_what_is_not_handed,
    "let the dead hold": let_the_dead_hold,
    "keep unused subscriptions": keep_unused_subscriptions,
    "end with any consumer": end_with_any_consumer,
    "end durable subscriptions": end_durable_subscriptions,
    "share names": share_names,
    "hand out early": hand_out_early,
    "hand out what waits as well": hand_out_what_waits_as_well,
    "reread nothing": reread_nothing,
    "apply without requests": apply_without_requests,
    "decide twice": decide_twice,
    "read successors first": read_successors_first,
    "hand out successors first": hand_out_successors_first,
    "deliver portions as they come": deliver_portions_as_they_come,
    "trust one keeper": trust_one_keeper,
    "leave successors open": leave_successors_open,
    "want closed ledgers": want_closed_ledgers,
    "wait for what is no more": wait_for_what_is_no_more,
    "use what comes again first": use_what_comes_again_first,
}
