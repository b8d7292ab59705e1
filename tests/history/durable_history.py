"""A checker of durable histories: the logs of all processes of one run, held against what a cell promises.

Each process writes a log of JSON lines. A line has a time (`at`, seconds of one clock) and an `event`:

- `send`, `sent`, `failed`: a publisher begins to send a message (`lane`, `number`, and `transaction` if it is in one),
  and how that ended (`in_doubt`).
- `commit`, `committed`, `rolled_back`: the same of a `transaction`.
- `session`: a consumer has begun a session of a `subscription`; `shared` if it may have others beside it.
- `got`: a message was delivered (`producer`, `lane`, `number`, `redelivered`, `whole`).
- `acknowledge`, `acknowledged`, `unacknowledged`: all that was delivered to the session before is being acknowledged,
  is, or is not for certain.
- `recover`: the session asks for everything again that it has not acknowledged.

The name of a log names its process. All other events are notes for people. A killed process may leave half a line,
which does not count; what it did not write down may have happened.

Promises, for each subscription:

1. *lost*: a message whose send completed after the subscription was there is delivered, and comes again until it is
   acknowledged.
2. *doubled*: nothing is delivered again to a session that has acknowledged it, and nothing comes again without the
   flag that says so.
3. *resurrected*: nothing that one session has acknowledged is delivered to another.
4. *reordered*: messages of a producer and lane come in the order of their sends.
5. *torn*: every body is whole, and a transaction arrives whole or not at all.
6. *invented*: nothing arrives that was not sent, or whose send failed for certain.

Each event is looked at once, so that the time is linear in the length of the history.
"""

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

Entry = dict[str, Any]
Message = tuple[str, int, int]
"""Producer, lane and number."""
_EXAMPLES_MAX = 5
"""Violations of one kind that are described; further ones are only counted."""


class Violation(NamedTuple):
    """A broken promise."""

    kind: str
    text: str


class _Sent(IntEnum):
    """How a send ended."""

    IN_DOUBT = 0
    COMPLETE = 1
    REFUSED = 2


class _Fate(IntEnum):
    """How far a message has come in a subscription."""

    DELIVERED = 0
    BEING_ACKNOWLEDGED = 1
    ACKNOWLEDGED = 2


@dataclass(slots=True, eq=False)
class _Send:
    began_at: float
    transaction: int | None
    outcome: _Sent = _Sent.IN_DOUBT


@dataclass(slots=True, eq=False)
class _Session:
    """Messages of one session of a consumer."""

    subscription: "_Subscription"
    name: str
    unacknowledged: list[Message] = field(default_factory=list)
    being_acknowledged: list[Message] = field(default_factory=list)
    newest: dict[tuple[str, int], int] = field(default_factory=dict)
    """Number of the newest message by producer and lane."""


@dataclass(slots=True, eq=False)
class _Subscription:
    name: str
    ready_at: float
    is_shared: bool
    fates: dict[Message, _Fate] = field(default_factory=dict)
    holders: dict[Message, _Session] = field(default_factory=dict)
    """Session to which each message was delivered last."""
    newest: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass
class Verdict:
    """Broken promises of a history, and its size."""

    counts: Counter[str] = field(default_factory=Counter)
    """Broken promises by kind."""
    violations: list[Violation] = field(default_factory=list)
    """The first ones of each kind."""
    sent: int = 0
    delivered: int = 0
    redelivered: int = 0
    in_doubt: int = 0

    def add(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= _EXAMPLES_MAX:
            self.violations.append(Violation(kind, text))

    @property
    def broken(self) -> list[str]:
        """A text for each broken promise, the first ones of each kind."""
        return [f"{kind} (1 of {self.counts[kind]}): {text}" for kind, text in self.violations]


def read(path: Path) -> Iterator[Entry]:
    """Yield the entries of a log. A line that a kill cut short is ignored."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            yield entry


def read_all(folder: Path) -> dict[str, Iterable[Entry]]:
    """Return the logs in a folder by name of their processes."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.jsonl"))}


def check(logs: Mapping[str, Iterable[Entry]]) -> Verdict:
    """Hold the logs of one run, by name of the process, against the promises."""
    return _Checker().check(logs)


def missing(logs: Mapping[str, Iterable[Entry]]) -> int:
    """Return the number of messages that a subscription has yet to get, or its consumer to acknowledge."""
    return check(logs).counts["lost"]


