"""Tests of `fjm2 pub`, `sub`, `request` and `reply` as processes over the loopback interface, and of the demo."""

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from commanding import DEADLINE_S, PROMPTLY_S, Start, starting
from representatives import representatives

from fjm2.commands import main
from fjm2.commands.support.bus_options import inferred
from fjm2.jms import (
    Byte,
    ConnectionFactory,
    Float,
    Long,
    MapMessage,
    Message,
    ObjectMessage,
    Short,
    StreamMessage,
    TextMessage,
    Topic,
)

GROUP = "239.192.57.99"
DEMO = Path(__file__).parents[3] / "examples" / "demo.py"
TOPIC = "prices.eu"


@pytest.fixture
def uri(port: int) -> str:
    return f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0"


@pytest.fixture
def start(uri: str) -> Iterator[Start]:
    """Return a function that starts commands on the test's own bus.

    The function waits until a listening command listens.
    """
    with starting(uri) as start_one:
        yield start_one


def objects(out: bytes) -> list[Any]:
    return [json.loads(line) for line in out.splitlines()]


# Publishing and subscribing.


def test_a_message_reaches_all_subscribers(start: Start) -> None:
    subs = [start("sub", TOPIC, "--count", 1) for _ in range(2)]
    other = start("sub", "another", "--count", 1, "--timeout", 2)
    code, out, err = start("pub", TOPIC, "grüezi").end()
    assert (code, out) == (0, b"")
    assert err == f"1 message of 7 bytes to topic://{TOPIC}; 2 subscribers\n"
    for sub in subs:
        code, out, err = sub.end()
        assert (code, out) == (0, "grüezi\n".encode())
        assert re.fullmatch(r"1 message in \d+\.\d s\n", err)
    assert other.end()[:2] == (1, b"")


def test_a_pattern_is_subscribed_to(start: Start) -> None:
    sub = start("sub", "prices.>", "--count", 2, "--json")
    assert start("pub", "orders.eu", "no").end()[0] == 0
    for topic in ("prices.eu", "prices.us.spot"):
        code, _, err = start("pub", topic, topic).end()
        told = err.partition("; ")[2]
        assert (code, told) == (0, "no known subscribers, and 1 that may get the topic by a pattern\n")
    code, out, _ = sub.end()
    assert code == 0
    assert [one["destination"] for one in objects(out)] == ["topic://prices.eu", "topic://prices.us.spot"]


def test_nothing_is_published_to_a_pattern(uri: str) -> None:
    result = CliRunner().invoke(main, ["pub", "prices.*", "a", "--uri", uri])
    assert result.exit_code == 2
    assert "'prices.*' is a pattern: expected one topic" in result.output
    result = CliRunner().invoke(main, ["sub", "prices*", "--uri", uri])
    assert result.exit_code == 2
    assert "the level 'prices*' has more than a wildcard" in result.output


def test_a_publisher_does_not_wait_for_absent_subscribers(start: Start) -> None:
    began_at = time.monotonic()
    code, _, err = start("pub", TOPIC, "hello").end()
    assert (code, err) == (0, f"1 message of 5 bytes to topic://{TOPIC}; no known subscribers\n")
    assert time.monotonic() - began_at < PROMPTLY_S


def test_lines_of_standard_input(start: Start) -> None:
    sub = start("sub", TOPIC, "--count", 4)
    lines = [b"one", b"", b"three " + b"x" * 100_000, b"no end of line"]
    assert start("pub", TOPIC, "-", "--quiet").end(b"\n".join(lines)) == (0, b"", "")
    assert sub.end()[:2] == (0, b"\n".join(lines) + b"\n")


def test_lines_are_sent_as_they_come(start: Start) -> None:
    sub = start("sub", TOPIC)
    pub = start("pub", TOPIC, "-")
    assert pub.popen.stdin is not None
    for number in range(3):
        pub.popen.stdin.write(b"%d\n" % number)
        assert sub.read_line() == b"%d\n" % number
    assert pub.end()[0] == 0


