"""What stands around a gateway: the node list as a client sees it, the status server, logs, metrics, addresses."""

import asyncio
import hashlib
import hmac
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.norm import Address, Train, UdpConfig, UdpTransport
from fjm2.norm.core.wire import Message, decode
from fjm2admin import advert
from fjm2admin.registry import tokens
from fjm2admin.web.models import Sample
from fjm2d import config as configuration
from fjm2d.admin.directory import Directory
from fjm2d.admin.node_list import FILE_NAME, member_of
from fjm2d.config import AdminConfig, GatewayConfig
from fjm2d.errors import GatewayError
from fjm2d.gateway import Gateway
from fjm2d.keys import KeyPair
from fjm2d.loops import loop_factory
from fjm2d.report import metrics_of, sample_of, status_of
from fjm2d.roster import Member
from fjm2d.status import StatusServer
from fjm2d.tunnel import PeerConfig
from fjm2d.values import Endpoint
from fjm2d.wan import WanSockets, addresses_of

ROOT = Path(__file__).parents[2]
OWN, OTHER = KeyPair(bytes(range(32))), KeyPair(bytes(range(1, 33)))
TOKEN = tokens.make("paris", tokens.Scope.GATEWAY, "paris", 0.0)
ENTRY: dict[str, Any] = {
    "id": OTHER.public.id_text,
    "name": "lyon",
    "public_key": OTHER.public.text,
    "endpoints": ["198.51.100.2:5741", "[2001:db8::2]:5741"],
    "groups": ["239.192.57.40:5740"],
    "lan": None,
    "version": "1",
    "state": "live",
    "last_seen": 1.0,
}


def settings(folder: Path | None, url: str = "http://127.0.0.1:9", **more: Any) -> GatewayConfig:
    return GatewayConfig(name="paris", state_directory=folder, admin=AdminConfig(url=url, token=TOKEN[0]), **more)


class Web:
    """An HTTP server that answers what it is told to, whatever sense that makes."""

    def __init__(self, answers: dict[str, tuple[int, Any]], tls: ssl.SSLContext | None = None) -> None:
        self.answers = answers
        """By method."""
        self.asked: list[str] = []
        self.asked_at: list[float] = []
        self._tls = tls

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        host, port = self._server.sockets[0].getsockname()
        return f"{'http' if self._tls is None else 'https'}://{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        self.asked_at.append(time.monotonic())
        status, content = self.answers[head.split(" ", 1)[0]]
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


async def followed(config: GatewayConfig, until: Any, sample: dict[str, Any] | None = None) -> tuple[Directory, Any]:
    """A directory that has run until something holds, and the last list it gave."""
    lists: list[list[Member]] = []
    directory = Directory(config, OWN.public, lambda members: lists.append(list(members)), lambda: sample or {})
    directory.open()
    try:
        async with asyncio.timeout(10):
            while not until(directory, lists):  # noqa: ASYNC110, it tells nobody
                await asyncio.sleep(0.01)
    finally:
        await directory.close()
    return directory, lists[-1] if lists else None


REGISTERED = {"id": OWN.public.id_text, "list_version": 5, "heartbeat_s": 10, "advert": {"port": 0}}


# The node list.


def test_a_list_is_taken_kept_and_found_again(tmp_path: Path) -> None:
    async def first() -> None:
        answers = {"POST": (200, REGISTERED), "GET": (200, {"version": 5, "nodes": [ENTRY, {"nonsense": 1}, 7]})}
        web = Web(answers)
        async with web as url:
            directory, members = await followed(settings(tmp_path, url), lambda d, lists: lists and d.is_reached)
        assert [member.name for member in members] == ["lyon"]
        assert members[0].endpoints == (Endpoint("198.51.100.2", 5741), Endpoint("2001:db8::2", 5741))
        assert (directory.version, directory.is_from_file) == (5, False)
        assert all(f"authorization: bearer {TOKEN[0]}".lower() in head.lower() for head in web.asked)
        kept = json.loads((tmp_path / FILE_NAME).read_text())
        assert kept["url"] == url
        (tmp_path / FILE_NAME).write_text(json.dumps({**kept, "url": "http://127.0.0.1:9"}))
        directory, members = await followed(settings(tmp_path), lambda d, lists: lists and d.problem)
        assert [member.name for member in members] == ["lyon"]
        assert (directory.is_reached, directory.is_from_file) == (False, True)
        # That of another service means nothing.
        directory, members = await followed(settings(tmp_path, "http://127.0.0.2:9"), lambda d, _: d.problem)
        assert members is None

    asyncio.run(first())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": "x", "nodes": []}', b'{"url": 3}', bytes(100)])
