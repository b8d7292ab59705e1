"""Tests of OpenTelemetry with its real SDK: one trace covers publisher and subscriber, which are separate nodes."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from adapter import WAIT_S, Api, eventually
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from fjm2.errors import ConfigError
from fjm2.jms import ConnectionFactory, Message, TextMessage, Topic
from fjm2.jms.tracing import _replaced
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import FRAME_BYTES
from fjm2.messages.properties import decode_properties, encode_properties
from fjm2.telemetry import TRACE_PARENT, TRACE_STATE, context_of

TOPIC, NEXT = Topic("fjm2.telemetry"), Topic("fjm2.telemetry.next")


class Side:
    """The tracer provider of one program, and the spans that the program has exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def spans(self) -> dict[str, ReadableSpan]:
        found = {span.name: span for span in self.exporter.get_finished_spans()}
        assert len(found) == len(self.exporter.get_finished_spans())
        return found


def trace_of(span: ReadableSpan) -> int:
    return span.context.trace_id


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == parent.context.span_id


async def listening(api: Api, side: Side, topic: Topic, listener: Callable[[Any], Any], **options: Any) -> Any:
    connection = await api.connect(telemetry=side.provider, **options)
    consumer = await (await connection.create_session()).create_consumer(topic)
    consumer.message_listener = listener
    await consumer.ready()
    return connection


async def test_one_trace_goes_through_publisher_and_subscriber(api: Api) -> None:
    here, there = Side(), Side()
    heard: list[str] = []

    def listen(message: TextMessage) -> None:
        with there.tracer.start_as_current_span("work"):
            heard.append(message.text)

    await listening(api, there, TOPIC, listen, dscp=8)
    sending = await api.connect(telemetry=here.provider)
    session = await sending.create_session()
    producer = await session.create_producer(TOPIC)
    message = await session.create_text_message("hello")
    with here.tracer.start_as_current_span("order"):
        await producer.send(message)
    await eventually(lambda: f"process {TOPIC.name}" in there.spans())
    order, send = here.spans()["order"], here.spans()[f"send {TOPIC.name}"]
    process, work = there.spans()[f"process {TOPIC.name}"], there.spans()["work"]
    assert heard == ["hello"]
    assert len({trace_of(span) for span in (order, send, process, work)}) == 1
    assert is_child(send, order)
    assert is_child(process, send)
    assert is_child(work, process)
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert process.attributes == {
        "messaging.system": "fjm2",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": TOPIC.name,
        "messaging.message.id": message.message_id,
    }
    assert send.attributes == {
        **process.attributes,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.body.size": len("hello"),
    }
    assert not message.property_exists(TRACE_PARENT)  # the sender's own message stays as it is


async def test_a_coroutine_listener_works_within_its_span(api: Api) -> None:
    if api.is_blocking:
        return
    side = Side()

    async def listen(_: Message) -> None:
        await asyncio.sleep(0)
        with side.tracer.start_as_current_span("work"):
            await asyncio.sleep(0)

    connection = await listening(api, side, TOPIC, listen)
    await (await (await connection.create_session()).create_producer(TOPIC)).send(Message())
    await eventually(lambda: len(side.spans()) == 3)
    assert is_child(side.spans()["work"], side.spans()[f"process {TOPIC.name}"])


async def test_an_exception_of_a_listener_is_recorded_in_its_span(api: Api) -> None:
    side, calls = Side(), []

    def listen(message: Message) -> None:
        calls.append(message)
        raise ValueError("no sense")

    connection = await listening(api, side, TOPIC, listen, redeliveries_max=0)
    await (await (await connection.create_session()).create_producer(TOPIC)).send(Message())
    await eventually(lambda: f"process {TOPIC.name}" in side.spans())
    span = side.spans()[f"process {TOPIC.name}"]
    assert span.status.status_code is StatusCode.ERROR
    (event,) = span.events
    assert event.attributes is not None
    assert event.attributes["exception.type"] == "ValueError"
    assert len(calls) == 1


