"""Tests of bus URIs: they have a name for every setting, and every setting survives a round trip."""

import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.errors import ConfigError
from fjm2.norm import Fec, ReceiverConfig, SenderConfig, Sync
from fjm2.uri import DEFAULT_GROUP, DEFAULT_PORT, BusConfig


def test_a_uri_makes_a_session() -> None:
    config = BusConfig.from_uri("fjm2://239.1.2.3:6000?interface=127.0.0.1&ttl=0&dscp=46&loopback=off&grtt_s=1ms")
    session = config.session(node_id=7)
    assert (session.node_id, session.config.sender, session.config.receiver) == (7, config.sender, config.receiver)
    same = {
        name: getattr(session.udp_config, name) for name in ("group", "port", "interface", "ttl", "dscp", "loopback")
    }
    assert same == {name: getattr(config, name) for name in same}
    sending = config.session(is_sender_only=True, dscp=10)
    assert (sending.config.receiver, sending.udp_config.dscp) == (None, 10)


def sender(query: str) -> SenderConfig:
    return BusConfig.from_uri(f"fjm2://?{query}").sender


@pytest.mark.parametrize("text", ["fjm2://", "fjm2://239.192.57.40", "fjm2://239.192.57.40:5740/", "fjm2://:5740?"])
def test_omitted_settings_have_their_defaults(text: str) -> None:
    assert BusConfig.from_uri(text) == BusConfig(group=DEFAULT_GROUP, port=DEFAULT_PORT)
    assert BusConfig.from_uri(text).to_uri() == "fjm2://239.192.57.40:5740"


def test_every_part_has_its_place() -> None:
    uri = "fjm2://239.1.2.3:6000?interface=eth0&ttl=3&dscp=46&rate=100mbit&fec=rs&parity_segments=8&cc=on&sync=current"
    config = BusConfig.from_uri(uri)
    assert (config.group, config.port, config.interface) == ("239.1.2.3", 6000, "eth0")
    assert (config.ttl, config.dscp) == (3, 46)
    assert config.sender == SenderConfig(rate_bps=100e6, fec=Fec.RS, parity_segments=8, cc=True)
    assert config.receiver == ReceiverConfig(sync=Sync.CURRENT)


@pytest.mark.parametrize("scope", ["%eth0", "%25eth0"])
def test_ipv6_groups_stand_in_brackets(scope: str) -> None:
    config = BusConfig.from_uri(f"fjm2://[ff12::5740{scope}]:6000?interface=eth0")
    assert (config.group, config.port) == ("ff12::5740%eth0", 6000)
    assert config.to_uri() == "fjm2://[ff12::5740%25eth0]:6000?interface=eth0"
    assert BusConfig.from_uri("fjm2://[ff12::1]").group == "ff12::1"


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        ("100mbit", 100e6),
        ("1gbit", 1e9),
        ("1.5Gbps", 1.5e9),
        ("64k", 64e3),
        ("2e6", 2e6),
        ("250000", 250e3),
        ("0", None),
        ("0mbit", None),
        ("none", None),
    ],
)
def test_rates_have_units(text: str, bps: float | None) -> None:
    assert sender(f"rate={text}").rate_bps == bps
    if bps is not None:
        assert sender(f"rate_bps={text}").rate_bps == bps


