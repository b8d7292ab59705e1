"""Test that exceptions can be pickled, so that they survive the way between processes."""

import copy
import pickle

import pytest

from fjm2.errors import CaptureError, ConfigError, FJM2Error, WireError
from fjm2.jms import (
    ConsumerFullError,
    InvalidSelectorError,
    JMSError,
    JMSSecurityError,
    MessagesDroppedError,
    MessagesExpiredError,
    MessagesLostError,
    Selector,
    Topic,
    UnconfirmedError,
)


def selector_error() -> InvalidSelectorError:
    with pytest.raises(InvalidSelectorError) as caught:
        Selector("price > > 3")
    return caught.value


ERRORS = [
    CaptureError("no capture"),
    ConfigError("ttl=300: expected 0 to 255"),
    WireError("too short", 7),
    JMSError("reason", "code", ValueError("beneath")),
    JMSSecurityError("refused"),
    MessagesDroppedError(Topic("prices"), 3),
    MessagesExpiredError(Topic("prices"), 3),
    MessagesLostError("lost", client_ids=("desk-7",), host="10.0.0.13", topics=(Topic("prices"),), messages=7),
    ConsumerFullError(Topic("prices"), 9),
    UnconfirmedError("why", frozenset({1, 2}), in_doubt=False),
    selector_error(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("copied", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["pickle", "copy"])
def test_errors_are_pickled(error: FJM2Error, copied: object) -> None:
    again = copied(error)  # type: ignore[operator]
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert {name: str(value) for name, value in vars(again).items()} == {n: str(v) for n, v in vars(error).items()}