def test_a_damaged_file_is_no_obstacle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    directory, members = asyncio.run(followed(settings(tmp_path), lambda d, _: d.problem))
    assert members is None
    assert directory.version is None


@pytest.mark.parametrize(
    "answers",
    [
        {"POST": (200, b"<html>"), "GET": (200, b"<html>")},
        {"POST": (200, {}), "GET": (200, {"version": 3})},
        {"POST": (200, []), "GET": (200, {"version": 3, "nodes": {}})},
        {"POST": (200, {"heartbeat_s": "x"}), "GET": (500, b"")},
        {"POST": (302, b""), "GET": (302, b"")},
        {"POST": (401, {"code": "unauthorised", "message": "no"}), "GET": (401, b"")},
    ],
)
def test_a_service_that_answers_nonsense_is_away(tmp_path: Path, answers: dict[str, tuple[int, Any]]) -> None:
    async def scenario() -> None:
        async with Web(answers) as url:
            directory, members = await followed(settings(tmp_path, url), lambda d, _: d.problem)
        assert not directory.is_reached
        assert members is None
        assert not (tmp_path / FILE_NAME).exists()

    asyncio.run(scenario())


def test_why_a_token_is_not_taken_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        answers = {"POST": (409, {"code": "taken", "message": "the name is somebody else's"}), "GET": (401, b"")}
        async with Web(answers) as url:
            directory, _ = await followed(settings(tmp_path, url), lambda d, _: d.problem)
        assert directory.problem == "409: the name is somebody else's"

    asyncio.run(scenario())


def test_a_token_that_is_made_good_is_soon_taken(tmp_path: Path) -> None:
    """Also one that the file holds by then."""

    async def scenario() -> None:
        file = tmp_path / "token"
        file.write_text("fjm2_of_old\n")
        admin = AdminConfig(token_file=file, url="")
        web = Web({"POST": (401, {"code": "unauthorised", "message": "no"}), "GET": (401, b"")})
        async with web as url:
            config = GatewayConfig(name="paris", state_directory=None, admin=replace(admin, url=url))
            directory = Directory(config, OWN.public, lambda _: None, dict)
            directory.open()
            began_at = time.monotonic()
            posts = lambda: [at for head, at in zip(web.asked, web.asked_at, strict=True) if head[0] == "P"]  # noqa: E731
            async with asyncio.timeout(10):
                while len(posts()) < 4:  # noqa: ASYNC110, it tells nobody
                    await asyncio.sleep(0.01)
                # After about 0.5, 1 and 2 s.
                assert 2.5 < posts()[-1] - began_at < 6
                assert directory.problem == "401: no"
                file.write_text(TOKEN[0])
                web.answers["POST"] = (200, REGISTERED)
                while not directory.is_reached:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await directory.close()
        assert "fjm2_of_old" in web.asked[0]
        assert TOKEN[0] in next(head for head in reversed(web.asked) if head[0] == "P")
        # The key of advertisements is that of the token that counts.
        directory.receive_advert(advert.pack(advert.ADVERT, 8, TOKEN[1].advert_key))
        assert directory._is_newer.is_set()

    asyncio.run(scenario())