@pytest.mark.parametrize("number", representatives([signal.SIGKILL, signal.SIGSTOP], signal.SIGKILL))
def test_a_dead_subscriber_is_told_once(start: Start, uri: str, number: signal.Signals) -> None:
    uri += "&ack_timeout_s=1"
    sub = start("sub", TOPIC, "--client-id", "desk", uri=uri)
    pub = start("pub", TOPIC, "--rate", 200, "-", uri=uri)
    assert pub.popen.stdin is not None
    assert pub.popen.stderr is not None
    pub.popen.stdin.write(b"price\n")
    assert sub.read_line() == b"price\n"
    sub.popen.send_signal(number)
    pub.popen.stdin.write(b"price\n" * 300)
    told = pub.popen.stderr.readline().decode()
    assert told.startswith("not confirmed: 1 subscriber did not confirm persistent messages: 'desk' at 127.0.0.1"), told
    if number == signal.SIGSTOP:
        sub.popen.send_signal(signal.SIGCONT)
        assert pub.popen.stderr.readline() == b"confirms again: 'desk' at 127.0.0.1\n"
        sub.popen.kill()
        pub.popen.stdin.write(b"price\n")
        assert pub.popen.stderr.readline().startswith(b"not confirmed: ")
    code, _, err = pub.end(b"price\n")
    assert (code, err.count("\n")) == (1, 1), err
    assert err.endswith("; 1 subscriber\n")


def test_pub_ends_when_its_time_is_over(start: Start, uri: str) -> None:
    """At 200 kbit/s the messages would take half a minute."""
    sub = start("sub", TOPIC)
    began = time.monotonic()
    pub = start("pub", TOPIC, "--count", 700, "--size", 1024, "--timeout", 1, uri=f"{uri}&rate=200kbit")
    code, _, err = pub.end()
    assert time.monotonic() - began < 15
    assert code == 1
    assert err.splitlines()[0] == "not confirmed: subscribers did not confirm everything within 1 s"
    assert err.count("\n") == 2, err
    sub.popen.kill()


def test_a_file_is_sent_and_kept_under_its_name(start: Start, tmp_path: Path) -> None:
    source, kept = tmp_path / "a.bin", tmp_path / "kept"
    source.write_bytes(bytes(range(256)) * 4000)
    kept.mkdir()
    sub = start("sub", TOPIC, "--count", 2, "--save-to", kept, "--json")
    plain = start("sub", TOPIC, "--count", 2)
    for _ in range(2):
        code, _, err = start("pub", TOPIC, "--file", source, "-p", "room=5").end()
        assert (code, err) == (0, f"1 message of 1,024,000 bytes to topic://{TOPIC}; 2 subscribers\n")
    assert plain.end()[1] == b'{"name": "a.bin", "size": 1024000}\n' * 2  # without --save-to, it is not kept
    code, out, _ = sub.end()
    assert code == 0
    first, second = objects(out)
    assert (first["kind"], first["properties"]) == ("file", {"room": 5})
    assert first["body"] == {"name": "a.bin", "size": 1_024_000, "path": str(kept / "a.bin")}
    assert second["body"]["path"] == str(kept / "a-2.bin")
    for path in (kept / "a.bin", kept / "a-2.bin"):
        assert path.read_bytes() == source.read_bytes()


def test_the_whole_of_standard_input(start: Start) -> None:
    content = bytes(range(256)) * 4000
    sub = start("sub", TOPIC, "--count", 1, "--no-newline")
    assert start("pub", TOPIC, "-", "--whole", "--bytes", "--quiet").end(content) == (0, b"", "")
    assert sub.end()[:2] == (0, content)


