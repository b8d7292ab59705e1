"""Tests of `fjm2.app`, for asyncio and for threads."""

import asyncio
import inspect
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Union

import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually

from fjm2 import app as aio_app
from fjm2 import jms
from fjm2.app import blocking as blocking_app
from fjm2.base.logs import Log
from fjm2.errors import ConfigError
from fjm2.jms import (
    ConnectionFactory,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    ListenerError,
    MapMessage,
    Message,
    MessageFormatError,
    NoReplyError,
    PickleCodec,
    Queue,
    TextMessage,
    Topic,
)
from fjm2.jms import blocking as blocking_jms

TOPIC, OTHER = "fjm2.app", "fjm2.app.other"
Application = aio_app.App | blocking_app.App


def made(api: Api, **options: Any) -> Application:
    return (blocking_app if api.is_blocking else aio_app).App(api.uri, **options)


class Running:
    """A running application. In the blocking API, start and stop block other threads."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __aenter__(self) -> None:
        if isinstance(self._app, aio_app.App):
            await self._app.__aenter__()
        else:
            await asyncio.to_thread(self._app.__enter__)

    async def __aexit__(self, *error: Any) -> None:
        if isinstance(self._app, aio_app.App):
            await self._app.__aexit__(None, None, None)
        else:
            await asyncio.to_thread(self._app.__exit__, None, None, None)


@pytest.mark.parametrize("context", [jms.JMSContext, blocking_jms.JMSContext])
def test_a_listener_takes_the_options_of_a_consumer(context: Any) -> None:
    of_consumers = inspect.signature(context.create_consumer).parameters
    of_listeners = inspect.signature(aio_app.App.listener).parameters
    assert list(of_listeners)[2:] == list(of_consumers)[2:]
    app = aio_app.App(block_s="5s")
    app.listener(TOPIC, block_s="500ms")(print_text)
    assert app._listeners[0].options["block_s"] == "500ms"


def print_text(text: str) -> None:
    print(text)


async def test_annotations_choose_what_a_listener_gets(api: Api) -> None:
    app, problems = made(api), list[Exception]()
    app.exception_listener = problems.append
    found: dict[str, list[Any]] = {}

    def note(name: str, content: Any) -> None:
        found.setdefault(name, []).append(content)

    @app.listener(TOPIC)
    def on_text(body: str) -> None:
        note("str", body)

    @app.listener(TOPIC)
    def on_bytes(body: "bytes") -> None:
        note("bytes", body)

    @app.listener(Topic(TOPIC))
    def on_dict(body: dict[str, Any]) -> None:
        note("dict", body)

    @app.listener(TOPIC)
    def on_mapping(body: Mapping[str, int]) -> None:
        note("mapping", body)

    @app.listener(TOPIC)
    def on_list(body: list[int]) -> None:
        note("list", body)

    @app.listener(TOPIC)
    def on_any(body: Any) -> None:
        note("any", body)

    @app.listener(TOPIC)
    def on_optional(body: str | None) -> None:
        note("optional", body)

    @app.listener(TOPIC)
    def on_message(message: Message) -> None:
        note("message", type(message))

    @app.listener(TOPIC)
    def on_text_message(message: TextMessage, body: object, times: int = 1) -> None:
        note("text message", (message.text, body, times))

    bodies = ["a", b"b", {"c": 1}, [1, 2], None, {"d": {"e": 1}}]
    async with Running(app):
        for body in bodies:
            await api.invoke(app.context.send, Topic(TOPIC), body)
        # Each listener reports those of the six bodies that it was not made for.
        await eventually(lambda: len(found.get("message", ())) == 6 and len(found.get("any", ())) == 6)
        await eventually(lambda: len(problems) == 5 + 5 + 4 + 4 + 5 + 4 + 5)
    assert found == {
        "str": ["a"],
        "bytes": [b"b"],
        "dict": [{"c": 1}, {"d": {"e": 1}}],
        "mapping": [{"c": 1}, {"d": {"e": 1}}],
        "list": [[1, 2]],
        "any": bodies,
        "optional": ["a", None],
        "message": found["message"],
        "text message": [("a", "a", 1)],
    }
    assert [kind.__name__ for kind in found["message"]][:3] == ["TextMessage", "BytesMessage", "MapMessage"]
    assert all(isinstance(problem, MessageFormatError) for problem in problems)


def one(body: Decimal) -> None: ...
def two(body) -> None: ...  # type: ignore[no-untyped-def]
def three(body: str | bytes) -> None: ...
def four() -> None: ...
def five(*, body: str) -> None: ...
def six(body: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def seven(*bodies: str) -> None: ...
def eight(body: Union[Decimal, None]) -> None: ...  # noqa: UP007
def nine(body: 5) -> None: ...  # type: ignore[valid-type]
def ten(body: str, other: int) -> None: ...
def eleven(message: Message, other: TextMessage) -> None: ...
def twelve(body: str) -> Iterator[str]:
    yield body


async def thirteen(body: str) -> AsyncIterator[str]:
    yield body


@pytest.mark.parametrize("module", [aio_app, blocking_app])
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (one, "one: the parameter 'body' has the annotation Decimal: expected Message or one of its classes"),
        (two, "two: the parameter 'body' has no annotation: expected Message"),
        (three, r"three: the parameter 'body' has the annotation str \| bytes: expected"),
        (four, r"four\(\) -> None: expected a parameter for the body, as in \(body: str\)"),
        (five, "five.*: expected a parameter for the body"),
        (six, "six: cannot read the annotations: name 'Missing' is not defined"),
        (seven, "seven.*: expected a parameter for the body"),
        (eight, "eight: the parameter 'body' has the annotation .*Decimal.*: expected"),
        (nine, "nine: the parameter 'body' has the annotation 5: expected|nine: cannot read the annotations"),
        (ten, r"ten\(body: str, other: int\).*: expected a parameter for the body, .* or one for each"),
        (eleven, "eleven.*: expected a parameter for the body, .* or one for each"),
        (twelve, "twelve is a generator function: expected one that returns the reply, or None"),
        (thirteen, "thirteen is a generator function: expected one that returns the reply, or None"),
    ],
)
def test_other_annotations_are_refused_at_once(module: Any, function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        module.App("fjm2://?ttl=0").listener(TOPIC)(function)


@pytest.mark.parametrize("module", [aio_app, blocking_app])
def test_wrong_declarations_are_refused_at_once(module: Any) -> None:
    app = module.App("fjm2://?ttl=0")
    with pytest.raises(InvalidSelectorError):
        app.listener(TOPIC, selector="price >")
    with pytest.raises(InvalidDestinationError):
        app.listener("")
    with pytest.raises(InvalidDestinationError):
        app.listener(5)
    with pytest.raises(ConfigError, match="overflow='drop': expected one of"):
        app.listener(TOPIC, overflow="drop")
    app.listener(Queue("jobs"))
    with pytest.raises(IllegalStateError, match=r"^the application is not running: call run"):
        _ = app.context
    assert repr(app) == "<App with no listeners, stopped>"


def test_coroutine_functions_need_the_app_for_asyncio() -> None:
    async def listen(body: str) -> None: ...

    with pytest.raises(TypeError, match="listen is a coroutine function: expected a function"):
        blocking_app.App("fjm2://?ttl=0").listener(TOPIC)(listen)


def test_a_declared_function_stays_as_it_is() -> None:
    def upper(body: str) -> str:
        return body.upper()

    declared = aio_app.App("fjm2://?ttl=0").listener(TOPIC)(upper)
    assert declared is upper


class Order:
    """A body of the test's own class."""


