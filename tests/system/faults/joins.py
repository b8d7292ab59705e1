"""Joins and leaves while a publisher sends: no send may be held up by them.

    python joins.py [--joins 10000] [--processes 4] [--at-once 4]

Some processes open connections with a consumer and close them again, a few at once in each. A publisher sends at a
steady rate over the loopback, to them and to a subscriber that stays, and measures each send. The program prints the
distribution, with the load of the machine, and fails if a send took more than 100 ms, without the time in which the
machine ran other programs instead.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from agent import Starvation

from fjm2.jms import BytesMessage, ConnectionFactory, Topic

HELD_S_MAX = 0.1
_URI = "fjm2://239.192.57.97:5778?interface=127.0.0.1&ttl=0"
_TOPIC = Topic("faults.joins")
_INTERVAL_S = 0.002
_BODY = bytes(200)


def factory(number: int) -> ConnectionFactory:
    """Return a factory whose connections have a bus of their own: buses of a process are shared if settings agree."""
    return ConnectionFactory(f"{_URI}&inactivity_s={100 + number}")


async def publish() -> None:
    """Send until stdin ends, and print the seconds that each send took."""
    starvation, took_s = Starvation(), []
    async with factory(0).create_connection() as connection:
        told: list[str] = []
        connection.exception_listener = lambda error: told.append(str(error))
        producer = connection.create_session().create_producer(_TOPIC)
        print("ready", flush=True)
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        while not ended.done():
            message = BytesMessage()
            message.write_bytes(_BODY)
            began, starved_s = time.monotonic(), starvation.seconds()
            await producer.send(message)
            took_s.append((time.monotonic() - began, starvation.seconds() - starved_s))
            await asyncio.sleep(_INTERVAL_S)
        print(json.dumps({"sends": took_s, "told": told}), flush=True)


async def subscribe() -> None:
    """Receive until stdin ends, and print the number of messages and of gaps."""
    count = gaps = 0
    async with factory(0).create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(_TOPIC)

        def take(message: BytesMessage) -> None:
            nonlocal count, gaps
            count += 1
            gaps += message.property_exists("JMS_FJM2_Gap")

        consumer.message_listener = take
        await consumer.ready()
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(json.dumps({"received": count, "gaps": gaps}), flush=True)


async def join(joins: int, at_once: int) -> None:
    """Open and close connections, some at once."""
    left = iter(range(joins))

    async def one_after_the_other(number: int) -> None:
        for _ in left:
            async with factory(number).create_connection() as connection:
                connection.start()
                consumer = connection.create_session().create_consumer(_TOPIC)
                consumer.message_listener = lambda _: None
                await consumer.ready()

    async with asyncio.TaskGroup() as group:
        for number in range(at_once):
            group.create_task(one_after_the_other(number))


def start(*words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ready(process: "subprocess.Popen[str]") -> "subprocess.Popen[str]":
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def main() -> int:
    parser = argparse.ArgumentParser(prog="joins", description="Join and leave a bus while a publisher sends.")
    parser.add_argument("role", nargs="?", choices=["publish", "subscribe", "join"], help=argparse.SUPPRESS)
    parser.add_argument("--joins", type=int, default=10_000, help="joins in all (default: 10000)")
    parser.add_argument("--processes", type=int, default=4, help="processes that join and leave (default: 4)")
    parser.add_argument("--at-once", type=int, default=4, help="connections at once in each of them (default: 4)")
    options = parser.parse_args()
    if options.role is not None:
        roles = {"publish": publish, "subscribe": subscribe, "join": lambda: join(options.joins, options.at_once)}
        asyncio.run(roles[options.role]())
        return 0
    subscriber, publisher = ready(start("subscribe")), ready(start("publish"))
    began = time.monotonic()
    share = -(-options.joins // options.processes)
    joiners = [start("join", "--joins", share, "--at-once", options.at_once) for _ in range(options.processes)]
    failed = sum(joiner.wait() != 0 for joiner in joiners)
    elapsed_s = time.monotonic() - began
    sent = json.loads(publisher.communicate("end\n")[0])
    received = json.loads(subscriber.communicate("end\n")[0])
    return report(share * options.processes, elapsed_s, sent, received) + failed


def report(joins: int, elapsed_s: float, sent: dict[str, list[list[float]]], received: dict[str, int]) -> int:
    """Print what was seen. Return the number of sends that were held too long."""
    print(f"{joins} joins in {elapsed_s:.0f} s, load {os.getloadavg()[0]:.1f}; {received}, told {sent['told'][:5]}")
    for name, values in (
        ("sends", [took_s for took_s, _ in sent["sends"]]),
        ("without what the machine gave to others", [took_s - starved_s for took_s, starved_s in sent["sends"]]),
    ):
        values.sort()
        p50, p99, p999 = (values[int(share * len(values))] for share in (0.5, 0.99, 0.999))
        print(f"{name}: {len(values)}, median {p50:.5f} s, p99 {p99:.5f} s, p99.9 {p999:.5f} s, max {values[-1]:.5f} s")
    held = [value for value in values if value > HELD_S_MAX]
    print(f"{len(held)} sends were held for more than {HELD_S_MAX * 1e3:g} ms")
    return len(held)


if __name__ == "__main__":
    sys.exit(main())