def test_numbered_messages_at_a_rate(start: Start) -> None:
    sub = start("sub", TOPIC, "--json", "--count", 300, "--selector", "number > 100")
    began_at = time.monotonic()
    code, _, err = start("pub", TOPIC, "--count", 400, "--size", 50, "--rate", 400).end()
    assert code == 0
    assert time.monotonic() - began_at >= 1.0
    assert err.startswith("400 messages, 20,000 bytes in all, to topic://prices.eu in ")
    told = objects(sub.end()[1])
    assert [message["properties"] for message in told] == [{"number": number} for number in range(101, 401)]
    assert all(message["body"].startswith(f"{message['properties']['number']} abc") for message in told)
    assert {len(message["body"]) for message in told} == {50}


def test_a_body_many_times(start: Start) -> None:
    sub = start("sub", TOPIC, "--count", 1000)
    assert start("pub", TOPIC, "again", "--count", 1000).end()[0] == 0
    assert sub.end()[:2] == (0, b"again\n" * 1000)


def test_headers_and_properties(start: Start) -> None:
    as_json, verbose = start("sub", TOPIC, "--json", "--count", 1), start("sub", TOPIC, "-v", "--count", 1)
    options = ["-p", "b=true", "-p", "i=5", "-p", "l=5000000000", "-p", "d=0.5", "-p", "s=007", "-p", "y:byte=7"]
    options += ["-p", "f:float=0.5", "-p", "h:short=-7", "-p", "t:string=5", "-p", "e="]
    headers = [
        "--priority",
        7,
        "--time-to-live",
        60,
        "--type",
        "greeting",
        "--correlation-id",
        "c 1",
        "--non-persistent",
    ]
    before_ms = time.time() * 1000
    assert start("pub", TOPIC, "hello", "--client-id", "me", *options, *headers).end()[0] == 0
    (told,) = objects(as_json.end()[1])
    assert re.fullmatch(r"ID:[0-9a-f]{16}-\d+", told.pop("message_id"))
    assert before_ms - 1 <= told["timestamp"] <= time.time() * 1000
    assert told.pop("expiration") == told.pop("timestamp") + 60_000
    assert told == {
        "destination": f"topic://{TOPIC}",
        "delivery_mode": "NON_PERSISTENT",
        "priority": 7,
        "redelivered": False,
        "type": "greeting",
        "correlation_id": "c 1",
        "reply_to": None,
        "properties": {
            "b": True, "d": 0.5, "e": "", "f": 0.5, "h": -7, "i": 5, "l": 5_000_000_000, "s": "007", "t": "5", "y": 7,
        },
        "property_types": {
            "b": "boolean", "d": "double", "e": "string", "f": "float", "h": "short",
            "i": "int", "l": "long", "s": "string", "t": "string", "y": "byte",
        },
        "kind": "text",
        "body": "hello",
    }  # fmt: skip
    lines = verbose.end()[1].decode().splitlines()
    assert lines[0] == f"JMSDestination: topic://{TOPIC}"
    for line in ("JMSPriority: 7", "JMSType: greeting", "JMSCorrelationID: c 1", "y: byte 7", 's: string "007"'):
        assert line in lines
    assert lines[-3:] == ["", "hello", ""]


def test_a_text_with_line_breaks_adds_no_header(start: Start) -> None:
    verbose = start("sub", TOPIC, "-v", "--count", 1)
    forged = "order\nJMSPriority: 9\nadmin: boolean true"
    assert start("pub", TOPIC, "hello", "--type", forged, "--correlation-id", forged).end()[0] == 0
    lines = verbose.end()[1].decode().splitlines()
    assert r"JMSType: order\nJMSPriority: 9\nadmin: boolean true" in lines
    assert "JMSPriority: 9" not in lines
    assert "admin: boolean true" not in lines


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("True", "True"),
        ("-5", -5),
        ("-0", 0),
        ("05", "05"),
        ("9223372036854775807", (1 << 63) - 1),
        ("9223372036854775808", "9223372036854775808"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("1.2.3", "1.2.3"),
        ("nan", "nan"),
        ("٣", "٣"),
        ("", ""),
    ],
)
def test_types_are_inferred(text: str, value: object) -> None:
    assert (inferred(text), type(inferred(text))) == (value, type(value))