def test_bodies_of_other_classes_need_a_codec() -> None:
    def listen(body: Order) -> None: ...

    aio_app.App("fjm2://?ttl=0", codec=PickleCodec([Order])).listener(TOPIC)(listen)
    with pytest.raises(TypeError, match=r"bodies of other classes need App\(codec=...\)"):
        aio_app.App("fjm2://?ttl=0").listener(TOPIC)(listen)


async def test_what_a_listener_returns_is_the_reply(api: Api) -> None:
    app = made(api)
    notes: list[str] = []

    @app.listener(TOPIC, selector="lang = 'en'")
    def answer(body: str) -> dict[str, Any] | None:
        notes.append(body)
        return {"upper": body.upper(), "nested": [1]} if body else None

    async with Running(app):
        client = await api.context()
        reply = await client.request(Topic(TOPIC), "hello", WAIT_S, properties={"lang": "en"})
        assert reply.get_body(dict) == {"upper": "HELLO", "nested": [1]}
        await client.send(Topic(TOPIC), "no reply wanted", properties={"lang": "en"})
        await eventually(lambda: notes == ["hello", "no reply wanted"])
        with pytest.raises(NoReplyError):
            await client.request(Topic(TOPIC), "other language", QUIET_S)
        with pytest.raises(NoReplyError):
            await client.request(Topic(TOPIC), "", QUIET_S, properties={"lang": "en"})
    assert notes == ["hello", "no reply wanted", ""]