async def test_a_forwarded_message_continues_the_trace_and_carries_one_context(api: Api) -> None:
    here, there = Side(), Side()
    relaying = await api.connect(telemetry=there.provider, dscp=8)
    on = await (await relaying.create_session()).create_consumer(TOPIC)
    await on.ready()
    forwarder = await (await relaying.create_session()).create_producer(NEXT)
    sending = await api.connect(telemetry=here.provider)
    session = await sending.create_session()
    end = await session.create_consumer(NEXT)
    await end.ready()
    first = await session.create_text_message("x")
    first.set_string_property("kept", "as it is")
    await (await session.create_producer(TOPIC)).send(first)
    message = await on.receive(WAIT_S)
    size = message._header[FRAME_BYTES]
    with there.tracer.start_as_current_span("relay", context=context_of(message)):
        await forwarder.send(message)
    last = await end.receive(WAIT_S)
    send, relay, again = here.spans()[f"send {TOPIC.name}"], there.spans()["relay"], there.spans()[f"send {NEXT.name}"]
    assert is_child(relay, send)
    assert is_child(again, relay)
    assert trace.get_current_span(context_of(last)).get_span_context().span_id == again.context.span_id
    assert last.property_names() - {"JMSXDeliveryCount"} == {"kept", TRACE_PARENT}
    assert last._header[FRAME_BYTES] - len(NEXT.name) == size - len(TOPIC.name)


async def test_selectors_work_on_messages_with_a_trace_context(api: Api) -> None:
    side = Side()
    connection = await api.connect(telemetry=side.provider)
    session = await connection.create_session()
    good = await session.create_consumer(TOPIC, "traceparent LIKE '00-%' AND tracestate IS NULL AND kind = 'a'")
    none = await session.create_consumer(TOPIC, "traceparent IS NULL OR kind <> 'a'")
    producer = await session.create_producer(TOPIC)
    message = await session.create_message()
    message.set_string_property("kind", "a")
    await producer.send(message)
    assert (await good.receive(WAIT_S)).get_string_property("kind") == "a"
    assert await none.receive_no_wait() is None


async def test_transactions_and_other_senders_carry_the_context_too(api: Api) -> None:
    side = Side()
    async with await api.context(telemetry=side.provider) as context:
        consumer = await context.create_consumer(TOPIC)
        with side.tracer.start_as_current_span("order"):
            await (await context.create_producer()).send(TOPIC, {"a": 1})
        session = await (await api.connect(telemetry=side.provider)).create_session(transacted=True)
        with side.tracer.start_as_current_span("order"):
            await (await session.create_producer(TOPIC)).send(await session.create_message())
        await session.commit()
        spans = side.exporter.get_finished_spans()
        sends = [span.context.span_id for span in spans if span.name.startswith("send")]
        found = [context_of(await consumer.receive(WAIT_S)) for _ in range(2)]
        assert [trace.get_current_span(one).get_span_context().span_id for one in found] == sends
        assert all(any(is_child(span, one) for one in spans) for span in spans if span.name.startswith("send"))


async def test_without_telemetry_nothing_is_added(api: Api) -> None:
    async with await api.context() as context:
        consumer = await context.create_consumer(TOPIC)
        await (await context.create_producer()).send(TOPIC, "x")
        message = await consumer.receive(WAIT_S)
        assert message.property_names() == {"JMSXDeliveryCount"}
        assert not trace.get_current_span(context_of(message)).get_span_context().is_valid


# Contexts received from others.


@pytest.mark.parametrize(
    ("parent", "state"),
    [
        ("", ""),
        ("00-0-0-0", "a=b"),
        ("x" * 600, "a=b"),
        ("00-" + "0" * 32 + "-" + "0" * 16 + "-01", ""),
        ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""),
    ],
)
def test_an_invalid_context_is_ignored(parent: str, state: str, caplog: pytest.LogCaptureFixture) -> None:
    message = Message()
    message.set_string_property(TRACE_PARENT, parent)
    message.set_string_property(TRACE_STATE, state)
    assert not trace.get_current_span(context_of(message)).get_span_context().is_valid
    assert not caplog.records


