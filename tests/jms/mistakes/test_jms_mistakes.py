"""Mistakes of callers raise at the call that makes them, with the value and what was expected."""

from math import nan
from typing import Any, Literal

import pytest
from adapter import QUIET_S, WAIT_S, Api, Blocking

from fjm2 import __version__
from fjm2.errors import ConfigError
from fjm2.jms import (
    ConnectionFactory,
    FileMessage,
    IllegalStateError,
    JMSError,
    MapMessage,
    MessageFormatError,
    PickleCodec,
    StreamMessage,
    TextMessage,
    Topic,
    blocking,
)

TOPIC = Topic("fjm2.mistakes")


@pytest.mark.parametrize("owner", ["connection", "context"])
async def test_an_exception_listener_is_a_function(api: Api, owner: str) -> None:
    target = await api.connect() if owner == "connection" else await api.context()
    with pytest.raises(TypeError, match=r"^exception_listener='print': expected a function$"):
        target.exception_listener = "print"
    assert target.exception_listener is None
    target.exception_listener = print
    target.exception_listener = None


async def test_a_message_listener_is_a_function(api: Api) -> None:
    consumer = await (await api.context()).create_consumer(TOPIC)
    with pytest.raises(TypeError, match=r"^message_listener=5: expected a function$"):
        consumer.message_listener = 5
    with pytest.raises(TypeError, match=r"^listener='x': expected a function$"):
        await consumer.listen(str, "x")
    with pytest.raises(TypeError, match=r"^listener=None: expected a function; message_listener = None ends"):
        await consumer.listen(str, None)
    with pytest.raises(TypeError, match=r"^type='str': expected a class of messages, such as TextMessage, or"):
        await consumer.listen("str", print)
    assert await consumer.receive(QUIET_S) is None  # no listener was set