async def _send(uri: str, *messages: Message) -> None:
    async with ConnectionFactory(uri).create_context() as context:
        for message in messages:
            await context.create_producer().send(Topic(TOPIC), message)


def test_every_kind_of_body(start: Start, uri: str) -> None:
    mapped, stream = MapMessage(), StreamMessage()
    values = {
        "n": 5,
        "y": Byte(7),
        "h": Short(8),
        "l": Long(9),
        "f": Float(0.5),
        "b": b"\xff\0",
        "none": None,
        "t": "x",
    }
    for name, value in values.items():
        mapped.set_object(name, value)
        stream.write_object(value)
    plain = [5, 7, 8, 9, 0.5, "/wA=", None, "x"]
    types = ["int", "byte", "short", "long", "float", "bytes", "null", "string"]
    sub, bodies = start("sub", TOPIC, "--json", "--count", 5), start("sub", TOPIC, "--count", 5)
    empty = TextMessage()
    asyncio.run(_send(uri, mapped, stream, ObjectMessage({"a": [1, b"\xff", float("inf")]}), empty, Message()))
    told = objects(sub.end()[1])
    assert [(message["kind"], message["body"]) for message in told] == [
        ("map", dict(zip(values, plain, strict=True))),
        ("stream", plain),
        ("object", {"a": [1, "/w==", "inf"]}),
        ("text", None),
        ("message", None),
    ]
    assert told[0]["body_types"] == dict(zip(values, types, strict=True))
    assert told[1]["body_types"] == types
    lines = bodies.end()[1].splitlines()
    assert [json.loads(line) for line in lines[:3]] == [message["body"] for message in told[:3]]
    assert lines[3:] == [b"", b""]


def test_bytes_are_base64_in_json(start: Start) -> None:
    sub = start("sub", TOPIC, "--json", "--count", 1)
    assert start("pub", TOPIC, os.fsdecode(b"\xff\xfe"), "--bytes").end()[0] == 0
    (told,) = objects(sub.end()[1])
    assert (told["kind"], base64.b64decode(told["body"])) == ("bytes", b"\xff\xfe")


# How commands end.


def test_ctrl_c_ends_a_subscriber(start: Start) -> None:
    sub = start("sub", TOPIC)
    assert start("pub", TOPIC, "hello").end()[0] == 0
    assert sub.read_line() == b"hello\n"
    code, out, err = sub.interrupt()
    assert (code, out) == (130, b"")
    assert re.fullmatch(r"1 message in \d+\.\d s\n", err)


def test_ctrl_c_ends_a_publisher(start: Start) -> None:
    sub = start("sub", TOPIC, "--json")
    pub = start("pub", TOPIC, "--count", 1_000_000, "--rate", 500)
    assert objects(sub.read_line())[0]["properties"] == {"number": 1}
    code, _, err = pub.interrupt()
    assert code == 130
    told = re.match(r"([\d,]+) messages?(?:,| of) [\d,]+ bytes (?:in all, )?to ", err)
    assert told is not None
    assert len(err.splitlines()) == 1
    sent, received = int(told[1].replace(",", "")), 1
    while received < sent:
        received = objects(sub.read_line())[0]["properties"]["number"]
    time.sleep(0.3)
    rest = objects(sub.interrupt()[1])
    # The message that was being sent when Ctrl-C came may be counted or not.
    assert 0 <= (rest[-1]["properties"]["number"] if rest else received) - sent <= 1


def test_ctrl_c_ends_a_publisher_that_waits_for_input(start: Start) -> None:
    sub = start("sub", TOPIC)
    pub = start("pub", TOPIC, "-")
    assert pub.popen.stdin is not None
    pub.popen.stdin.write(b"one\n")
    assert sub.read_line() == b"one\n"
    pub.popen.send_signal(signal.SIGINT)
    assert pub.popen.wait(PROMPTLY_S) == 130


