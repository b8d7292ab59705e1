"""Tests of forked children: a connection stays with its parent, and the child says so instead of sending nowhere."""

import subprocess
import sys

import pytest
from buses import uri

pytestmark = pytest.mark.calm

PROGRAM_S = 30
"""Time for a program of a test. Each takes about three seconds."""

BLOCKING = """
import os, sys
from fjm2.jms import IllegalStateError, Topic
from fjm2.jms.blocking import ConnectionFactory

T, FACTORY = Topic("forks"), ConnectionFactory(sys.argv[1], client_id="desk-7")

def in_child(function):
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            function()
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(pid, 0)

def refused(name, call):
    try:
        call()
        print(name, "returned")
    except IllegalStateError as error:
        print(name, error)

def use():
    refused("send", lambda: producer.send(T, "lost"))
    refused("send_many", lambda: producer.send_many(T, ["lost"]))
    refused("session", lambda: context.create_context())
    refused("consumer", lambda: context.create_consumer(T))
    refused("receive", lambda: consumer.receive(timeout=1))
    refused("subscribers", lambda: context.subscribers(T))
    refused("commit", lambda: transacted.commit())

def close():
    consumer.close()
    transacted.close()
    context.close()
    print("closed")

def own():
    with FACTORY.create_context() as other:
        other.ready()
        other.send(T, "of the child")

with FACTORY.create_context() as context, ConnectionFactory(sys.argv[1]).create_context() as listening:
    context.exception_listener = lambda error: "also in use" in str(error) or print("PROBLEM", error)
    audience = listening.create_consumer(T)
    consumer = context.create_consumer(T)
    transacted = context.create_context(0)
    producer = context.create_producer()
    for text in ("one", "two"):
        producer.send(T, text)
        print("parent got", audience.receive_body(str, 5))
    print("consumer got", consumer.receive_body(str, 5))  # a second one is at the consumer's thread
    for function in (use, close, own):
        in_child(function)
    print("parent got", audience.receive_body(str, 5))
    print("consumer got", consumer.receive_body(str, 5), consumer.receive_body(str, 5))
    producer.send(T, "still there")
    print("parent got", audience.receive_body(str, 5))
    print("hears", context.subscribers(T))
"""

ASYNCIO = """
import asyncio, os, sys
from fjm2.jms import ConnectionFactory, IllegalStateError, Topic

T = Topic("forks")

def stepped(call):
    try:
        call().__await__().send(None)
        return "waits"
    except StopIteration:
        return "returned"
    except IllegalStateError as error:
        return error

async def main():
    async with ConnectionFactory(sys.argv[1]).create_context() as context:
        consumer = context.create_consumer(T)
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            print("send", stepped(lambda: context.send(T, "lost")))
            print("receive", stepped(lambda: consumer.receive(1)))
            print("close", stepped(lambda: context.close()))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        await context.send(T, "still there")
        print("parent got", await consumer.receive_body(str, 5))

asyncio.run(main())
"""

REFUSED = "the connection was opened in another process, which forked this one: open a connection in the child"


def lines_of(program: str, port: int) -> list[str]:
    """Run a program on a bus of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, uri(port)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_forked_child_cannot_use_the_connection_of_a_thread(port: int) -> None:
    names = ("send", "send_many", "session", "consumer", "receive", "subscribers", "commit")
    assert lines_of(BLOCKING, port) == [
        "parent got one",
        "parent got two",
        "consumer got one",
        *(f"{name} {REFUSED}" for name in names),
        "closed",
        "parent got of the child",
        "consumer got two of the child",
        "parent got still there",
        "hears 2",
    ]


def test_a_forked_child_cannot_use_the_connection_of_an_event_loop(port: int) -> None:
    assert lines_of(ASYNCIO, port) == [
        f"send {REFUSED}",
        f"receive {REFUSED}",
        "close returned",
        "parent got still there",
    ]