async def test_a_closed_consumer_takes_no_listener(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    await consumer.close()
    consumer.message_listener = None
    with pytest.raises(IllegalStateError, match="the consumer is closed: create another one"):
        await api.invoke(setattr, consumer.inner, "message_listener", print)
    with pytest.raises(IllegalStateError, match="the consumer is closed: create another one"):
        await consumer.listen(str, print)
    assert consumer.message_listener is None


@pytest.mark.parametrize(
    ("seconds", "kind"), [("5s", TypeError), (True, TypeError), (-1, ValueError), (nan, ValueError)]
)
@pytest.mark.parametrize("owner", ["connection", "context"])
async def test_the_timeout_of_close_is_seconds(api: Api, owner: str, seconds: object, kind: type[Exception]) -> None:
    target = await api.connect() if owner == "connection" else await api.context()
    with pytest.raises(kind, match=rf"^timeout={seconds!r}: expected .*seconds, or None"):
        await target.close(timeout=seconds)
    assert target.exception_listener is None  # it is still open
    await target.close(timeout=0.5)


@pytest.mark.parametrize("api", [Blocking], indirect=True)
async def test_threads_take_no_coroutine_functions(api: Api) -> None:
    async def listen(_: Any) -> None: ...

    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    for target, name in ((consumer, "message_listener"), (context, "exception_listener")):
        with pytest.raises(TypeError, match=rf"^{name}=.*listen: expected a plain function, .*; fjm2.jms takes"):
            setattr(target, name, listen)
    with pytest.raises(TypeError, match=r"^listener=.*listen: expected a plain function"):
        await consumer.listen(str, listen)


async def test_receive_takes_classes_of_messages_and_timeouts(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    await context.send(TOPIC, "hello")
    for wrong, shown in ((str, "str"), ("5", "'5'"), (dict[str, int], r"dict\[str, int\]")):
        with pytest.raises(
            TypeError, match=rf"^receive\({shown}\): expected a class of messages.* receive_body\(str\)"
        ):
            await consumer.receive(wrong, 0)
    assert (await consumer.receive(TextMessage, WAIT_S)).text == "hello"
    with pytest.raises(TypeError, match=r"^timeout='5': expected seconds, or None to wait for ever$"):
        await consumer.receive(timeout="5")


async def test_receive_takes_the_class_before_the_timeout(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    await context.send(TOPIC, "hello")
    for wrong, shown in (((5, TextMessage), "5, TextMessage"), ((0, 0), "0, 0"), ((None, str), "None, str")):
        with pytest.raises(
            TypeError, match=rf"^receive\({shown}\): expected a class of messages, and then a timeout, as in"
        ):
            await consumer.receive(*wrong)
    assert (await consumer.receive(TextMessage, WAIT_S)).text == "hello"


async def test_a_negative_timeout_is_refused_also_if_a_message_waits(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    await context.send(TOPIC, "hello")
    for timeout in (-1, -0.001, float("nan")):
        for receive, arguments in (
            (consumer.receive, ()),
            (consumer.receive, (TextMessage,)),
            (consumer.receive_body, (str,)),
        ):
            with pytest.raises(ValueError, match=f"^timeout={timeout}: expected 0 or more seconds, or None to wait"):
                await receive(*arguments, timeout=timeout)
        with pytest.raises(ValueError, match=f"^timeout={timeout}: expected 0 or more seconds"):
            await consumer.receive(timeout)
    assert await consumer.receive_body(str, WAIT_S) == "hello"
    assert await consumer.receive(0) is None


async def test_selectors_and_properties_have_their_types(api: Api) -> None:
    context = await api.context()
    with pytest.raises(TypeError, match=r'^selector=5: expected a text, such as "price > 10"$'):
        await context.create_consumer(TOPIC, 5)
    for wrong in ("price=1", [("price", 1)]):
        with pytest.raises(MessageFormatError, match=r"^properties=.*: expected a dict of names and values$"):
            await context.send(TOPIC, "hello", properties=wrong)


async def test_modes_are_named_as_programs_write_them(api: Api) -> None:
    with pytest.raises(JMSError, match=r"^mode='AUTO_ACKNOWLEDGE': expected one of SessionMode.SESSION_TRANSACTED, "):
        await (await api.context()).create_context("AUTO_ACKNOWLEDGE")


async def test_a_closed_context_is_called_closed(api: Api) -> None:
    context = await api.context()
    consumer, producer = await context.create_consumer(TOPIC), await context.create_producer()
    await context.close()
    for call in (context.send(TOPIC, "x"), producer.send(TOPIC, "x"), consumer.receive(0)):
        with pytest.raises(IllegalStateError, match=r"context.* is closed"):
            await call
    assert repr(producer.inner) == "<JMSProducer to any destination, closed>"


async def test_meta_data_show_what_they_are(api: Api) -> None:
    assert repr((await api.connect()).meta_data) == f"<FJM2 {__version__}, Jakarta Messaging 3.1>"


async def test_a_completion_listener_has_its_methods(api: Api) -> None:
    producer = await (await (await api.connect()).create_session()).create_producer(TOPIC)
    told = r"expected a CompletionListener, an object with the methods on_completion and on_exception$"
    with pytest.raises(TypeError, match=rf"^on_complete=<built-in function print>: {told}"):
        await producer.send(TextMessage("a"), on_complete=print)
    sender = await (await api.context()).create_producer()
    with pytest.raises(TypeError, match=rf"^async_listener=5: {told}"):
        sender.async_listener = 5
    assert producer.inner.statistics().messages_sent == 0
    assert sender.async_listener is None


async def test_a_progress_listener_is_a_plain_function(api: Api) -> None:
    async def listen(_: Any) -> None: ...

    consumer = await (await api.context()).create_consumer(TOPIC)
    with pytest.raises(TypeError, match=r"^on_progress='x': expected a function$"):
        consumer.on_progress = "x"
    with pytest.raises(TypeError, match=r"^on_progress=.*listen: expected a plain function, as nothing awaits it$"):
        consumer.on_progress = listen
    with pytest.raises(TypeError, match=r"^on_progress=5: expected a function$"):
        FileMessage("x", 5)  # type: ignore[arg-type]
    assert consumer.on_progress is None


async def test_a_request_waits_no_negative_time(api: Api) -> None:
    context = await api.context()
    for wrong, error in ((-1, ValueError), (float("nan"), ValueError), ("5", TypeError)):
        with pytest.raises(error, match=rf"^timeout={wrong!r}: expected .*seconds, or None to wait for ever$"):
            await context.request(TOPIC, "a", wrong)
        with pytest.raises(error, match=rf"^timeout={wrong!r}: expected .*seconds, or None to wait for ever$"):
            await context.request_many(TOPIC, "a", wrong)


def test_a_bus_has_a_multicast_group() -> None:
    for uri, shown in (("fjm2://192.0.2.7:5740", r"192\.0\.2\.7"), ("fjm2://[2001:db8::1]", "2001:db8::1")):
        for factory in (ConnectionFactory, blocking.ConnectionFactory):
            with pytest.raises(ConfigError, match=rf"^{shown} is the address of one host: expected a multicast group"):
                factory(uri)


@pytest.mark.parametrize(
    "wrong", ["str", None, [str], 5, Any, list[int] | Any, Literal["a"]], ids=lambda wrong: str(wrong).replace(" ", "")
)
async def test_a_type_that_no_body_has_costs_no_message(api: Api, wrong: Any) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    await context.send(TOPIC, "precious")
    with pytest.raises(TypeError, match=r"^type=.+: expected a class of messages, such as TextMessage, or of bodies"):
        await consumer.receive_body(wrong, WAIT_S)
    message = await consumer.receive(TextMessage, WAIT_S)
    assert message.text == "precious"
    for read in (message.get_body, message.is_body_assignable_to):
        with pytest.raises(TypeError, match=r"^type=.+: expected a class"):
            read(wrong)


async def test_a_union_fits_if_one_of_its_types_does(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    for body in ("text", {"price": 1}, [1]):
        await context.send(TOPIC, body)
    unfit = "is a str: expected an int | float$"
    with pytest.raises(MessageFormatError, match=unfit.replace("|", r"\|")):
        await consumer.receive_body(int | float, WAIT_S)
    assert await consumer.receive_body(dict[str, int] | str | None, WAIT_S) == "text"  # it comes again
    assert await consumer.receive_body(dict[str, int] | None, WAIT_S) == {"price": 1}
    with pytest.raises(MessageFormatError, match=r"is a list: expected a dict\[str, int\] \| None$"):
        await consumer.receive_body(dict[str, int] | None, WAIT_S)
    assert await consumer.receive_body(list[int] | None, WAIT_S) == [1]


async def test_a_reply_needs_the_request(api: Api) -> None:
    context = await api.context()
    for wrong in (None, "x"):
        with pytest.raises(
            TypeError, match=rf"^request={wrong!r}: expected the message to reply to; a receive that times"
        ):
            await context.reply(wrong, "y")


async def test_a_class_is_no_message(api: Api) -> None:
    context = await api.context()
    session = await (await api.connect()).create_session()
    told = r"^TextMessage is a class: expected a message, as TextMessage\(\.\.\.\) makes$"
    for send in (context.send, (await context.create_producer()).send, context.request):
        with pytest.raises(MessageFormatError, match=told):
            await send(TOPIC, TextMessage)
    with pytest.raises(MessageFormatError, match=told):
        await (await session.create_producer(TOPIC)).send(TextMessage)


async def test_a_column_has_a_name(api: Api) -> None:
    sending, receiving = await api.context(), await api.context()
    consumer = await receiving.create_consumer(TOPIC)
    await consumer.ready()
    await sending.send(TOPIC, b"x")
    async for batch in await consumer.batches():
        with pytest.raises(TypeError, match=r'^name=5: expected the name of a property or header, such as "price"$'):
            batch.column(5)
        break


def test_bodies_and_codecs_have_their_types() -> None:
    for wrong in ([1], 5, [("a", 1)]):
        with pytest.raises(MessageFormatError, match=r"^items=.*: expected a dict of names and values$"):
            MapMessage(wrong)  # type: ignore[arg-type]
    with pytest.raises(MessageFormatError, match=r"^values=5: expected a list, or another iterable, of values$"):
        StreamMessage(5)  # type: ignore[arg-type]
    for odd in (5, b"x"):
        with pytest.raises(TypeError, match=r"^path=.*: expected the path of a file, as a str or a Path$"):
            FileMessage(odd)  # type: ignore[arg-type]
    for classes in (TextMessage, ["TextMessage"], "TextMessage", None):
        with pytest.raises(TypeError, match=r"^classes=.*: expected a list of classes, as in PickleCodec"):
            PickleCodec(classes)  # type: ignore[arg-type]


def test_values_that_do_not_fit_are_named() -> None:
    message = TextMessage()
    for name in ("correlation_id", "type"):
        with pytest.raises(MessageFormatError, match=rf"^{name}: 5 is not a text: expected a str$"):
            setattr(message, name, 5)
    for kind in ("byte", "short", "int", "long"):
        with pytest.raises(MessageFormatError, match=r"^property 'n': '5' is not a whole number: expected an int$"):
            getattr(message, f"set_{kind}_property")("n", "5")
    for kind in ("boolean", "float", "double", "string"):
        with pytest.raises(MessageFormatError, match=r"^property 'n': "):
            getattr(message, f"set_{kind}_property")("n", [5])
    assert not message.properties


async def test_a_batch_names_the_body_that_is_none(api: Api) -> None:
    context = await api.context()
    session = await (await api.connect()).create_session()
    for producer, more in ((await context.create_producer(), (TOPIC,)), (await session.create_producer(TOPIC), ())):
        for wrong in ({1, 2}, FileMessage(__file__)):
            with pytest.raises(MessageFormatError, match=r"^bodies\[2\]: "):
                await producer.send_many(*more, ["a", b"b", wrong, "d"])
