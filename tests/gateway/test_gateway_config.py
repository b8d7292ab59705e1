"""Tests of the gateway's settings: parsing, and the errors reported for wrong values."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fjm2d import config as configuration
from fjm2d import roster
from fjm2d.cli import CONFIGURATION_WRONG, main
from fjm2d.config import VARIABLES, GatewayConfig
from fjm2d.errors import ConfigurationErrors
from fjm2d.keys import KeyPair, PublicKey
from fjm2d.roster import Member, sides_of
from fjm2d.values import Endpoint, Rate

ROOT = Path(__file__).parents[2]
KEY = KeyPair(bytes(range(32))).public.text
OTHER_KEY = KeyPair(bytes(range(1, 33))).public.text
GROUP = '[[group]]\naddress = "239.192.57.40:5740"\n'


def load(tmp_path: Path, text: str, **environment: str) -> GatewayConfig:
    file = tmp_path / "fjm2d.toml"
    file.write_text(text)
    return configuration.load(file, environment)


def faults(tmp_path: Path, text: str, **environment: str) -> dict[str, str]:
    """Load wrong settings, and return the problem and the allowed values for each key.

    Each error must name the source of the setting.
    """
    with pytest.raises(ConfigurationErrors) as caught:
        load(tmp_path, text, **environment)
    for error in caught.value.errors:
        assert str(error) == f"{error.file}: {error.key}: {error.problem}; allowed: {error.allowed}"
        assert error.file in (str(tmp_path / "fjm2d.toml"), "environment")
    return {error.key: f"{error.problem}; {error.allowed}" for error in caught.value.errors}


def test_a_group_is_the_only_required_setting(tmp_path: Path) -> None:
    config = load(tmp_path, GROUP)
    assert config.groups[0].address == ("239.192.57.40", 5740)
    assert not config.groups[0].is_always
    assert config.wan.listen == (("0.0.0.0", 5741),)
    assert config.status.listen == ("127.0.0.1", 5743)
    assert config.wan.rate == Rate(None, is_measured=True)
    assert set(faults(tmp_path, "")) == {"group"}


def test_every_setting_can_be_given(tmp_path: Path) -> None:
    text = f"""
name = "paris"
key_file = "/tmp/key"
state_directory = ""
[wan]
listen = ["203.0.113.7:5741", "[2001:db8::7]:5741"]
endpoints = ["gw.example.org:5741", "[2001:DB8::7]:5741"]
rate = "measure 50mbit"
uplink = "1gbit"
mtu = 1400
mtu_max = 9000
keepalive_s = 20
[lan]
interface = "eth1"
label = "hall 3"
ttl = 2
beacon = "[ff15::57]:5742"
[admin]
url = "https://list.example.org/base/"
token = "fjm2_x"
ca_file = "/tmp/ca.pem"
[status]
listen = ""
[log]
level = "debug"
format = "json"
[[group]]
address = "[FF15::0057]:5740"
carry = "always"
[[peer]]
public_key = "{KEY}"
name = "lyon"
endpoints = ["198.51.100.2:5741"]
lan = "hall 4"
rate = "8.5mbit"
"""
    config = load(tmp_path, text)
    assert config.state_directory is None
    assert config.wan.endpoints == (Endpoint("gw.example.org", 5741), Endpoint("2001:db8::7", 5741))
    assert config.wan.rate == Rate(50e6, is_measured=True)
    assert config.wan.uplink == 1e9
    assert config.lan.beacon == ("ff15::57", 5742)
    assert config.admin.url == "https://list.example.org/base"
    assert config.status.listen is None
    assert config.groups[0].address == ("ff15::57", 5740)
    assert config.peers[0].public_key == PublicKey.from_text(KEY)
    assert config.peers[0].rate == Rate(8.5e6)


def test_all_mistakes_are_reported_together_with_the_allowed_values(tmp_path: Path) -> None:
    text = """
