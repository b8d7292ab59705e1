"""Tests of the types of settings: each field of each config refuses values of other types, and says what it takes."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fjm2.errors import ConfigError
from fjm2.norm import Fec, Flow, ReceiverConfig, SenderConfig, Session, SessionConfig, Sync, UdpConfig
from fjm2.uri import BusConfig

NEEDED: dict[type[Any], dict[str, Any]] = {
    SenderConfig: {},
    ReceiverConfig: {},
    SessionConfig: {"node_id": 1},
    UdpConfig: {"group": "239.192.77.1", "port": 5800},
    BusConfig: {},
}
"""Arguments that each class of settings needs at least."""
FIELDS = [pytest.param(owner, one.name, id=f"{owner.__name__}.{one.name}") for owner in NEEDED for one in fields(owner)]


@pytest.mark.parametrize("value", [object(), [1], b"1", 1j], ids=["object", "list", "bytes", "complex"])
@pytest.mark.parametrize(("owner", "name"), FIELDS)
def test_every_setting_refuses_other_types(owner: type[Any], name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}=.+: expected .+") as caught:
        owner(**{**NEEDED[owner], name: value})
    assert caught.value.setting == name


@pytest.mark.parametrize(
    ("owner", "name", "value", "text"),
    [
        (SenderConfig, "flow", "min", "flow='min': expected Flow.MIN, Flow.NAMED or Flow.MAX"),
        (SenderConfig, "fec", "rs", "fec='rs': expected Fec.NONE, Fec.RS or Fec.NOCODE"),
        (SenderConfig, "fec", Flow.MIN, "fec=<Flow.MIN: 'min'>: expected Fec.NONE, Fec.RS or Fec.NOCODE"),
        (SenderConfig, "segment_bytes", 1400.5, "segment_bytes=1400.5: expected a whole number"),
        (SenderConfig, "segment_bytes", True, "segment_bytes=True: expected a whole number"),
        (SenderConfig, "rate_bps", "5mbit", "rate_bps='5mbit': expected a number, or None"),
        (SenderConfig, "rate_bps", True, "rate_bps=True: expected a number, or None"),
        (SenderConfig, "cc", "yes", "cc='yes': expected True or False"),
        (SenderConfig, "cc", 1, "cc=1: expected True or False"),
        (ReceiverConfig, "sync", "all", "sync='all': expected Sync.CURRENT, Sync.STREAM, Sync.KEPT or Sync.ALL"),
        (ReceiverConfig, "silent", "x", "silent='x': expected True or False"),
        (ReceiverConfig, "inactivity_s", "5s", "inactivity_s='5s': expected a number"),
        (ReceiverConfig, "file_directory", 5, "file_directory=5: expected a string, or None"),
        (SessionConfig, "node_id", "a", "node_id='a': expected a whole number"),
        (UdpConfig, "port", "5822", "port='5822': expected a whole number"),
        (UdpConfig, "ttl", "0", "ttl='0': expected a whole number"),
        (UdpConfig, "offload", "x", "offload='x': expected True or False, or None"),
        (BusConfig, "port", "5822", "port='5822': expected a whole number"),
    ],
)
def test_a_setting_of_a_wrong_type_says_what_it_takes(owner: type[Any], name: str, value: object, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        owner(**{**NEEDED[owner], name: value})


def test_a_session_refuses_settings_of_another_kind() -> None:
    wrong: Any = ReceiverConfig()
    with pytest.raises(ConfigError, match=r"^sender=ReceiverConfig\(.*: expected a SenderConfig$"):
        Session("239.192.77.1", 5800, sender=wrong)
    nothing: Any = 0
    with pytest.raises(ConfigError, match=r"^sender=0: expected a SenderConfig$"):
        Session("239.192.77.1", 5800, sender=nothing)
    text: Any = "no"
    with pytest.raises(ConfigError, match=r"^is_sender_only='no': expected True or False$"):
        Session("239.192.77.1", 5800, is_sender_only=text)


def test_whole_numbers_are_good_for_times_and_rates_and_paths_for_directories(tmp_path: Path) -> None:
    config = SenderConfig(rate_bps=1_000_000, patience_s=1, flow=Flow.NAMED, fec=Fec.RS)
    assert (config.rate_bps, config.patience_s) == (1_000_000, 1)
    directory: Any = tmp_path
    assert ReceiverConfig(file_directory=directory, sync=Sync.ALL).file_directory == str(tmp_path)