@pytest.mark.parametrize("state", ["=", "a", "A=b", "a=b,,c", "a=b;c=d\n", "=" * 9000, "a=" + "x" * 600, "é=1"])
def test_an_invalid_trace_state_is_left_out(state: str, caplog: pytest.LogCaptureFixture) -> None:
    message = Message()
    message.set_string_property(TRACE_PARENT, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    message.set_string_property(TRACE_STATE, state)
    found = trace.get_current_span(context_of(message)).get_span_context()
    assert f"{found.span_id:x}" == "b7ad6b7169203331"
    assert not found.trace_state
    assert not caplog.records


def test_a_valid_trace_state_is_kept() -> None:
    message = Message()
    message.set_string_property(TRACE_PARENT, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    message.set_string_property(TRACE_STATE, "rojo=00f067aa0ba902b7, congo@x=t61rcWkgMzE")
    state = trace.get_current_span(context_of(message)).get_span_context().trace_state
    assert dict(state) == {"rojo": "00f067aa0ba902b7", "congo@x": "t61rcWkgMzE"}


def test_invalid_properties_are_forwarded_after_the_context() -> None:
    context = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    broken = encode_properties({"traceparent": "x"})[:-1]
    assert _replaced(broken, context) == encode_properties(context) + broken


def test_the_state_of_another_trace_is_not_forwarded() -> None:
    context = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    encoded = _replaced(encode_properties({"tracestate": "other=1", "kept": 2}), context)
    assert decode_properties(encoded, 0, len(encoded)) == {**context, "kept": 2}


def test_a_context_property_of_another_type_is_ignored() -> None:
    message = Message()
    message.set_int_property(TRACE_PARENT, 7)
    assert not trace.get_current_span(context_of(message)).get_span_context().is_valid


# With and without OpenTelemetry.

WITHOUT = """
import sys

if {is_missing}:
    sys.modules["opentelemetry"] = None
from fjm2.errors import ConfigError
from fjm2.jms import ConnectionFactory

ConnectionFactory("fjm2://")
assert not [name for name in sys.modules if name.startswith(("opentelemetry.", "fjm2.telemetry"))]
if {is_missing}:
    try:
        ConnectionFactory("fjm2://", telemetry=True)
    except ConfigError as error:
        assert "pip install '.[otel]'" in str(error), error
    else:
        raise SystemExit("not refused")
else:
    ConnectionFactory("fjm2://", telemetry=True)
"""


@pytest.mark.parametrize("is_missing", [False, True])
def test_opentelemetry_is_imported_only_if_requested(is_missing: bool) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT.format(is_missing=is_missing)], check=True, timeout=WAIT_S)


@pytest.mark.parametrize("value", [None, 1, "on", 0])
def test_a_wrong_telemetry_setting_lists_the_valid_ones(value: object) -> None:
    with pytest.raises(ConfigError, match="expected True, False or a tracer provider"):
        ConnectionFactory("fjm2://", telemetry=value)


async def test_without_telemetry_messages_take_the_short_path(api: Api) -> None:
    connection = await api.connect()
    inner = connection.inner._inner if api.is_blocking else connection.inner
    assert type(inner._core.endpoint.writer) is FrameWriter


async def test_each_message_of_a_batch_has_a_span(api: Api) -> None:
    here, there = Side(), Side()
    heard: list[str] = []
    await listening(api, there, TOPIC, lambda message: heard.append(message.text), dscp=8)
    sending = await api.connect(telemetry=here.provider)
    producer = await (await sending.create_session()).create_producer(TOPIC)
    await producer.send_many(["a", "b"], properties={"n": [1, 2]})
    await eventually(lambda: len(there.exporter.get_finished_spans()) == 2)
    sends = here.exporter.get_finished_spans()
    assert heard == ["a", "b"]
    assert len({trace_of(span) for span in sends}) == 2
    assert {trace_of(span) for span in sends} == {trace_of(span) for span in there.exporter.get_finished_spans()}
