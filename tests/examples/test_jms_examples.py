"""Tests that the examples of `fjm2.jms` do what their docstrings say."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from test_examples import EXAMPLES, Listen, lines_of, listen, port, run

from fjm2.jms import ConnectionFactory

__all__ = ["listen", "port"]


def uri_of(port: str) -> str:
    return ConnectionFactory(f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0").uri


def test_prices_are_selected(listen: Listen, port: str) -> None:
    subscribers = [
        listen("jms_subscribe.py", "--uri", uri_of(port), "--selector", selector)
        for selector in ("symbol = 'ABC'", "number >= 6")
    ]
    assert run("jms_publish.py", "--uri", uri_of(port), "--messages", "10").stdout == "10 messages sent\n"
    for subscriber, numbers in zip(subscribers, ([0, 2, 4, 6, 8], [6, 7, 8, 9]), strict=True):
        *lines, last = lines_of(subscriber)
        assert [int(line.partition(":")[0]) for line in lines] == numbers
        assert last == f"{len(numbers)} messages"


def test_questions_are_answered(listen: Listen, port: str) -> None:
    servers = [listen("jms_request.py", "--uri", uri_of(port), "--serve", "1") for _ in range(2)]
    asked = run("jms_request.py", "--uri", uri_of(port), "--replies", "2", "who is there?")
    assert asked.stdout.splitlines() == ["you asked: who is there?"] * 2
    for server in servers:
        assert lines_of(server) == []


def test_orders_that_fail_leave_no_trace(port: str) -> None:
    said = run("jms_transaction.py", "--uri", uri_of(port)).stdout.splitlines()
    assert said == [
        "rolled back: bad coffee",
        "here again, delivery 2: bad coffee",
        *(f"topic://bills: bill for {order}" for order in ("tea", "bad coffee", "cake")),
        *(f"topic://parcels: parcel with {order}" for order in ("tea", "bad coffee", "cake")),
    ]


def test_jobs_are_shared_by_the_threads_of_a_worker(listen: Listen, port: str) -> None:
    worker = listen("jms_worker.py", "--uri", uri_of(port), "--threads", "3")
    said = run("jms_worker.py", "--uri", uri_of(port), "--submit", "9").stdout.splitlines()
    results = [re.fullmatch(r"job (\d): done by thread (\d)", line) for line in said]
    assert sorted(result[1] for result in results if result) == [str(number) for number in range(9)]
    assert {result[2] for result in results if result} == {"1", "2", "3"}
    worker.send_signal(signal.SIGINT)
    assert worker.communicate(timeout=30)[0] == ""
    assert worker.returncode == 130


def test_alarms_overtake_waiting_messages(listen: Listen, port: str) -> None:
    listener = listen("jms_lanes.py", "--uri", uri_of(port), "--listen")
    run("jms_lanes.py", "--uri", uri_of(port), "--messages", "3000", "--rate", "20mbit")
    *alarms, last = lines_of(listener)
    overtaken = [re.fullmatch(r"alarm (\d) overtook (\d+) messages", line) for line in alarms]
    assert [one[1] for one in overtaken if one] == ["1", "2", "3"]
    assert all(int(one[2]) > 100 for one in overtaken if one)
    assert last == "3000 messages of bulk"


def test_watchers_see_the_topics_that_match(listen: Listen, port: str) -> None:
    rooms = ("kitchen", "cellar", "attic")
    patterns = ("sensors/*/temperature", 6), ("sensors/cellar/>", 4), ("sensors/>", 12)
    watchers = [
        listen("jms_patterns.py", "--uri", uri_of(port), "--count", str(count), name) for name, count in patterns
    ]
    assert run("jms_patterns.py", "--uri", uri_of(port), "--measure", "2").stdout == "12 messages sent\n"
    temperatures, cellar, everything = ([line.partition(":")[0] for line in lines_of(one)] for one in watchers)
    assert temperatures == [f"sensors/{room}/temperature" for room in rooms] * 2
    assert cellar == ["sensors/cellar/temperature", "sensors/cellar/humidity"] * 2
    assert everything == [f"sensors/{room}/{kind}" for room in rooms for kind in ("temperature", "humidity")] * 2


def test_chatters_see_others_but_not_their_own_messages(port: str) -> None:
    with Chatter(port, "Ann") as ann, Chatter(port, "Bob") as bob:
        ann.hears("* Bob is here")
        bob.says("hello")
        ann.hears("Bob: hello")
        ann.says("bye, all of you")
        bob.hears("Ann: bye, all of you")
        assert ann.leaves() == []
        assert bob.leaves() == ["* Ann has left"]


class Chatter:
    """A user of the chat example at a terminal."""

    def __init__(self, port: str, name: str) -> None:
        words = [sys.executable, "-W", "error", EXAMPLES / "jms_chat.py", "--uri", uri_of(port), name]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hears("listening; type a line to send it")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def hears(self, line: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{line}\n"

    def says(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def leaves(self) -> list[str]:
        """End the program with Ctrl-D, and return its remaining output."""
        return lines_of(self._process)


def test_there_are_no_other_examples_of_jms() -> None:
    found = {path.name for path in (Path(__file__).parents[2] / "examples").glob("jms_*.py")}
    assert found == {
        "jms_chat.py",
        "jms_lanes.py",
        "jms_patterns.py",
        "jms_publish.py",
        "jms_request.py",
        "jms_subscribe.py",
        "jms_transaction.py",
        "jms_worker.py",
    }
