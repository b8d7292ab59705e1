"""Fixtures of the tests of `fjm2-bench`."""

import contextlib
from collections.abc import Iterator

import pytest
from bench_processes import Process, Start
from fjm2bench.networks.namespaces import Host


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts `fjm2-bench`. Processes that are still running after the test are killed."""
    with contextlib.ExitStack() as started:

        def begin(*arguments: object, host: Host | None = None) -> Process:
            process = Process(*arguments, host=host)
            started.callback(process.stop)
            return process

        yield begin


@pytest.fixture
def uri(port: int) -> str:
    """Return the URI of a bus that stays on the loopback interface."""
    return f"fjm2://239.192.57.41:{port}?interface=127.0.0.1&ttl=0&rate=500mbit&flow=min"
