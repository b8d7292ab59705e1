"""A flood of invented senders beside one of noise: the share of the throughput that each leaves to a living bus.

    python flood.py [--rate 40000] [--rounds 5] [--seconds 2]

A publisher sends as fast as it can to one subscriber, over the loopback. In turns, nothing disturbs them, datagrams of
new sender ids come, and datagrams of the same size come that are none of NORM. The program prints for each turn the
messages received in a second, and the medians as shares of the undisturbed turns of the same run. All turns share the
machine, so the shares contain what the flood itself costs the machine.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).parents[2])]

from hostile.datagrams import Fake, fti  # noqa: E402

from fjm2.jms import BytesMessage, ConnectionFactory, DeliveryMode, Topic  # noqa: E402

GROUP, PORT = "239.192.57.96", 5779
_URI = f"fjm2://{GROUP}:{PORT}?interface=127.0.0.1&ttl=0"
_TOPIC = Topic("faults.flood")
_BODY = bytes(1000)
_PER_TURN = 40
_KINDS = ("nothing", "new senders", "noise")


async def publish() -> None:
    async with ConnectionFactory(_URI).create_connection() as connection:
        connection.exception_listener = lambda _: None
        producer = connection.create_session().create_producer(_TOPIC)
        producer.delivery_mode = DeliveryMode.NON_PERSISTENT
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        print("ready", flush=True)
        while not ended.done():
            for _ in range(100):
                message = BytesMessage()
                message.write_bytes(_BODY)
                await producer.send(message)
            await asyncio.sleep(0)


async def subscribe() -> None:
    """Print the number of messages received so far for each line on stdin."""
    count = 0

    def take(_: BytesMessage) -> None:
        nonlocal count
        count += 1

    async with ConnectionFactory(_URI).create_connection() as connection:
        connection.exception_listener = lambda _: None
        consumer = connection.create_session().create_consumer(_TOPIC)
        consumer.message_listener = take
        connection.start()
        await consumer.ready()
        print("ready", flush=True)
        while await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
            print(count, flush=True)


def flood(kind: str, rate: float, seconds: float, first: int) -> int:
    """Send for some seconds, and return the number of datagrams."""
    if kind == "nothing":
        time.sleep(seconds)
        return 0
    ext = fti(5, 4, 1000, 64)
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as stranger:
        stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        sent, began = 0, time.monotonic()
        while (elapsed_s := time.monotonic() - began) < seconds:
            while sent < elapsed_s * rate:
                for number in range(first + sent, first + sent + _PER_TURN):
                    data = Fake(1 + number, number & 0xFFFF, ("", 0)).data(0, 0, b"evil", fti=ext)
                    if kind == "noise":
                        data = b"\xff" * len(data)
                    stranger.sendto(data, (GROUP, PORT))
                sent += _PER_TURN
            time.sleep(0.0005)
    return sent


def start(role: str) -> "subprocess.Popen[str]":
    made = subprocess.Popen([sys.executable, __file__, role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    assert made.stdout.readline() == "ready\n"
    return made


def received(subscriber: "subprocess.Popen[str]") -> int:
    assert subscriber.stdin is not None
    assert subscriber.stdout is not None
    subscriber.stdin.write("\n")
    subscriber.stdin.flush()
    return int(subscriber.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(prog="flood", description="Flood a bus with new senders, and with noise.")
    parser.add_argument("role", nargs="?", choices=["publish", "subscribe"], help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=40_000, help="datagrams a second (default: 40000)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each kind (default: 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn (default: 2)")
    options = parser.parse_args()
    if options.role is not None:
        asyncio.run({"publish": publish, "subscribe": subscribe}[options.role]())
        return
    subscriber, publisher = start("subscribe"), start("publish")
    rates: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    sent_per_s: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    first = 1
    time.sleep(1.0)
    for _ in range(options.rounds):
        for kind in _KINDS:
            before, began = received(subscriber), time.monotonic()
            sent = flood(kind, options.rate, options.seconds, first)
            first += sent
            elapsed_s = time.monotonic() - began
            rates[kind].append((received(subscriber) - before) / elapsed_s)
            sent_per_s[kind].append(sent / elapsed_s)
    publisher.communicate("end\n")
    subscriber.communicate()
    print(f"load {os.getloadavg()[0]:.1f}")
    for kind in _KINDS:
        share = median(rates[kind]) / median(rates["nothing"])
        print(f"{kind}: {median(sent_per_s[kind]):.0f} datagrams/s, {median(rates[kind]):.0f} messages/s, {share:.0%}")


if __name__ == "__main__":
    main()