@pytest.mark.parametrize(
    ("text", "size"),
    [("8388608", 8 << 20), ("8192k", 8 << 20), ("16MiB", 16 << 20), ("16m", 16 << 20), ("9MB", 9_000_000)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert sender(f"stream_bytes={text}").stream_bytes == size
    assert BusConfig.from_uri(f"fjm2://?object_bytes_max={text}").receiver.object_bytes_max == size


def test_durations_have_units() -> None:
    assert sender("grtt_s=20ms").grtt_s == pytest.approx(0.02)
    assert sender("grtt_s=0.5").grtt_s == 0.5
    assert BusConfig.from_uri("fjm2://?inactivity_s=5s").receiver.inactivity_s == 5.0
    assert BusConfig.from_uri("fjm2://?inactivity_s=2min").receiver.inactivity_s == 120.0


@pytest.mark.parametrize(("text", "is_on"), [("on", True), ("True", True), ("1", True), ("off", False), ("no", False)])
def test_switches(text: str, is_on: bool) -> None:
    assert sender(f"cc={text}").cc is is_on


def test_values_may_be_percent_encoded() -> None:
    config = BusConfig.from_uri("fjm2://?interface=a%26b%3D%20c&file_directory=%2Ftmp")
    assert (config.interface, config.receiver.file_directory) == ("a&b= c", "/tmp")
    assert BusConfig.from_uri(config.to_uri()) == config


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("segment_byte=99", r"^segment_byte=99: unknown setting; did you mean segment_bytes\?$"),
        ("client_id=desk", r"^client_id=desk: a setting of the client, .*as in ConnectionFactory\(client_id=\.\.\.\)$"),
        ("colour=red", r"^colour=red: unknown setting, expected one of .*rate.*segment_bytes"),
        ("rate=fast", "^rate=fast: expected bits per second, as in .*100mbit.*, or none$"),
        ("rate_bps=fast", "^rate_bps=fast: expected bits per second"),
        ("rate=10MiB", "^rate=10MiB: expected bits per second"),
        ("rate=5bit", "^rate=5bit: expected 1e3 to 1e12 bits per second, or none$"),
        ("rate_bps=0", "^rate_bps=0: expected 1e3 to 1e12 bits per second, or none$"),
        ("window_bytes=1k", "^window_bytes=1k: expected two segments or more$"),
        ("parity_segments=4", "^parity_segments=4: expected 0, or fec=rs$"),
        ("grtt_min_s=1&ttl=0", "^grtt_min_s=1: expected grtt_s as well, of 1.0 to 10.0$"),
        ("grtt_max_s=500us", "^grtt_max_s=500us: expected grtt_min_s as well, of 1e-6 to grtt_max_s$"),
        ("stream_bytes=16mbit", "^stream_bytes=16mbit: expected bytes, as in"),
        ("segment_bytes=1.5", "^segment_bytes=1.5: expected bytes"),
        ("segment_bytes=5", "^segment_bytes=5: expected 64 to 65000"),
        ("group_size=many", "^group_size=many: expected a whole number$"),
        ("group_size=-1", "^group_size=-1: expected a whole number$"),
        ("grtt_s=1e999", "^grtt_s=1e999: expected seconds"),
        ("cc=maybe", "^cc=maybe: expected on or off$"),
        ("fec=turbo", "^fec=turbo: expected none or rs or nocode$"),
        ("auto_parity=3", "^auto_parity=3: expected"),
        ("sync=kept", "^sync=kept: expected current or stream or all$"),
        ("sync=never", "^sync=never: expected current or stream or all$"),
        ("ttl=256", "^ttl=256: expected 0 to 255$"),
        ("dscp=64", "^dscp=64: expected 0 to 63$"),
        ("ttl", "^ttl: expected ttl=VALUE$"),
        ("ttl=1&ttl=2", "^ttl=2: given twice"),
        ("rate=1mbit&rate_bps=2e6", "^rate_bps=2e6: given twice, also as rate=1mbit, expected once$"),
        ("group=239.1.1.1", "^group=239.1.1.1: unknown"),
        ("file_directory=/no/such/place", "^file_directory=/no/such/place: expected an existing directory"),
    ],
)
def test_mistakes_are_reported_with_name_value_and_expectation(query: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BusConfig.from_uri(f"fjm2://239.192.57.40:5740?{query}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "239.192.57.40:5740",
        "http://239.192.57.40",
        "fjm2://ff12::1:5740",
        "fjm2://[ff12::1",
        "fjm2://239.1.1.1:port",
        "fjm2://239.1.1.1/path",
        "fjm2://user@239.1.1.1:1",
        "fjm2://239.1.1.1#part",
        "fjm2://239.1.1.1:0",
        "fjm2://239.1.1.1:70000",
        "fjm2://somewhere:5740",
        "fjm2://[ff12::1%]",
        "fjm2://0.0.0.0",
    ],
)
def test_other_uris_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        BusConfig.from_uri(text)


DOCS = Path(__file__).parents[3] / "docs"
NOT_IN_QUERIES = {"group", "port", "sender", "receiver"}
SETTINGS = [
    setting
    for config in (BusConfig, SenderConfig, ReceiverConfig)
    for setting in fields(config)
    if setting.name not in NOT_IN_QUERIES
]


def test_every_setting_has_a_name_in_uris() -> None:
    for setting in SETTINGS:
        assert setting.default is not MISSING
        with pytest.raises(ConfigError, match=f"^{setting.name}=.*: given twice"):
            BusConfig.from_uri(f"fjm2://?{setting.name}=none&{setting.name}=none")


def test_every_setting_is_described_in_the_docs() -> None:
    text = "\n".join(page.read_text() for page in DOCS.glob("*.md"))
    missing = [setting.name for setting in SETTINGS if not re.search(rf"[`?&]{setting.name}\b", text)]
    assert not missing, f"no page in docs/ names {', '.join(missing)}: describe it in docs/tuning.md"


@given(
    group=st.ip_addresses(v=4, network="239.0.0.0/8") | st.ip_addresses(v=6, network="ff12::/16"),
    port=st.integers(1, 65_535),
    interface=st.none() | st.text(min_size=1).filter(lambda text: text.lower() != "none"),
    ttl=st.integers(0, 255),
    rate_bps=st.none() | st.floats(1e3, 1e12),
    stream_bytes=st.integers(8 << 20, 1 << 30),
    fec=st.sampled_from(Fec),
    cc=st.booleans(),
    sync=st.sampled_from([each for each in Sync if each is not Sync.KEPT]),
    inactivity_s=st.floats(1e-9, 1e9),
)
def test_round_trip(
    group: object,
    port: int,
    interface: str | None,
    ttl: int,
    rate_bps: float | None,
    stream_bytes: int,
    fec: Fec,
    cc: bool,
    sync: Sync,
    inactivity_s: float,
) -> None:
    config = BusConfig(
        group=str(group),
        port=port,
        interface=interface,
        ttl=ttl,
        sender=SenderConfig(rate_bps=rate_bps, stream_bytes=stream_bytes, fec=fec, cc=cc),
        receiver=ReceiverConfig(sync=sync, inactivity_s=inactivity_s),
    )
    assert BusConfig.from_uri(config.to_uri()) == config
