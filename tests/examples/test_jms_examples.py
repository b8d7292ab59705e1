"""The examples of `fjm2.jms` do what they say."""

from pathlib import Path

from test_examples import Listen, lines_of, listen, port, run

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
        *(f"topic://bills: bill for {order}" for order in ("tea", "bad coffee", "cake")),
        *(f"topic://parcels: parcel with {order}" for order in ("tea", "bad coffee", "cake")),
    ]


def test_there_are_no_other_examples_of_jms() -> None:
    found = {path.name for path in (Path(__file__).parents[2] / "examples").glob("jms_*.py")}
    assert found == {"jms_publish.py", "jms_subscribe.py", "jms_request.py", "jms_transaction.py"}
