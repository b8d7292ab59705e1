"""A program that closes a connection at a bad time.

    python jms_closing.py asyncio|blocking STATE URI

After the first line on stdin, it sends one message. Then the test harms its subscriber or its link. After the second
line, it brings the connection into STATE and closes it. It prints a line of JSON: how long closing took, how many
messages were accepted, the outcome of the pending call, and the errors that the exception listener got.
"""

import asyncio
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fjm2.jms import BytesMessage, ConnectionFactory, DeliveryMode, SessionMode, Topic, blocking

TOPIC = Topic("faults")
BURST = 5000
BYTES = 1000
UNDER_WAY_S = 0.3
OUTCOME_S = 1.0
POLL_S = 0.01
FAR_S = 30.0
OPTIONS: dict[str, dict[str, Any]] = {
    "full": {"window_bytes": "256KiB", "stream_bytes": "512KiB", "ack_timeout_s": FAR_S},
    "commit": {"confirm_timeout_s": FAR_S, "ack_timeout_s": FAR_S},
    "killed": {"ack_timeout_s": FAR_S},
    "down": {"ack_timeout_s": FAR_S},
}
_TRANSACTED = ("transaction", "commit")


class Numbered:
    """A source of numbered messages. It also counts accepted messages: those whose send has returned."""

    def __init__(self) -> None:
        self.made = 0
        self.accepted = 0

    def next(self) -> BytesMessage:
        message = BytesMessage()
        message.write_bytes(bytes([self.made % 251]) * BYTES)
        message.set_string_property("sender", str(os.getpid()))
        message.set_int_property("number", self.made)
        message.set_int_property("size", BYTES)
        self.made += 1
        return message


def mode_of(state: str) -> SessionMode:
    return SessionMode.SESSION_TRANSACTED if state in _TRANSACTED else SessionMode.AUTO_ACKNOWLEDGE


def count_of(state: str) -> int:
    return {"full": 1_000_000, "alive": BURST}.get(state, 100)


def delivery_mode(number: int) -> DeliveryMode:
    return DeliveryMode.PERSISTENT if number % 3 == 0 else DeliveryMode.NON_PERSISTENT


def told(took_s: float, numbered: Numbered, outcome: str, errors: list[str]) -> None:
    closed = {"took_s": took_s, "accepted": numbered.accepted, "outcome": outcome, "errors": errors}
    print(json.dumps({"closed": closed}), flush=True)


# With asyncio.


async def main(state: str, uri: str) -> None:
    errors: list[str] = []
    connection = await ConnectionFactory(uri, **OPTIONS.get(state, {})).create_connection()
    connection.exception_listener = lambda error: errors.append(f"{type(error).__name__}: {error}")
    numbered = Numbered()
    line = functools.partial(asyncio.get_running_loop().run_in_executor, None, sys.stdin.readline)
    await line()
    bus = connection._core.endpoint.bus  # type: ignore[union-attr]
    while not bus.subscribers(TOPIC):  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    await connection.create_session().create_producer(TOPIC).send(numbered.next())
    numbered.accepted += 1
    await line()
    session = connection.create_session(mode_of(state))
    producer = session.create_producer(TOPIC)

    async def send_all() -> None:
        for number in range(count_of(state)):
            await producer.send(numbered.next(), delivery_mode=delivery_mode(number))
            numbered.accepted += state not in _TRANSACTED
        if state == "commit":
            await session.commit()

    sending = asyncio.create_task(send_all())
    await asyncio.wait([sending], timeout=UNDER_WAY_S if state in ("full", "commit") else None)
    began = time.monotonic()
    await connection.close()
    took_s = time.monotonic() - began
    await asyncio.wait([sending], timeout=OUTCOME_S)
    error = sending.exception() if sending.done() else TimeoutError()
    told(took_s, numbered, "nothing" if error is None else type(error).__name__, errors)


# With threads.


def main_blocking(state: str, uri: str) -> None:
    errors: list[str] = []
    connection = blocking.ConnectionFactory(uri, **OPTIONS.get(state, {})).create_connection()
    connection.exception_listener = lambda error: errors.append(f"{type(error).__name__}: {error}")
    numbered = Numbered()
    sys.stdin.readline()
    bus = connection._inner._core.endpoint.bus  # type: ignore[union-attr]
    while not bus.subscribers(TOPIC):
        time.sleep(POLL_S)
    connection.create_session().create_producer(TOPIC).send(numbered.next())
    numbered.accepted += 1
    sys.stdin.readline()
    session = connection.create_session(mode_of(state))
    producer = session.create_producer(TOPIC)

    def send_all() -> None:
        for number in range(count_of(state)):
            producer.send(numbered.next(), delivery_mode=delivery_mode(number))
            numbered.accepted += state not in _TRANSACTED
        if state == "commit":
            session.commit()

    outcome: list[str] = []
    sending = threading.Thread(target=_keep_outcome, args=(send_all, outcome), daemon=True)
    sending.start()
    sending.join(UNDER_WAY_S if state in ("full", "commit") else None)
    began = time.monotonic()
    connection.close()
    took_s = time.monotonic() - began
    sending.join(OUTCOME_S)
    told(took_s, numbered, outcome[0] if outcome else "TimeoutError", errors)


def _keep_outcome(function: Callable[[], None], outcome: list[str]) -> None:
    try:
        function()
        outcome.append("nothing")
    except Exception as error:
        outcome.append(type(error).__name__)


if __name__ == "__main__":
    if sys.argv[1] == "asyncio":
        asyncio.run(main(*sys.argv[2:]))
    else:
        main_blocking(*sys.argv[2:])