class _Checker:
    def __init__(self) -> None:
        self.verdict = Verdict()
        self._sends: dict[Message, _Send] = {}
        self._transactions: dict[tuple[str, int], list[Message]] = defaultdict(list)
        self._subscriptions: dict[str, _Subscription] = {}
        self._sessions: dict[str, _Session] = {}
        """Present session of each process."""

    def check(self, logs: Mapping[str, Iterable[Entry]]) -> Verdict:
        streams = [_named(name, entries) for name, entries in logs.items()]
        for _, name, entry in heapq.merge(*streams, key=itemgetter(0)):
            match entry["event"]:
                case "got":
                    self._take(self._sessions[name], entry)
                case "send":
                    self._send(name, entry)
                case "sent":
                    self._sends[entry.get("producer", name), entry["lane"], entry["number"]].outcome = _Sent.COMPLETE
                case "failed" if not entry["in_doubt"]:
                    self._sends[name, entry["lane"], entry["number"]].outcome = _Sent.REFUSED
                case "committed":
                    self._settle(name, entry["transaction"], _Sent.COMPLETE)
                case "rolled_back" if not entry["in_doubt"]:
                    self._settle(name, entry["transaction"], _Sent.REFUSED)
                case "session":
                    self._begin(name, entry)
                case "acknowledge":
                    self._acknowledge(self._sessions[name])
                case "acknowledged":
                    self._acknowledged(self._sessions[name])
                case "unacknowledged":
                    self._unacknowledged(self._sessions[name])
                case "recover":
                    self._recover(self._sessions[name])
        self._judge()
        return self.verdict

    # Publishers

    def _send(self, producer: str, entry: Entry) -> None:
        message = entry.get("producer", producer), entry["lane"], entry["number"]
        transaction = entry.get("transaction")
        self._sends[message] = _Send(entry["at"], transaction)
        if transaction is not None:
            self._transactions[producer, transaction].append(message)

    def _settle(self, producer: str, transaction: int, outcome: _Sent) -> None:
        for message in self._transactions[producer, transaction]:
            self._sends[message].outcome = outcome

    # Consumers

    def _begin(self, process: str, entry: Entry) -> None:
        name = entry["subscription"]
        subscription = self._subscriptions.get(name)
        if subscription is None:
            subscription = _Subscription(name, entry["at"], bool(entry.get("shared")))
            self._subscriptions[name] = subscription
        self._sessions[process] = _Session(subscription, f"{process} at {entry['at']:.3f}")

    def _take(self, session: _Session, entry: Entry) -> None:
        message = producer, lane, number = entry["producer"], entry["lane"], entry["number"]
        is_flagged = entry["redelivered"]
        subscription, verdict = session.subscription, self.verdict
        verdict.delivered += 1
        verdict.redelivered += bool(is_flagged)
        if not entry["whole"]:
            verdict.add("torn", f"{session.name} got an altered {_text(message)}")
            return
        fate = subscription.fates.get(message)
        lane_of = producer, lane
        newest, newest_here = subscription.newest.get(lane_of, -1), session.newest.get(lane_of, -1)
        if fate is _Fate.ACKNOWLEDGED:
            self._tell_of_return(session, message)
        elif fate is not None and not is_flagged:
            verdict.add("doubled", f"{session.name} got {_text(message)} again, and it was not flagged")
        elif number <= newest_here:
            verdict.add("reordered", f"{session.name} got {_text(message)} behind {newest_here}")
        elif number <= newest and fate is None and not (is_flagged or subscription.is_shared):
            verdict.add("reordered", f"{session.name} got {_text(message)} for the first time, behind {newest}")
        if number > newest:
            subscription.newest[lane_of] = number
        session.newest[lane_of] = number
        if fate is not _Fate.ACKNOWLEDGED:
            subscription.fates[message] = _Fate.DELIVERED
            session.unacknowledged.append(message)
        subscription.holders[message] = session

    def _tell_of_return(self, session: _Session, message: Message) -> None:
        holder = session.subscription.holders[message]
        if holder is session:
            self.verdict.add("doubled", f"{session.name} got {_text(message)} again, which it had acknowledged")
        else:
            text = f"{session.name} got {_text(message)}, which {holder.name} had acknowledged"
            self.verdict.add("resurrected", text)

    def _acknowledge(self, session: _Session) -> None:
        fates = session.subscription.fates
        for message in session.unacknowledged:
            fates[message] = max(fates[message], _Fate.BEING_ACKNOWLEDGED)
        session.being_acknowledged += session.unacknowledged
        session.unacknowledged.clear()

    def _acknowledged(self, session: _Session) -> None:
        for message in session.being_acknowledged:
            session.subscription.fates[message] = _Fate.ACKNOWLEDGED
        session.being_acknowledged.clear()

    def _unacknowledged(self, session: _Session) -> None:
        fates = session.subscription.fates
        for message in session.being_acknowledged:
            if fates[message] is _Fate.BEING_ACKNOWLEDGED:
                fates[message] = _Fate.DELIVERED
        session.being_acknowledged.clear()

    def _recover(self, session: _Session) -> None:
        session.unacknowledged.clear()
        session.newest.clear()

    # The end

    def _judge(self) -> None:
        """Judge deliveries and transactions, which can be done only at the end."""
        sends, verdict = self._sends, self.verdict
        outcomes = Counter(send.outcome for send in sends.values())
        verdict.sent, verdict.in_doubt = outcomes[_Sent.COMPLETE], outcomes[_Sent.IN_DOUBT]
        for subscription in self._subscriptions.values():
            for message in subscription.fates:
                send = sends.get(message)
                if send is None or send.outcome is _Sent.REFUSED:
                    reason = "was never sent" if send is None else "was refused for certain"
                    verdict.add("invented", f"{subscription.name} got {_text(message)}, which {reason}")
            for message, send in sends.items():
                if send.outcome is _Sent.COMPLETE and send.began_at >= subscription.ready_at:
                    self._judge_delivery(subscription, message)
            self._judge_transactions(subscription)

    def _judge_delivery(self, subscription: _Subscription, message: Message) -> None:
        fate = subscription.fates.get(message)
        if fate is None:
            self.verdict.add("lost", f"{subscription.name} never got {_text(message)}")
        elif fate is _Fate.DELIVERED:
            holder = subscription.holders[message].name
            text = f"{holder} got {_text(message)} and did not acknowledge it, and it never came again"
            self.verdict.add("lost", text)

    def _judge_transactions(self, subscription: _Subscription) -> None:
        for (producer, transaction), messages in self._transactions.items():
            if self._sends[messages[0]].began_at < subscription.ready_at:
                continue
            got = sum(message in subscription.fates for message in messages)
            if 0 < got < len(messages):
                text = f"{subscription.name} got {got} of {len(messages)} messages of transaction {transaction}"
                self.verdict.add("torn", f"{text} of {producer}")


def _named(name: str, entries: Iterable[Entry]) -> Iterator[tuple[float, str, Entry]]:
    return ((entry["at"], name, entry) for entry in entries)


def _text(message: Message) -> str:
    return "/".join(map(str, message))
