"""Settings of connection factories: mistakes raise ConfigError with the name, the value and what was expected."""

from dataclasses import fields
from enum import Enum
from typing import Any, get_args, get_type_hints

import pytest

from fjm2.base.errors import ConfigError
from fjm2.bus.config import CLIENT_SETTINGS, URI_SETTINGS
from fjm2.bus.inbox import ConsumerSettings, Overflow
from fjm2.jms import ConnectionFactory, ConnectionOptions
from fjm2.jms.settings import ClientSettings
from fjm2.norm import Fec, Flow, Sync


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"messages_max": "many"}, "^messages_max='many': expected a whole number, 1 or more$"),
        ({"messages_max": 0}, "^messages_max=0: expected a whole number, 1 or more$"),
        ({"messages_max": True}, "^messages_max=True: expected"),
        ({"bytes_max": "64MiB"}, "^bytes_max='64MiB': expected a whole number"),
        ({"redeliveries_max": 1.5}, "^redeliveries_max=1.5: expected a whole number, 0 or more$"),
        ({"block_s": [5]}, r"^block_s=\[5\]: expected seconds, .*, or inf for no limit$"),
        ({"confirm_timeout_s": "5 apples"}, "^confirm_timeout_s='5 apples': expected seconds, or a number with a unit"),
        ({"close_timeout_s": None}, "^close_timeout_s=None: expected seconds"),
        ({"close_timeout_s": 0}, "^close_timeout_s=0: expected more than 0 seconds$"),
        ({"client_id": 5}, "^client_id=5: expected a string that is not empty$"),
        ({"client_id": ""}, "^client_id='': expected a string that is not empty$"),
        ({"codec": "pickle"}, "^codec='pickle': expected an object with encode and decode"),
        ({"clientid": "desk"}, r"^clientid='desk': unknown setting; did you mean client_id\?$"),
        ({"colour": "red"}, "^colour='red': unknown setting, expected one of .*client_id, .*window_bytes$"),
        ({"uri": 5}, "^uri=5: expected a text"),
    ],
)
def test_mistakes_name_setting_value_and_what_was_expected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ConnectionFactory(**{"uri": "fjm2://", **options})


def test_durations_of_the_client_may_have_units() -> None:
    settings = ClientSettings(confirm_timeout_s="500ms", close_timeout_s="1min")  # type: ignore[arg-type]
    assert (settings.confirm_timeout_s, settings.close_timeout_s) == (0.5, 60.0)


def test_the_settings_of_the_client_are_all_known_to_the_uri() -> None:
    own = {one.name for one in fields(ClientSettings)} - {"consumer"}
    assert own | {one.name for one in fields(ConsumerSettings)} == CLIENT_SETTINGS
    assert not CLIENT_SETTINGS & URI_SETTINGS


def test_the_options_for_type_checkers_are_those_of_factories() -> None:
    assert ConnectionOptions.__annotations__.keys() == URI_SETTINGS | CLIENT_SETTINGS


@pytest.mark.parametrize(("name", "words"), [("overflow", Overflow), ("fec", Fec), ("flow", Flow), ("sync", Sync)])
def test_the_words_for_type_checkers_are_those_of_factories(name: str, words: type[Enum]) -> None:
    names = {"Fec": Fec, "Flow": Flow, "Sync": Sync, "TracerProvider": object}
    hints = get_type_hints(ConnectionOptions, localns=names)
    kind, literal = get_args(hints[name])
    known = tuple(one.value for one in words if one is not Sync.KEPT)  # which is for keepers
    assert (kind, get_args(literal)) == (words, known)