def test_time_ends_a_subscriber(start: Start) -> None:
    assert start("sub", TOPIC, "--timeout", 0.3).end()[0] == 0
    code, out, err = start("sub", TOPIC, "--timeout", 0.3, "--count", 1).end()
    assert (code, out) == (1, b"")
    assert re.fullmatch(r"0 messages in 0\.\d s\n", err)


def test_head_ends_a_subscriber(start: Start) -> None:
    sub = start("sub", TOPIC)
    assert sub.popen.stdout is not None
    assert start("pub", TOPIC, "one").end()[0] == 0
    assert sub.read_line() == b"one\n"
    sub.popen.stdout.close()
    sub.popen.stdout = None
    assert start("pub", TOPIC, "two").end()[0] == 0
    assert sub.popen.wait(PROMPTLY_S) == 0
    assert sub.popen.stderr is not None
    assert re.fullmatch(rb"2 messages in \d+\.\d s\n", sub.popen.stderr.read())


def test_a_reader_that_is_slow_holds_the_publisher_back_and_loses_nothing(start: Start) -> None:
    sub = start("sub", TOPIC, "--count", 3000)
    pub = start("pub", TOPIC, "--count", 3000, "--size", 1000)
    time.sleep(1.0)  # by now more messages have arrived than a pipe holds
    assert sub.popen.poll() is None
    code, out, _ = sub.end()
    assert code == 0
    assert [int(line.split()[0]) for line in out.splitlines()] == list(range(1, 3001))
    assert pub.end()[0] == 0


def test_a_publisher_that_dies_is_a_loss(start: Start, uri: str) -> None:
    sub = start("sub", TOPIC, "--count", 3, "--timeout", 8, uri=f"{uri}&inactivity_s=1")
    pub = start("pub", TOPIC, "--count", 1_000_000, "--rate", 1, uri=f"{uri}&inactivity_s=1")
    sub.read_line()
    pub.popen.kill()
    code, _, err = sub.end()
    assert code == 1
    assert re.search(r"^lost: .* at 127\.0\.0\.1 \(node 0x[0-9a-f]+\) is gone: ", err, re.MULTILINE)
    assert re.search(r"^[12] messages? in \d+\.\d s, 1 loss$", err, re.MULTILINE)


# Requests and replies.


def test_requests_are_answered(start: Start) -> None:
    replier = start("reply", TOPIC, "{number}: you asked {request} in {braces}", "--count", 2)
    assert start("request", TOPIC, "one").end() == (0, b"1: you asked one in {braces}\n", "")
    code, out, _ = start("request", TOPIC, "-", "--json").end(b"two\nlines")
    (told,) = objects(out)
    assert (code, told["body"]) == (0, "2: you asked two\nlines in {braces}")
    assert told["correlation_id"].startswith("ID:")
    assert told["destination"].startswith("temp-topic://")
    assert replier.end() == (0, b"", "2 replies to 2 requests\n")


def test_the_replies_of_many(start: Start) -> None:
    for _ in range(3):
        start("reply", TOPIC, "--echo")
    assert start("request", TOPIC, "x", "--replies", 3).end() == (0, b"x\n" * 3, "")
    assert start("request", TOPIC, "x", "--replies", 0, "--timeout", 1).end() == (0, b"x\n" * 3, "")
    code, out, err = start("request", TOPIC, "x", "--replies", 4, "--timeout", 1).end()
    assert (code, out) == (1, b"x\n" * 3)
    node = "node 0x[0-9a-f]{8}"
    asked = f"asked 3 subscribers: {node}, {node} and {node}"
    assert re.fullmatch(f"Error: 3 of 4 replies from topic://{TOPIC} within 1 s: {asked}\n", err)


def test_bytes_are_answered_with_bytes(start: Start) -> None:
    start("reply", TOPIC, "--echo")
    body = os.fsdecode(b"\xff\0"[:1])
    code, out, _ = start("request", TOPIC, body, "--bytes", "--json").end()
    assert (code, objects(out)[0]["kind"], objects(out)[0]["body"]) == (0, "bytes", "/w==")