async def test_a_name_with_wildcards_is_a_pattern(api: Api) -> None:
    app, found = made(api), list[str]()

    @app.listener("fjm2.app.>")
    def everything(message: Message) -> None:
        found.append(str(message.destination))

    async with Running(app):
        for name in ("fjm2.app.a", "fjm2.other", "fjm2.app.b.c"):
            await api.invoke(app.context.send, Topic(name), "body")
        await eventually(lambda: len(found) == 2)
    assert found == ["topic://fjm2.app.a", "topic://fjm2.app.b.c"]


async def test_coroutine_functions_reply_too(port: int) -> None:
    app = aio_app.App(f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0")

    @app.listener(TOPIC)
    async def ask_another(body: str) -> bytes:
        return ((await app.context.request(Topic(OTHER), body)).get_body(str) or "").encode()

    @app.listener(OTHER)
    async def answer(message: TextMessage) -> str:
        await asyncio.sleep(0)
        return f"{message.text}!"

    async with app:
        assert (await app.context.request(Topic(TOPIC), "hello")).get_body(bytes) == b"hello!"


async def test_listeners_run_beside_one_another_and_each_in_order(api: Api) -> None:
    app, second_ran = made(api), threading.Event()
    order: list[Any] = []

    @app.listener(TOPIC)
    def first(number: int) -> None:
        order.append(number)

    @app.listener(TOPIC)
    def second(number: int) -> None:
        if number == 99:
            second_ran.set()

    @app.listener(OTHER)
    def waits(body: str) -> None:
        if api.is_blocking:  # in the event loop, nothing could run beside it
            assert second_ran.wait(WAIT_S)
        order.append(body)

    async with Running(app):
        await api.invoke(app.context.send, Topic(OTHER), "begin")
        for number in range(100):
            await api.invoke(app.context.send, Topic(TOPIC), number)
        await eventually(lambda: len(order) == 101 and second_ran.is_set())
    order.remove("begin")
    assert order == [*range(100)]


async def test_a_listener_that_raises_gets_the_message_again_and_is_logged(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fjm2.app.handler.log", Log("fjm2.app"))  # which has logged nothing lately
    app, problems, counts = made(api, redeliveries_max=2), list[Exception](), list[int]()
    app.exception_listener = problems.append

    @app.listener(TOPIC)
    def fails(body: str, message: Message) -> None:
        counts.append(message.delivery_count)
        raise ValueError(body)

    async with Running(app):
        await api.invoke(app.context.send, Topic(TOPIC), "broken")
        await eventually(lambda: problems)
    assert counts == [1, 2, 3]
    (problem,) = problems
    assert isinstance(problem, ListenerError)
    assert isinstance(problem.linked_exception, ValueError)
    (record,) = [one for one in caplog.records if one.name == "fjm2.app"]
    assert re.search(
        r"handler_failed: .*fails raised ValueError at delivery 1 of ID:\S+ from topic://", record.getMessage()
    )
    assert record.exc_info is not None


async def test_a_message_of_another_kind_is_reported_once(api: Api) -> None:
    app, problems, got = made(api), list[Exception](), list[Any]()
    app.exception_listener = problems.append

    @app.listener(TOPIC)
    def takes_maps(message: MapMessage) -> None:
        got.append(dict(message))

    async with Running(app):
        for body in ("text", {"a": 1}):
            await api.invoke(app.context.send, Topic(TOPIC), body)
        await eventually(lambda: got and problems)
    assert got == [{"a": 1}]
    (problem,) = problems
    assert isinstance(problem, MessageFormatError)
    assert re.search(r"<TextMessage ID:\S+ to topic://fjm2.app.*>: expected a MapMessage", str(problem))


async def test_a_result_that_cannot_be_sent_is_reported_once(api: Api) -> None:
    app, problems, got = made(api), list[Exception](), list[str]()
    app.exception_listener = problems.append

    @app.listener(TOPIC)
    def divides(body: str) -> Decimal:
        got.append(body)
        return Decimal(1) / 3

    async with Running(app):
        client = await api.context()
        for body in ("first", "second"):
            with pytest.raises(NoReplyError):
                await client.request(Topic(TOPIC), body, QUIET_S)
    assert got == ["first", "second"]
    assert [type(problem) for problem in problems] == [MessageFormatError] * 2
    assert re.search(r"divides returned a Decimal, and nobody gets a reply: ", str(problems[0]))


async def test_a_reply_to_somebody_who_is_gone_is_reported_once(api: Api) -> None:
    app, problems, got, is_gone = made(api), list[Exception](), list[str](), threading.Event()
    app.exception_listener = problems.append

    def answers(body: str) -> str:
        got.append(body)
        is_gone.wait(WAIT_S)
        return "late"

    async def answers_soon(body: str) -> str:
        return await asyncio.to_thread(answers, body)

    app.listener(TOPIC)(answers if api.is_blocking else answers_soon)
    async with Running(app):
        async with await api.context() as client:
            asking = asyncio.create_task(client.request(Topic(TOPIC), "first", QUIET_S))
            with pytest.raises(NoReplyError):
                await asking
        is_gone.set()
        await eventually(lambda: problems)
        assert got == ["first"]  # it is not delivered again
    assert [type(problem) for problem in problems] == [InvalidDestinationError]


async def test_problems_of_different_listeners_are_logged_each(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fjm2.bus.problems.log", Log("fjm2.jms"))  # which has logged nothing lately
    app = made(api)

    @app.listener(f"{TOPIC}.maps")
    def takes_maps(message: MapMessage) -> None: ...

    @app.listener(f"{TOPIC}.thirds")
    def divides(body: str) -> Decimal:
        return Decimal(len(body)) / 3

    async with Running(app):
        client = await api.context()
        for _ in range(2):
            for name in ("maps", "thirds"):
                with pytest.raises(NoReplyError):
                    await client.request(Topic(f"{TOPIC}.{name}"), "text", QUIET_S)
    told = [one.getMessage() for one in caplog.records if one.name == "fjm2.jms"]
    assert [("MapMessage" in text, "divides returned" in text) for text in told] == [(True, False), (False, True)]


async def test_an_application_stops_after_the_present_message_and_can_start_again(api: Api) -> None:
    app, begun, go_on = made(api), threading.Event(), threading.Event()
    done: list[str] = []

    if api.is_blocking:

        @app.listener(TOPIC)
        def works(body: str) -> str:
            begun.set()
            assert go_on.wait(WAIT_S)
            done.append(body)
            return f"{body} done"
    else:

        @app.listener(TOPIC)
        async def works_too(body: str) -> str:
            begun.set()
            await eventually(go_on.is_set)
            done.append(body)
            return f"{body} done"

    client = await api.context()
    running = Running(app)
    for number in range(2):
        begun.clear()
        go_on.clear()
        await running.__aenter__()
        with pytest.raises(IllegalStateError, match="running already"):
            app.listener(OTHER)
        with pytest.raises(IllegalStateError, match="start: the application is running already"):
            await running.__aenter__()
        assert "running" in repr(app)
        asking = asyncio.create_task(client.request(Topic(TOPIC), f"job {number}", WAIT_S))
        await eventually(begun.is_set)
        await client.send(Topic(TOPIC), "too late")
        stopping = asyncio.create_task(running.__aexit__())
        await asyncio.sleep(QUIET_S)
        assert not stopping.done()
        go_on.set()
        await stopping
        assert (await asking).get_body(str) == f"job {number} done"
        with pytest.raises(IllegalStateError):
            _ = app.context
    assert done == ["job 0", "job 1"]


async def test_an_application_that_cannot_start_leaves_nothing_open(api: Api) -> None:
    app = made(api, client_id="twice")

    @app.listener(Queue("jobs"))
    def works(body: str) -> None: ...

    for _ in range(2):  # the client id is free again
        with pytest.raises(Exception, match="queues"):
            await Running(app).__aenter__()
        with pytest.raises(IllegalStateError):
            _ = app.context


async def test_an_application_runs_beside_a_web_application(port: int) -> None:
    app = aio_app.App(f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0")
    async with app.lifespan(object()):
        assert app.context.client_id is None
    with pytest.raises(IllegalStateError):
        _ = app.context


PROGRAM = """
import asyncio, sys, time
from {module} import App

app = App({uri!r})


@app.listener("{topic}")
{kind} work(body: str) -> str:
    print("begun", flush=True)
    {wait}(0.5)
    print("done", flush=True)
    if body == "stop":
        app.stop()
    return "a reply"

app.run()
print("ended")
"""


@pytest.mark.parametrize("body", [signal.SIGINT, signal.SIGTERM, "stop"], ids=str)
async def test_a_program_ends_gracefully(api: Api, tmp_path: Path, body: Any) -> None:
    path = tmp_path / "program.py"
    words = ("def", "time.sleep") if api.is_blocking else ("async def", "await asyncio.sleep")
    module = "fjm2.app.blocking" if api.is_blocking else "fjm2.app"
    path.write_text(PROGRAM.format(module=module, uri=api.uri, topic=TOPIC, kind=words[0], wait=words[1]))
    async with ConnectionFactory(api.uri).create_context() as client:
        with started(path) as process:
            try:
                await subscribed(client)
                asking = asyncio.create_task(client.request(Topic(TOPIC), str(body), WAIT_S))
                assert process.stdout is not None
                assert await asyncio.to_thread(process.stdout.readline) == "begun\n"
                if isinstance(body, signal.Signals):
                    process.send_signal(body)
                assert (await asking).get_body(str) == "a reply"
                rest, _ = await asyncio.to_thread(process.communicate, timeout=WAIT_S)
                assert rest == "done\nended\n"
                assert process.returncode == 0
            finally:
                process.kill()


def started(path: Path, stderr: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-W", "error", path], stdout=subprocess.PIPE, stderr=stderr, text=True)


async def subscribed(client: Any) -> None:
    """Wait until somebody consumes from the topic."""
    await eventually(lambda: client.subscribers(Topic(TOPIC)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
async def test_a_second_signal_ends_a_program_at_once(api: Api, tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "program.py"
    words = ("def", "time.sleep") if api.is_blocking else ("async def", "await asyncio.sleep")
    module = "fjm2.app.blocking" if api.is_blocking else "fjm2.app"
    text = PROGRAM.format(module=module, uri=api.uri, topic=TOPIC, kind=words[0], wait=words[1])
    path.write_text(text.replace("(0.5)", "(60)"))
    async with ConnectionFactory(api.uri).create_context() as client:
        with started(path, stderr=subprocess.PIPE) as process:
            try:
                await subscribed(client)
                await client.send(Topic(TOPIC), "work")
                assert process.stdout is not None
                assert await asyncio.to_thread(process.stdout.readline) == "begun\n"
                for _ in range(2):
                    process.send_signal(number)
                    await asyncio.sleep(0.5)
                rest, problems = await asyncio.to_thread(process.communicate, timeout=5)
                assert process.returncode == -number
                assert (rest, problems) == ("", "")  # no traceback, and no word of a listener that failed
            finally:
                process.kill()


async def test_run_names_what_to_use_where_a_loop_runs(port: int) -> None:
    app = aio_app.App(f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0")
    with pytest.raises(IllegalStateError, match=r"run: an event loop is running: call `await app.serve\(\)`"):
        app.run()


@pytest.mark.parametrize("module", [aio_app, blocking_app])
def test_a_listener_needs_its_topic(module: Any) -> None:
    def hear(text: str) -> None: ...

    with pytest.raises(
        TypeError, match=r'^listener\(hear\): expected the name of a topic, as in @app.listener\("prices"\)$'
    ):
        module.App().listener(hear)


def test_both_apps_have_the_same_members() -> None:
    def members(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert members(aio_app.App) - members(blocking_app.App) == {"serve", "lifespan"}
    assert members(blocking_app.App) <= members(aio_app.App)
