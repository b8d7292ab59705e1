"""Tests of the web example: it publishes the quotes that clients post, and streams quotes to its clients."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from test_examples import EXAMPLES, Listen, lines_of, listen, port, run
from test_jms_examples import uri_of

httpx = pytest.importorskip("httpx", reason="the extra `gateway` is not installed")
pytest.importorskip("fastapi", reason="the extra `admin` is not installed")

__all__ = ["listen", "port"]

DEADLINE_S = 30.0


@pytest.fixture
def web(port: str) -> Iterator["httpx.Client"]:
    """An HTTP client of the running application.

    After the test, the application must end cleanly although streams are still open.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        tcp_port = probe.getsockname()[1]
    words = [sys.executable, "-W", "error", EXAMPLES / "web_app.py", "--port", str(tcp_port)]
    environment = os.environ | {"FJM2_URI": uri_of(port)}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            said = next(line for line in process.stderr if "running on" in line)
            assert f"http://127.0.0.1:{tcp_port}" in said
            with httpx.Client(base_url=f"http://127.0.0.1:{tcp_port}", timeout=DEADLINE_S, trust_env=False) as client:
                yield client
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=DEADLINE_S)
            assert "Application shutdown complete" in err
            assert "Traceback" not in err
            assert "Aborted" not in err
            assert process.returncode == 0
        finally:
            process.kill()


@contextlib.contextmanager
def streamed(web: "httpx.Client", selector: str = "") -> Iterator[Iterator[str]]:
    """Open a stream of quotes, and yield its lines once the stream has begun."""
    with web.stream("GET", "/quotes", params={"selector": selector}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = (line for line in answer.iter_lines() if line)
        assert next(lines) == ": listening"
        yield lines


def quote_in(line: str) -> tuple[str, int, float]:
    quote = json.loads(line.removeprefix("data: "))
    return quote["symbol"], quote["number"], quote["price"]


def test_posted_quotes_reach_streams_and_the_bus(web: "httpx.Client", listen: Listen, port: str) -> None:
    subscriber = listen("jms_subscribe.py", "--uri", uri_of(port), "--selector", "symbol = 'ABC'")
    with streamed(web) as everything, streamed(web, "symbol = 'XYZ'") as chosen:
        for number, symbol in enumerate(("ABC", "XYZ")):
            answer = web.post(f"/quotes/{symbol}", params={"number": number, "price": 12.5})
            assert answer.status_code == 202
        assert [quote_in(next(everything)) for _ in range(2)] == [("ABC", 0, 12.5), ("XYZ", 1, 12.5)]
        assert quote_in(next(chosen)) == ("XYZ", 1, 12.5)
        run("jms_publish.py", "--uri", uri_of(port), "--messages", "2")
        assert [quote_in(next(everything))[:2] for _ in range(2)] == [("ABC", 0), ("XYZ", 1)]
        assert quote_in(next(chosen))[:2] == ("XYZ", 1)
    assert lines_of(subscriber)[0] == "0: ABC costs 12.5"


def test_wrong_requests_are_refused(web: "httpx.Client") -> None:
    wrong = web.get("/quotes", params={"selector": "symbol ="})
    assert wrong.status_code == 422
    assert "the selector ends where" in wrong.json()["detail"][0]["msg"]
    assert web.post("/quotes/ABC", params={"number": 1, "price": "cheap"}).status_code == 422


@pytest.fixture
def held() -> Iterator[list["httpx.Response"]]:
    """Responses that stay open until the application has ended. The test adds them to this list."""
    answers: list[httpx.Response] = []
    yield answers
    for answer in answers:
        answer.close()


def test_the_application_ends_while_a_client_listens(held: list["httpx.Response"], web: "httpx.Client") -> None:
    answer = web.send(web.build_request("GET", "/quotes"), stream=True)
    held.append(answer)
    assert next(answer.iter_lines()) == ": listening"  # the fixture `web` checks that the application ends