def test_commands_answer(start: Start) -> None:
    replier = start("reply", TOPIC, "--command", "tr a-z A-Z")
    assert start("request", TOPIC, "shout; $HOME").end() == (0, b"SHOUT; $HOME\n", "")
    code, _, err = replier.interrupt()
    assert (code, err) == (130, "1 reply to 1 request\n")


def test_commands_that_fail_do_not_answer(start: Start) -> None:
    replier = start("reply", TOPIC, "--command", "false", "--count", 1)
    code, _, err = start("request", TOPIC, "x", "--timeout", 1).end()
    assert code == 1
    assert re.fullmatch(
        rf"Error: no reply from topic://{TOPIC} within 1 s: asked 1 subscriber: node 0x\w{{8}}.*\n", err
    )
    assert replier.end()[2] == "warning: false failed with exit code 1: no reply\n0 replies to 1 request\n"


def test_messages_without_reply_to_get_no_reply(start: Start) -> None:
    replier = start("reply", TOPIC, "--echo", "--count", 1)
    assert start("pub", TOPIC, "x").end()[0] == 0
    assert re.fullmatch(r"warning: ID:\S+ has no reply-to\n0 replies to 1 request\n", replier.end()[2])


def test_no_reply_in_time(start: Start) -> None:
    code, out, err = start("request", TOPIC, "x", "--timeout", 0.5).end()
    assert (code, out) == (1, b"")
    expected = (
        f"Error: no reply from topic://{TOPIC} within 0.5 s: no subscriber of it is known: is its service running"
    )
    assert err.startswith(expected)


# Mistakes.

MISTAKES = [
    ("pub t", "expected BODY, or - for standard input, or --count or --size for test messages"),
    ("pub t x --size 3", "--size is only valid for test messages, without BODY"),
    ("pub t - --count 3", "--count is not valid for standard input"),
    ("pub t x --whole", "--whole is only valid for standard input: fjm2 pub TOPIC - --whole"),
    ("pub t x -p a", "Invalid value for '-p' / '--property': 'a': expected NAME=VALUE or NAME:TYPE=VALUE"),
    (
        "pub t x -p a:word=1",
        "Invalid value for '-p' / '--property': 'a:word=1': unknown type 'word', expected one of bool",
    ),
    (
        "pub t x -p a:byte=300",
        "Invalid value for '-p' / '--property': 'a:byte=300': '300' is not a valid byte, expected -128 to",
    ),
    (
        "pub t x -p a:boolean=1",
        "Invalid value for '-p' / '--property': 'a:boolean=1': '1' is not a valid boolean, expected true",
    ),
    ("pub t x -p 1a=3", "Invalid value for '-p' / '--property': '1a=3': '1a' is not a property name"),
    ("pub t x -p JMSX=3", "Invalid value for '-p' / '--property': 'JMSX=3': JMSX cannot be set by applications"),
    ("pub t x -p a=1 -p a=2", "Invalid value for '-p' / '--property': a: given twice, expected once"),
    ("pub t x --priority 10", "Invalid value for '--priority': 10 is not in the range 0<=x<=9."),
    (
        "pub t x --uri http://h",
        "Invalid value for '--uri' (env var: 'FJM2_URI'): uri='http://h': expected fjm2://GROUP",
    ),
    (
        "pub t x --uri fjm2://?rate=fast",
        "Invalid value for '--uri' (env var: 'FJM2_URI'): rate=fast: expected bits",
    ),
    (
        "sub t --uri fjm2://10.0.0.1:5740",
        "Invalid value for '--uri' (env var: 'FJM2_URI'): 10.0.0.1 is the address of one host: expected a multicast",
    ),
    (
        "top --once --uri fjm2://10.0.0.1:5740",
        "Invalid value for '--uri' (env var: 'FJM2_URI'): 10.0.0.1 is the address of one host: expected a multicast",
    ),
    ("sub t --client-id=", "Invalid value for '--client-id': expected a name that is not empty"),
    ("sub t --uri fjm2://?interface=eth77", "interface='eth77': expected the name or the IPv4 address of an interface"),
    ("sub t --selector a>>3", "Invalid value for '--selector': 'a>>3': expected a name, a literal"),
    ("sub t --overflow burst", "Invalid value for '--overflow': 'burst' is not one of 'block', 'drop_oldest'"),
    ("sub t --count 0", "Invalid value for '--count': 0 is not in the range x>=1."),
    ("request t", "Missing argument 'BODY'."),
    ("request t x --timeout 0", "Invalid value for '--timeout': 0: expected more than 0s"),
    ("reply t", "expected exactly one of BODY, --echo and --command"),
    ("reply t x --echo", "expected exactly one of BODY, --echo and --command"),
    ("reply t --command '", '--command "\'": No closing quotation'),
]