nmae = "paris"
key_file = 7
[wan]
listen = ["0.0.0.0:5741", "10.0.0.1:5741"]
endpoints = ["example.org"]
rate = "fast"
mtu = 200
[lan]
label = 3
beacon = "10.0.0.1:5742"
[admin]
url = "list.example.org"
[status]
listen = "0.0.0.0:5743"
[log]
level = "loud"
[[group]]
address = "192.0.2.1:5740"
[[group]]
carry = "never"
[[peer]]
public_key = "short"
endpoints = ["x:0"]
"""
    found = faults(tmp_path, text)
    assert set(found) == {
        "nmae",
        "key_file",
        "wan.listen",
        "wan.endpoints",
        "wan.rate",
        "wan.mtu",
        "lan.label",
        "lan.beacon",
        "admin.url",
        "status.listen",
        "log.level",
        "group[1].address",
        "group[2].carry",
        "group[2].address",
        "peer[1].public_key",
        "peer[1].endpoints",
    }
    assert "name, key_file" in found["nmae"]
    assert '"100mbit"' in found["wan.rate"]
    assert "576 to 65535" in found["wan.mtu"]
    assert "loopback" in found["status.listen"]
    assert '"debug" or "info"' in found["log.level"]
    assert "multicast" in found["group[1].address"]
    assert found["group[2].address"].startswith("is missing; GROUP:PORT")
    assert "fjm2d keygen" in found["peer[1].public_key"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"{GROUP}{GROUP}", "group[2].address"),
        (f'{GROUP}[[peer]]\npublic_key = "{KEY}"\n[[peer]]\npublic_key = "{KEY}"', "peer[2].public_key"),
        (f'{GROUP}[wan]\nendpoints = ["x.org:1"]\n[admin]\nurl = "http://x.org"', "admin.token_file"),
        (f'{GROUP}[admin]\ntoken = "x"\ntoken_file = "/x"', "admin.token"),
        (f"{GROUP}[wan]\nmtu = 9000", "wan.mtu"),
        (f"wan = 3\n{GROUP}", "wan"),
        ("[group]\naddress = 3", "group"),
        ("group = [3]", "group"),
        (f"{GROUP}[wan]\nmtu = true", "wan.mtu"),
        (f'{GROUP}[wan]\nuplink = "measure"', "wan.uplink"),
        (f'{GROUP}[wan]\nlisten = ["gw.example.org:5741"]', "wan.listen"),
        (f'{GROUP}[wan]\nendpoints = ["1.2.3:5741"]', "wan.endpoints"),
        (f'{GROUP}[lan]\nbeacon = "239.192.57.40:5740"', "lan.beacon"),
        (f'{GROUP}[wan]\nlisten = ["0.0.0.0:5740"]', "wan.listen"),
        (f'{GROUP}[wan]\nlisten = ["0.0.0.0:5742"]', "wan.listen"),
        ('[[group]]\naddress = "[ff15::57]:5741"\n[wan]\nlisten = ["0.0.0.0:5741", "[::]:5741"]', "wan.listen"),
        (f'{GROUP}[wan]\nlisten = ["192.0.2.1%eth0:5741"]', "wan.listen"),
        ('[[group]]\naddress = "[ff12::57%]:5740"', "group[1].address"),
        ('[[group]]\naddress = "[ff12::57%\\u001b[2J]:5740"', "group[1].address"),
        ("= 3", "file"),
    ],
)
def test_one_mistake_is_one_error(tmp_path: Path, text: str, key: str) -> None:
    assert list(faults(tmp_path, text)) == [key]


@pytest.mark.parametrize("listen", ["127.0.0.1:5740", "[::]:5740"])
def test_the_port_of_a_group_may_be_used_on_an_address_that_does_not_clash(tmp_path: Path, listen: str) -> None:
    assert load(tmp_path, f'{GROUP}[wan]\nlisten = ["{listen}"]').wan.listen[0][1] == 5740


def test_the_error_for_a_missing_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationErrors, match=r"none\.toml: file: cannot be read \(No such file"):
        configuration.load(tmp_path / "none.toml", {})


def test_errors_without_a_settings_file_say_where_it_was_looked_for() -> None:
    places = r"\(no /etc/fjm2/fjm2d\.toml, and neither --config nor FJM2D_CONFIG names one\)"
    with pytest.raises(ConfigurationErrors, match=rf"^no settings file {places}: group: is missing; allowed: "):
        configuration.load(None, {})


def test_the_environment_wins(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        f'name = "file"\n{GROUP}[wan]\nmtu = 1400',
        FJM2D_NAME="variable",
        FJM2D_WAN_MTU="find",
        FJM2D_WAN_LISTEN="0.0.0.0:9, [::]:9",
        FJM2D_WAN_KEEPALIVE_S="5.5",
        FJM2D_LAN_TTL="3",
        FJM2D_GROUPS="239.0.0.1:1,239.0.0.2:2",
        FJM2D_CONFIG="ignored",
        HOME="/root",
    )
    assert config.name == "variable"
    assert config.wan.mtu is None
    assert config.wan.listen == (("0.0.0.0", 9), ("::", 9))
    assert config.wan.keepalive_s == 5.5
    assert config.lan.ttl == 3
    assert [group.address for group in config.groups] == [("239.0.0.1", 1), ("239.0.0.2", 2)]


def test_errors_in_the_environment_name_the_variable(tmp_path: Path) -> None:
    found = faults(tmp_path, GROUP, FJM2D_LAN_TTL="x", FJM2D_NONSENSE="1", FJM2D_WAN_MTU="9000")
    assert set(found) == {"FJM2D_LAN_TTL", "FJM2D_NONSENSE", "FJM2D_WAN_MTU"}
    assert "0 to 255" in found["FJM2D_LAN_TTL"]
    assert "FJM2D_WAN_LISTEN" in found["FJM2D_NONSENSE"]


_toml = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=True), st.text(max_size=30)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=5,
)
_keys = st.sampled_from(["name", "key_file", "wan", "lan", "group", "peer", "admin", "status", "log", "other"])
_fields = st.sampled_from(
    ["listen", "rate", "mtu", "address", "carry", "public_key", "endpoints", "url", "token", "ttl"]
)


@given(st.dictionaries(_keys, st.one_of(_toml, st.dictionaries(_fields, _toml, max_size=4)), max_size=6))
def test_any_content_gives_settings_or_errors(content: dict[str, object]) -> None:
    loading = configuration._Loading()
    config = loading.read_file("x.toml", content)
    loading.check(config)
    assert loading.errors or isinstance(config, GatewayConfig)


def test_every_variable_belongs_to_a_listed_setting() -> None:
    told = {key for key, _, _ in configuration.settings()}
    assert "group[].carry" in told
    for variable in VARIABLES:
        assert variable == "FJM2D_GROUPS" or variable.removeprefix("FJM2D_").lower() in {
            key.replace(".", "_") for key in told
        }


def test_the_example_is_valid_and_names_every_setting() -> None:
    text = (ROOT / "packaging" / "fjm2d.toml").read_text()
    configuration.load(ROOT / "packaging" / "fjm2d.toml", {})
    for key, _, _ in configuration.settings():
        name = key.rpartition(".")[2]
        assert f"\n{name} = " in text or f"\n# {name} = " in text, f"{key} is not in the example"


# Peers and mates.


def test_gateways_are_peers_or_mates() -> None:
    own, one, two = (KeyPair(bytes([number]) * 32).public for number in (1, 2, 3))
    bus = frozenset({"239.192.57.40:5740"})
    static = Member(public_key=one, name="static", endpoints=(Endpoint("a", 1),), is_static=True)
    listed = [
        Member(public_key=own, name="self", groups=bus),
        Member(public_key=one, name="listed", groups=bus),
        Member(public_key=two, name="mate", lan="hall", groups=bus),
    ]
    sides = sides_of(own, "hall", bus, [static], listed)
    assert sides.peers == {one.id: static}
    assert set(sides.mates) == {two.id}
    sides = sides_of(own, "", bus, [], listed)
    assert set(sides.peers) == {one.id, two.id}
    assert sides_of(own, "", frozenset({"239.1.1.1:1"}), [], listed).peers == {}


def test_all_gateways_choose_the_same_peers_from_a_list_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "PEERS_MAX", 5)
    keys = [KeyPair(bytes([number]) * 32).public for number in range(1, 13)]
    own, named = keys[0], keys[1]
    bus = frozenset({"239.192.57.40:5740"})
    listed = [Member(public_key=key, groups=bus) for key in keys[2:]]
    static = [Member(public_key=named, is_static=True)]
    sides = sides_of(own, "", bus, static, listed)
    lowest = sorted(key.id for key in keys[2:])
    assert set(sides.peers) == {named.id, *lowest[:4]}
    assert sides.left_out == 6
    assert sides_of(own, "", bus, static, listed[::-1]) == sides
    assert sides_of(own, "", bus, [], listed[:5]).left_out == 0


# Commands.


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments, env={"FJM2D_CONFIG": ""})
    return result.exit_code, result.output


def test_keygen_prints_the_public_key_and_never_overwrites_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    code, output = run("keygen", str(file))
    assert code == 0
    public, given, named = output.splitlines()
    assert PublicKey.from_text(public) == KeyPair.load(file).public
    assert given.startswith("Give the line above to the other gateways.")
    assert KeyPair.load(file).public.fingerprint in named
    assert file.stat().st_mode & 0o777 == 0o600
    code, output = run("keygen", str(file))
    assert code == CONFIGURATION_WRONG
    assert "not overwritten" in output


def test_check_reports_mistakes_and_valid_settings(tmp_path: Path) -> None:
    key, file = tmp_path / "key", tmp_path / "fjm2d.toml"
    file.write_text(f'key_file = "{key}"\n{GROUP}[[peer]]\nname = "x"\npublic_key = "{OTHER_KEY}"\n')
    code, output = run("check", "--config", str(file))
    assert (code, "no such file; make one with `fjm2d keygen`" in output) == (CONFIGURATION_WRONG, True)
    run("keygen", str(key))
    code, output = run("check", "--config", str(file))
    assert code == 0
    assert KeyPair.load(key).public.text in output
    assert "239.192.57.40:5740 (interest)" in output
    file.write_text(file.read_text().replace(OTHER_KEY, KeyPair.load(key).public.text))
    code, output = run("check", "--config", str(file))
    assert (code, "peer[1].public_key: is this gateway's own; allowed: " in output) == (CONFIGURATION_WRONG, True)
    code, output = run("run", "--config", str(file))
    assert (code, "peer[1].public_key: is this gateway's own; allowed: " in output) == (CONFIGURATION_WRONG, True)
    token = tmp_path / "token"
    token.write_text("x")
    file.write_text(f'key_file = "{key}"\n{GROUP}[admin]\nurl = "https://a"\ntoken_file = "{token}"\n')
    for mode, is_open in ((0o644, True), (0o600, False)):
        token.chmod(mode)
        code, output = run("check", "--config", str(file))
        assert (code, f"Warning: {token}: mode 0644 lets others read the token" in output) == (0, is_open)
    file.write_text(f'key_file = "{key}"\n{GROUP}[lan]\ninterface = "absent0"\n')
    code, output = run("check", "--config", str(file))
    assert (code, "Error: on this host, the gateway would not start: interface='absent0'" in output) == (1, True)
    file.write_text("[wan]\nrate = 3\nmtu = 1\n")
    code, output = run("check", "--config", str(file))
    assert code == CONFIGURATION_WRONG
    assert output.count("Error: ") == 3
    assert "Traceback" not in output


def test_help_shows_examples_and_every_setting() -> None:
    assert "fjm2d keygen /etc/fjm2/fjm2d.key" in run("--help")[1]
    output = run("run", "--help")[1]
    for key, _, _ in configuration.settings():
        assert key in output
    for command in ("check", "keygen", "status"):
        assert "Example: fjm2d" in run(command, "--help")[1]


def test_status_says_that_no_gateway_answers(tmp_path: Path, port: int) -> None:
    file = tmp_path / "fjm2d.toml"
    file.write_text(f'[status]\nlisten = "127.0.0.1:{port}"\n{GROUP}')
    code, output = run("status", "--config", str(file))
    assert code == 1
    assert f"no gateway answers at http://127.0.0.1:{port}/status" in output