def test_a_token_file_that_goes_away_while_the_list_changes_stops_nothing(tmp_path: Path) -> None:
    """The heartbeats go on by the token that was read, and tell of a newer list again and again."""

    async def scenario() -> None:
        file = tmp_path / "token"
        file.write_text(TOKEN[0])
        registered = {**REGISTERED, "heartbeat_s": 0.1}
        web = Web({"POST": (200, registered), "GET": (200, {"version": 5, "nodes": [ENTRY]})})
        async with web as url:
            config = GatewayConfig(state_directory=None, admin=AdminConfig(token_file=file, url=url))
            directory = Directory(config, OWN.public, lambda _: None, dict)
            directory.open()
            gets = lambda: sum(head[0] == "G" for head in web.asked)  # noqa: E731
            async with asyncio.timeout(20):
                while directory.version != 5:  # noqa: ASYNC110, it tells nobody
                    await asyncio.sleep(0.01)
                web.answers["GET"] = (503, b"")
                file.unlink()
                failed = gets() + 1
                while gets() < failed:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                web.answers["POST"] = (200, {**registered, "list_version": 6})
                await asyncio.sleep(0.5)
                web.answers["GET"] = (200, {"version": 6, "nodes": [ENTRY]})
                file.write_text(TOKEN[0])
                while directory.version != 6:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await directory.close()

    def wake(*_: object) -> None:
        raise AssertionError("the loop was stuck")

    # A loop that is stuck is not ended by a timeout of its own.
    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(25)
    try:
        asyncio.run(scenario())
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_certificate_authority_of_ones_own_may_be_changed(tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    form = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
    for name in ("own", "other"):
        words = [require_tool("openssl"), *form.split(), "-addext", "subjectAltName=IP:127.0.0.1"]
        words += ["-keyout", str(tmp_path / f"{name}-key.pem"), "-out", str(tmp_path / f"{name}.pem")]
        subprocess.run(words, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "own.pem", tmp_path / "own-key.pem")
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes((tmp_path / "other.pem").read_bytes())

    async def scenario() -> None:
        web = Web({"POST": (200, REGISTERED), "GET": (200, {"version": 5, "nodes": [ENTRY]})}, tls)
        async with web as url:
            config = settings(None, url)
            directory = Directory(
                replace(config, admin=replace(config.admin, ca_file=trusted)), OWN.public, lambda _: None, dict
            )
            directory.open()
            async with asyncio.timeout(10):
                while not directory.problem:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert "CERTIFICATE_VERIFY_FAILED" in directory.problem
                assert web.asked == []
                trusted.write_bytes((tmp_path / "own.pem").read_bytes())
                while directory.version != 5 or not directory.is_reached:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await directory.close()

    asyncio.run(scenario())


def test_advertisements_are_believed_by_their_seal_only() -> None:
    async def scenario() -> None:
        directory = Directory(settings(None), OWN.public, lambda _: None, dict)
        directory._client.refresh()
        await directory.close()
        key = TOKEN[1].advert_key
        assert key == hmac.digest(hashlib.sha256(TOKEN[0].encode()).digest(), tokens.ADVERT_LABEL, "sha256")
        directory.version = 7
        genuine = advert.pack(advert.ADVERT, 8, key)
        for wrong in (
            advert.pack(advert.ADVERT, 7, key),
            advert.pack(advert.QUERY, 8, key),
            advert.pack(advert.ADVERT, 8, bytes(32)),
            genuine[:-1],
            b"",
            genuine[:-1] + bytes([genuine[-1] ^ 1]),
        ):
            directory.receive_advert(wrong)
            assert not directory._is_newer.is_set()
        directory.receive_advert(genuine)
        assert directory._is_newer.is_set()

    asyncio.run(scenario())


@given(
    st.sampled_from(sorted(ENTRY)),
    st.recursive(
        st.one_of(st.none(), st.integers(), st.text(max_size=10)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    ),
)
def test_whatever_an_entry_holds_it_is_a_gateway_or_nothing(key: str, value: Any) -> None:
    member = member_of({**ENTRY, key: value})
    assert member is None or member.public_key == OTHER.public
    assert member_of(value) is None


# The status server.


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_the_status_server_answers_what_it_should_and_nothing_else(port: int) -> None:
    faults: list[str] = []

    async def scenario() -> None:
        server = StatusServer(lambda: {"name": "x"}, lambda: "metric 1\n", lambda: faults)
        await server.open(("127.0.0.1", port))
        for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", "127.1.2.3", f"[::1]:{port}", "[::1]"):
            assert b'"name": "x"' in await ask(port, f"GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        for host in ("x", "", "evil.example:5743", "192.0.2.1:5743", "[2001:db8::1]", "localhost.evil", "127.0.0.1.x"):
            answer = await ask(port, f"GET /status HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 403"), host
            assert b'"name"' not in answer
        two = b"GET /status HTTP/1.1\r\nHost: localhost\r\nHost : x\r\n\r\n"
        assert (await ask(port, two)).startswith(b"HTTP/1.1 403")
        assert (await ask(port, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n")).endswith(b"metric 1\n")
        assert (await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        head, _, body = (await ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
        assert b"Content-Length: 9" in head
        assert body == b""
        faults.append("it is broken")
        answer = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"it is broken" in answer
        assert (await ask(port, b"POST /status HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405")
        assert (await ask(port, b"GET /etc/passwd HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
        assert (await ask(port, b"\x16\x03\x01\r\n\r\n")).startswith(b"HTTP/1.1 400")
        assert await ask(port, b"x" * 20_000) == b""
        # Who says nothing holds up nobody.
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        assert b'"name": "x"' in await ask(port, b"GET / HTTP/1.1\r\n\r\n")
        for _, writer in idle:
            writer.close()
        other = StatusServer(dict, str, list)
        with pytest.raises(GatewayError, match=rf"cannot listen at TCP 127\.0\.0\.1:{port}"):
            await other.open(("127.0.0.1", port))
        await server.open(None)
        with pytest.raises(OSError, match="Connect call failed"):
            await ask(port, b"")

    asyncio.run(scenario())


# What is told.


def test_a_report_is_what_prometheus_and_the_service_take() -> None:
    gateway = Gateway(GatewayConfig(name='a "name"\\'), OWN)
    gateway.endpoint.add_peer(PeerConfig(public_key=OTHER.public, name="b\n", addresses=()), gateway.now())
    Sample.model_validate(sample_of(gateway))
    json.dumps(status_of(gateway, None))
    lines = metrics_of(gateway, None).splitlines()
    assert 'name="a \\"name\\"\\\\"' in lines[2]
    assert any(line.startswith('fjm2d_peer_up{peer="b\\n",') for line in lines)
    names = [line.split(" ")[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    for line in lines:
        assert line.startswith(("# HELP fjm2d_", "# TYPE fjm2d_", "fjm2d_"))


def test_the_service_is_told_of_the_busiest_links() -> None:
    gateway = Gateway(GatewayConfig(name="x"), OWN)
    for number in range(100):
        key = KeyPair(bytes([number, 1]) * 16).public
        peer = gateway.endpoint.add_peer(PeerConfig(public_key=key, name=str(number), addresses=()), gateway.now())
        peer.stats.bytes_received = number * 1000
        peer.stats.bytes_sent = number
    links = sample_of(gateway)["links"]
    assert [link["bytes_out"] for link in links] == list(range(99, 35, -1))


# Sockets.


def test_endpoints_are_found_for_the_families_that_there_are_sockets_for(port: int) -> None:
    both = frozenset({socket.AF_INET, socket.AF_INET6})
    only_ipv4 = frozenset({socket.AF_INET})

    def found(host: str, families: frozenset[int]) -> tuple[Address, ...]:
        return asyncio.run(addresses_of(Endpoint(host, 5), families))

    families = {"192.0.2.1": socket.AF_INET, "2001:db8::1": socket.AF_INET6, "a.b1": 0, "1a": 0, "localhost": 0}
    assert {host: Endpoint(host, 5).family for host in families} == families
    assert found("192.0.2.1", both) == (("192.0.2.1", 5),)
    assert found("2001:db8::1", both) == (("2001:db8::1", 5),)
    assert found("2001:db8::1", only_ipv4) == ()
    assert found("no-such-host.invalid", both) == ()
    assert ("127.0.0.1", 5) in found("localhost", both)
    wan = WanSockets([("127.0.0.1", port)])
    with pytest.raises(GatewayError, match=rf"wan\.listen: cannot listen at UDP 127\.0\.0\.1:{port}: Address already"):
        WanSockets([("127.0.0.1", port)])
    wan.close()


def test_what_the_kernel_does_with_datagrams_of_the_internet_is_told(port: int, tmp_path: Path) -> None:
    file = on_this_host(tmp_path, port)

    async def scenario() -> None:
        gateway = Gateway(configuration.load(file, {}), OWN)
        gateway.open()
        try:
            assert status_of(gateway, None)["drops"]["wan"] == {}
            # To where a socket of this host's has no way.
            gateway.wan.send(Train(np.zeros(64, np.uint8), 64, ("192.0.2.1", 9)))
            (wan,) = gateway.wan.sockets
            wan.kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flood:
                for _ in range(100):
                    flood.sendto(bytes(1000), wan.address)
            dropped = status_of(gateway, None)["drops"]["wan"]
            assert dropped["send_einval"] == 1
            assert dropped["kernel_full"] > 10
            assert 'fjm2d_drops_total{side="wan",reason="send_einval"} 1' in metrics_of(gateway, None)
        finally:
            await gateway.close()

    asyncio.run(scenario())


def test_a_resolver_that_does_not_answer_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    never = threading.Event()

    def resolve(host: str, *_: Any) -> list[Any]:
        asked.append(host)
        if host == "fine.example":
            return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", ("192.0.2.1", 5))]
        never.wait(60)
        raise OSError

    async def look_up() -> None:
        slow = [asyncio.ensure_future(addresses_of(Endpoint(f"dead{n}.example", 5), families)) for n in range(100)]
        await asyncio.sleep(0.2)
        assert len(asked) == 16
        for one in slow[4:]:
            one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow[50]

    families = frozenset({socket.AF_INET})
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        began_at = time.monotonic()
        assert runner.run(addresses_of(Endpoint("fine.example", 5), families)) == (("192.0.2.1", 5),)
        asked.clear()
        runner.run(look_up())
    assert time.monotonic() - began_at < 2
    never.set()


DEAD_RESOLVER = """
# As with name servers that are not reached: each question takes a minute.
import socket, time
resolve = socket.getaddrinfo
def ask(host, *arguments, **options):
    return time.sleep(60) if "invalid" in str(host) else resolve(host, *arguments, **options)
socket.getaddrinfo = ask
from fjm2d.cli import main
main()
"""


def test_ctrl_c_ends_it_at_once_whatever_the_resolver_does(port: int, tmp_path: Path) -> None:
    file = on_this_host(tmp_path, port)
    OWN.save(tmp_path / "key")
    keys = [KeyPair(bytes([number, 1]) * 16).public.text for number in range(12)]
    names = "".join(
        f'[[peer]]\npublic_key = "{key}"\nendpoints = ["p{key[:4].encode().hex()}.invalid:5"]\n' for key in keys
    )
    admin = '[admin]\nurl = "http://admin.invalid:8750"\ntoken = "x"\n'
    file.write_text(file.read_text() + admin + names)
    command = (sys.executable, "-c", DEAD_RESOLVER, "run", "--config", str(file))
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    try:
        assert any("started" in line for line in process.stderr)
        time.sleep(0.5)
        began_at = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert time.monotonic() - began_at < 2
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def on_this_host(folder: Path, port: int) -> Path:
    """Settings that nothing leaves the host by."""
    file = folder / "fjm2d.toml"
    file.write_text(
        f'key_file = "{folder / "key"}"\n[wan]\nlisten = ["127.0.0.1:{port}"]\n'
        f'[lan]\ninterface = "127.0.0.1"\nttl = 0\nbeacon = "239.192.57.91:{port + 1}"\n'
        f'[status]\nlisten = ""\n[[group]]\naddress = "239.192.57.90:{port + 1}"\n'
    )
    return file


@pytest.mark.parametrize("taken", ["wan", "interface"])
def test_what_is_in_the_way_is_told_in_a_line(taken: str, port: int, tmp_path: Path) -> None:
    file = on_this_host(tmp_path, port)
    OWN.save(tmp_path / "key")
    if taken == "interface":
        file.write_text(file.read_text().replace('"127.0.0.1"', '"none7"'))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", port if taken == "wan" else port + 1))
        command = (sys.executable, "-m", "fjm2d", "run", "--config", str(file))
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("Error: ")
    assert ("wan.listen: cannot listen at UDP" if taken == "wan" else "interface='none7'") in line


def test_an_operator_is_told_how_the_gateway_is(port: int, tmp_path: Path) -> None:
    file = on_this_host(tmp_path, port)
    file.write_text(
        file.read_text().replace('listen = ""', f'listen = "127.0.0.1:{port}"')
        + f'[[peer]]\nname = "lyon"\npublic_key = "{OTHER.public.text}"\nendpoints = ["127.0.0.1:9"]\n'
        + '[[peer]]\nname = "rome"\nrate = "50mbit"\n'
        + f'public_key = "{KeyPair(bytes(range(2, 34))).public.text}"\n'
    )
    OWN.save(tmp_path / "key")
    command = [sys.executable, "-m", "fjm2d"]
    with subprocess.Popen([*command, "run", "--config", str(file)], stderr=subprocess.PIPE, cwd=ROOT) as process:
        try:
            deadline = time.monotonic() + 20
            told = ""
            while "lyon is not connected: called" not in told:
                assert time.monotonic() < deadline, told
                words = [*command, "status", "--config", str(file)]
                told = subprocess.run(words, capture_output=True, text=True, timeout=30, cwd=ROOT).stdout
        finally:
            process.terminate()
    lyon, rome = [line.split() for line in told.splitlines() if line.startswith(("lyon  ", "rome  "))]
    assert lyon[:4] == ["lyon", "connecting", "-", "-"]
    assert lyon[7].startswith("~")
    assert rome[7:9] == ["50", "Mbit/s"]
    assert "rome is not connected: called 0 times, its own calls answered 0 times" in told
    assert f"239.192.57.90:{port + 1}" in told


def test_no_two_questions_to_the_lan_are_the_same_datagram(port: int, tmp_path: Path) -> None:
    file = on_this_host(tmp_path, port)

    async def scenario() -> None:
        gateway = Gateway(configuration.load(file, {}), OWN)
        listener = UdpTransport(UdpConfig(group="239.192.57.90", port=port + 1, interface="127.0.0.1", ttl=0))
        asked: list[Message] = []
        gateway.open()
        try:
            async with asyncio.timeout(10):
                while len(asked) < 3:
                    gateway.forwarder.is_presence_wanted = True
                    await asyncio.sleep(0.02)
                    while (train := listener.group.receive()) is not None:
                        asked.append(decode(train.data.tobytes()))
        finally:
            await gateway.close()
            listener.close()
        assert [message.sequence for message in asked] == [0, 1, 2]
        assert {message.source_id for message in asked} == {asked[0].source_id}

    asyncio.run(scenario())


def test_the_whole_of_a_gateway_closes_again(port: int, tmp_path: Path) -> None:
    file = on_this_host(tmp_path, port)

    async def scenario() -> None:
        config = configuration.load(file, {})
        for _ in range(2):
            gateway = Gateway(config, OWN)
            gateway.open()
            await asyncio.sleep(0.15)
            assert gateway.forwarder.is_forwarder
            assert list(gateway.faults()) == []
            await gateway.close()
            await gateway.close()
        taken = Gateway(config, OWN)
        other = Gateway(config, OWN)
        taken.open()
        with pytest.raises(GatewayError, match="cannot listen"):
            other.open()
        await taken.close()

    asyncio.run(scenario())