@pytest.mark.parametrize(("line", "answer"), MISTAKES)
def test_mistakes_are_reported_in_one_line(line: str, answer: str) -> None:
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == (1 if answer.startswith("interface") else 2)
    *usage, told = result.stderr.splitlines()
    assert told.startswith(f"Error: {answer}")
    assert all(part.startswith(("Usage:", "Try ")) or not part for part in usage)


def test_a_selector_error_shows_its_position() -> None:
    result = CliRunner().invoke(main, ["sub", "t", "--selector", "price > AND"])
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith(" at position 8")


def test_a_topic_has_a_name() -> None:
    result = CliRunner().invoke(main, ["pub", "", "x"])
    assert (result.exit_code, "is not a destination name" in result.stderr) == (2, True)


def test_input_that_is_not_text_is_refused(start: Start) -> None:
    code, _, err = start("pub", TOPIC, "-", "--quiet").end(b"\xff\n")
    assert (code, err) == (1, "Error: a body is not UTF-8 (invalid start byte): send it with --bytes\n")


@pytest.mark.parametrize("command", ["pub", "sub", "request", "reply"])
def test_help_has_an_example(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"Example: fjm2 {command} " in result.stdout


def test_the_bus_is_that_of_the_environment_or_of_the_option(start: Start, uri: str, port: int) -> None:
    elsewhere = f"fjm2://{GROUP}:{port + 1}?interface=127.0.0.1&ttl=0"
    sub = start("sub", TOPIC, "--count", 1, uri=elsewhere)
    assert "no known subscribers" in start("pub", TOPIC, "here").end()[2]
    assert start("pub", TOPIC, "there", "--uri", elsewhere, uri=uri).end()[0] == 0
    assert sub.end()[1] == b"there\n"


# The demo.


def test_the_demo_repairs_its_losses(port: int) -> None:
    argv = [sys.executable, "-W", "error", str(DEMO), "--port", str(port), "--seconds", "1.5", "--loss", "0.05"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "  subscriber 3 (symbol = 'ABC') got: ABC costs 17.00\n" in done.stdout
    arrived = re.findall(r"subscriber (\d): ([\d,]+) of ([\d,]+) messages: (.*)", done.stdout)
    assert [(name, verdict) for name, *_, verdict in arrived] == [(name, "all, once, in order") for name in "123"]
    counts = [int(came.replace(",", "")) for _, came, *_ in arrived]
    assert [came for _, came, *_ in arrived] == [total for *_, total, _ in arrived]
    assert counts[0] == counts[1] > 100
    assert counts[2] == -(-counts[0] // 4)
    lost = re.search(r"([\d,]+) datagrams were lost .* after ([\d,]+) requests .* repeated ([\d,]+)", done.stdout)
    assert lost is not None
    assert all(int(figure.replace(",", "")) > 0 for figure in lost.groups())
    assert "pub greetings hello" in done.stdout


def test_ctrl_c_ends_the_demo(port: int) -> None:
    argv = [sys.executable, "-W", "error", str(DEMO), "--port", str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline().startswith("Starting")
        time.sleep(0.5)
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=DEADLINE_S)
    assert (demo.returncode, err) == (130, "")
    assert "Traceback" not in out
