"""Misspelt attributes raise AttributeError, and name the one that was meant."""

import copy
import pickle
from typing import Any
from weakref import ref

import pytest
from adapter import Api

from fjm2 import jms
from fjm2.jms import JMSProducer, Message, TextMessage, Topic, blocking

TOPIC = Topic("fjm2.attributes")


async def made(api: Api, kind: str) -> Any:
    context = await api.context()
    match kind:
        case "JMSContext":
            return context
        case "JMSProducer":
            return await context.create_producer()
        case "JMSConsumer":
            return await context.create_consumer(TOPIC)
        case "Connection":
            return await api.connect()
    session = await (await api.connect()).create_session()
    match kind:
        case "Session":
            return session
        case "MessageProducer":
            return await session.create_producer(TOPIC)
    return await session.create_consumer(TOPIC)


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("JMSContext", "exceptionlistener", "exception_listener"),
        ("JMSContext", "autostart", "auto_start"),
        ("JMSProducer", "prority", "priority"),
        ("JMSProducer", "time_to_life", "time_to_live"),
        ("JMSProducer", "replyTo", "reply_to"),
        ("MessageProducer", "delivery_mod", "delivery_mode"),
        ("JMSConsumer", "message_listner", "message_listener"),
        ("MessageConsumer", "onprogress", "on_progress"),
        ("Connection", "clientid", "client_id"),
    ],
)
async def test_a_misspelt_option_is_refused_with_the_right_one(api: Api, kind: str, name: str, meant: str) -> None:
    target = (await made(api, kind)).inner
    with pytest.raises(AttributeError, match=rf"^a {kind} has no attribute '{name}': did you mean {meant}\?$"):
        setattr(target, name, 9)
    assert not hasattr(target, name)
    assert ref(target)() is target


@pytest.mark.parametrize(
    "kind", ["JMSContext", "JMSProducer", "MessageProducer", "JMSConsumer", "Connection", "Session"]
)
async def test_a_name_like_none_is_refused_without_a_guess(api: Api, kind: str) -> None:
    target = (await made(api, kind)).inner
    with pytest.raises(AttributeError, match=rf"^a {kind} has no attribute 'quux'$"):
        target.quux = 9


async def test_what_cannot_be_set_says_so(api: Api) -> None:
    target = (await made(api, "JMSContext")).inner
    with pytest.raises(AttributeError, match="transacted"):
        target.transacted = True


@pytest.mark.parametrize("module", [jms, blocking])
def test_a_factory_has_its_options_from_the_beginning_only(module: Any) -> None:
    factory = module.ConnectionFactory("fjm2://?interface=127.0.0.1", client_id="desk")
    with pytest.raises(AttributeError, match=r"^a ConnectionFactory has no attribute 'client_id'"):
        factory.client_id = "other"
    for again in (pickle.loads(pickle.dumps(factory)), copy.copy(factory), copy.deepcopy(factory)):
        assert repr(again) == repr(factory)


def test_a_misspelt_header_is_refused_at_no_cost() -> None:
    with pytest.raises(AttributeError, match="corelation_id"):
        TextMessage("a").corelation_id = "b"  # type: ignore[attr-defined]
    assert Message.__setattr__ is object.__setattr__  # each message sets some attributes


def test_a_class_of_an_application_has_attributes_of_its_own() -> None:
    class Own(JMSProducer):
        def __init__(self) -> None:
            self.orders = 0

    own = Own()
    own.orders += 1
    assert own.orders == 1
