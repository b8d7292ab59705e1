"""Tests of metrics over HTTP while real connections send over the loopback. Prometheus's own parser reads them."""

import asyncio
import errno
import logging
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fjm2 import metrics
from fjm2.errors import ConfigError
from fjm2.jms import ConnectionFactory, Topic
from fjm2.jms import blocking as jms_blocking
from fjm2.norm import Session

WAIT_S = 20.0
TOPIC = Topic("fjm2.metrics")
GROUP = "239.192.57.40"
COUNT = 100

Samples = dict[tuple[str, str], float]
"""Values of metrics, by the name of the metric and its source."""


def uri(port: int, more: str = "") -> str:
    return f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0{more}"


def get(address: str, path: str = "/metrics", **options: Any) -> str:
    request = urllib.request.Request(f"http://{address}{path}", **options)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        assert answer.headers["Content-Type"] == metrics.CONTENT_TYPE
        body: bytes = answer.read()
    return body.decode()


def read(text: str) -> Samples:
    """Return the values that Prometheus would store for this text. Fail if a value comes twice."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            key = sample.name, ",".join(labels.get(name, "") for name in ("source", "reason")).strip(",")
            assert key not in samples
            assert set(labels) <= {"group", "source", "reason", "version"}
            samples[key] = sample.value
    return samples


def test_a_scrape_returns_the_counters_of_connections(port: int) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(WAIT_S),
            ConnectionFactory(uri(port)).create_context() as sending,
            ConnectionFactory(uri(port, "&dscp=8")).create_context() as receiving,
        ):
            consumer = receiving.create_consumer(TOPIC)
            await consumer.ready()
            producer = sending.create_producer()
            for number in range(COUNT):
                await producer.send(TOPIC, f"{number}")
            for _ in range(COUNT - 1):
                await consumer.receive(WAIT_S)
            with metrics.serve_metrics("127.0.0.1:0", sending, receiving) as server:
                text = await asyncio.to_thread(get, server.address)
            found = read(text)
            there = receiving.statistics().bus
            # The sources of the first argument of `serve_metrics` get the plain names.
            assert found["fjm2_sent_messages_total", "lane0"] == COUNT
            assert found["fjm2_delivered_messages_total", "bus-2"] == COUNT
            assert found["fjm2_received_messages_total", "bus-2"] >= COUNT
            assert found["fjm2_held_messages", "bus-2"] == 1
            assert found["fjm2_consumers", "bus"] == 0
            assert found["fjm2_received_payload_bytes_total", "lane0-2"] == there.lanes[0].payload_bytes_received
            assert found["fjm2_down", "lane0"] == 0
            assert 'group="239.192.57.40:' in text
            assert read(metrics.render(sending))["fjm2_sent_messages_total", "lane0"] == COUNT

    asyncio.run(run())


def test_without_arguments_all_open_objects_are_served(port: int) -> None:
    def sources() -> set[str]:
        return {source for name, source in read(metrics.render()) if name == "fjm2_sent_bytes_total"}

    async def run() -> None:
        before = sources()
        async with Session(GROUP, port, interface="127.0.0.1", ttl=0):
            assert sources() == before | {"session"}
            async with Session(GROUP, port, interface="127.0.0.1", ttl=0):
                assert sources() == before | {"session", "session-2"}
        assert sources() == before

    asyncio.run(run())


def test_names_are_reused_so_that_there_are_few(port: int) -> None:
    async def run() -> None:
        for _ in range(5):
            async with Session(GROUP, port, interface="127.0.0.1", ttl=0) as session:
                assert ("fjm2_sent_bytes_total", "session") in read(metrics.render(session))

    asyncio.run(run())


def test_connections_of_threads_are_served_while_they_send(port: int) -> None:
    """The server reads counters while another thread changes them."""
    with (
        jms_blocking.ConnectionFactory(uri(port)).create_context() as context,
        metrics.serve_metrics("127.0.0.1:0") as server,
    ):
        context.create_consumer(TOPIC).message_listener = lambda _: None
        producer = context.create_producer()
        for burst in range(1, 21):
            for number in range(50):
                producer.send(TOPIC, f"{number}")
            assert read(get(server.address))["fjm2_delivered_messages_total", "bus"] <= 50 * burst
        deadline = time.monotonic() + WAIT_S
        while read(get(server.address))["fjm2_delivered_messages_total", "bus"] < 1000:
            assert time.monotonic() < deadline


def test_a_scrape_costs_less_than_a_millisecond(port: int) -> None:
    async def run() -> float:
        async with ConnectionFactory(uri(port)).create_context() as context:
            producer = context.create_producer()
            for priority in (4, 5, 7):
                producer.priority = priority
                await producer.send(TOPIC, "x")
            times = []
            for _ in range(30):
                began = time.thread_time()
                metrics.render(context)
                times.append(time.thread_time() - began)
            return min(times)

    assert asyncio.run(run()) < 0.001


# The server.


@pytest.fixture
def server() -> Iterator[metrics.MetricsServer]:
    with metrics.serve_metrics("127.0.0.1:0") as made:
        yield made


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("/", {}, 404),
        ("/metrics/more", {}, 404),
        ("/metrics", {"method": "POST", "data": b""}, 405),
        ("/metrics", {"headers": {"Host": "elsewhere.example"}}, 403),
        ("/metrics", {"headers": {"Host": "127.elsewhere.example"}}, 403),
    ],
)
def test_other_requests_are_refused(
    server: metrics.MetricsServer, path: str, options: dict[str, Any], status: int
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(server.address, path, **options)
    refused.value.close()
    assert refused.value.code == status


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]:9464"])
def test_names_of_this_host_are_accepted(server: metrics.MetricsServer, host: str) -> None:
    assert "fjm2_info" in get(server.address, headers={"Host": host})


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n", b"x" * 20_000, b"\r\n\r\n", b"\xff\xfe \r\n\r\n"])
def test_a_misbehaving_client_does_not_block_others(server: metrics.MetricsServer, sent: bytes) -> None:
    host, _, number = server.address.partition(":")
    with socket.create_connection((host, int(number))) as client:
        client.sendall(sent)
        assert "fjm2_info" in get(server.address)


def test_an_address_in_use_is_reported_as_such(server: metrics.MetricsServer) -> None:
    with pytest.raises(OSError, match=f"cannot serve metrics at {server.address}: ") as refused:
        metrics.serve_metrics(server.address)
    assert refused.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", ":-1", f"127.0.0.1:{'9' * 5000}", "\0:1"]
)
def test_an_invalid_address_is_reported_with_an_example(address: str) -> None:
    with pytest.raises(ConfigError, match=r"expected HOST:PORT, such as 127\.0\.0\.1:9464"):
        metrics.serve_metrics(address)


@pytest.mark.parametrize("address", [":0", "0", "localhost:0"])
def test_the_default_host_is_this_one(address: str) -> None:
    with metrics.serve_metrics(address) as made:
        assert made.address.startswith("127.0.0.1:")


def test_objects_without_counters_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected a Session"):
        metrics.render("a text")


def test_a_forked_process_does_not_hold_the_place(server: metrics.MetricsServer) -> None:
    child = os.fork()
    if not child:
        os._exit(0 if server._listener.fileno() == -1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert "fjm2_info" in get(server.address)


def test_a_server_can_be_closed_while_a_forked_process_lives() -> None:
    server = metrics.serve_metrics("127.0.0.1:0")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    server.close()
    assert not server._thread.is_alive()
    os.close(writing)
    os.close(reading)
    os.waitpid(child, 0)


# The environment.


@pytest.fixture
def served_by_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that sets the variable FJM2_METRICS as if the process had just started."""

    def set_to(address: str) -> None:
        monkeypatch.setenv("FJM2_METRICS", address)

    monkeypatch.setattr(metrics, "_of_environment", None)
    yield set_to
    if metrics._of_environment is not None:
        metrics._of_environment.close()


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_any_program_serves_metrics_if_its_environment_says_so(
    port: int, served_by_environment: Callable[[str], None]
) -> None:
    async def run() -> None:
        for _ in range(2):  # only one server per process
            async with Session(GROUP, port, interface="127.0.0.1", ttl=0):
                found = read(await asyncio.to_thread(get, address))
                assert ("fjm2_sent_bytes_total", "session") in found

    address = free_address()
    served_by_environment(address)
    asyncio.run(run())


@pytest.mark.parametrize("form", ["{}", ":{}"])
def test_a_port_alone_is_one_of_the_loopback_address(
    port: int, served_by_environment: Callable[[str], None], form: str
) -> None:
    async def run() -> None:
        async with Session(GROUP, port, interface="127.0.0.1", ttl=0):
            assert read(await asyncio.to_thread(get, address))

    address = free_address()
    served_by_environment(form.format(address.rpartition(":")[2]))
    asyncio.run(run())


@pytest.mark.parametrize("value", ["nonsense", "99999", "127.0.0.1", "in use"])
def test_a_program_continues_if_metrics_cannot_be_served(
    port: int,
    served_by_environment: Callable[[str], None],
    server: metrics.MetricsServer,
    value: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with Session(GROUP, port, interface="127.0.0.1", ttl=0) as session:
            assert session.statistics().bytes_sent == 0

    served_by_environment(server.address if value == "in use" else value)
    asyncio.run(run())
    (record,) = [record for record in caplog.records if record.name == "fjm2.metrics"]
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("metrics_not_served: FJM2_METRICS: ")
