"""Tests of the services around a gateway: status server, metrics, reports, sockets, name lookups and commands."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fjm2.norm import Address, Train, UdpConfig, UdpTransport
from fjm2.norm.core.wire import Message, decode
from fjm2admin.web.models import Sample
from fjm2d import config as configuration
from fjm2d.config import GatewayConfig
from fjm2d.errors import GatewayError
from fjm2d.gateway import Gateway
from fjm2d.keys import KeyPair
from fjm2d.loops import loop_factory
from fjm2d.report import metrics_of, sample_of, status_of
from fjm2d.status import StatusServer
from fjm2d.tunnel import PeerConfig
from fjm2d.values import Endpoint
from fjm2d.wan import WanSockets, addresses_of

ROOT = Path(__file__).parents[2]
OWN, OTHER = KeyPair(bytes(range(32))), KeyPair(bytes(range(1, 33)))


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_the_status_server_answers_valid_local_requests_only(port: int) -> None:
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
        # Idle connections do not block other requests.
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        assert b'"name": "x"' in await ask(port, b"GET / HTTP/1.1\r\n\r\n")
        for _, writer in idle:
            writer.close()
        other = StatusServer(dict, str, list)
        with pytest.raises(GatewayError, match=rf"cannot listen at TCP 127\.0\.0\.1:{port}: Address already in use$"):
            await other.open(("127.0.0.1", port))
        await server.open(None)
        with pytest.raises(OSError, match="Connect call failed"):
            await ask(port, b"")

    asyncio.run(scenario())


def test_reports_have_the_formats_of_prometheus_and_the_service() -> None:
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


def test_the_service_gets_the_busiest_links() -> None:
    gateway = Gateway(GatewayConfig(name="x"), OWN)
    for number in range(100):
        key = KeyPair(bytes([number, 1]) * 16).public
        peer = gateway.endpoint.add_peer(PeerConfig(public_key=key, name=str(number), addresses=()), gateway.now())
        peer.stats.bytes_received = number * 1000
        peer.stats.bytes_sent = number
    links = sample_of(gateway)["links"]
    assert [link["bytes_out"] for link in links] == list(range(99, 35, -1))


def test_endpoints_are_resolved_for_the_families_with_sockets(port: int) -> None:
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


def test_datagrams_that_the_kernel_drops_on_the_wan_side_are_counted(port: int, tmp_path: Path) -> None:
    file = on_this_host(tmp_path, port)

    async def scenario() -> None:
        gateway = Gateway(configuration.load(file, {}), OWN)
        gateway.open()
        try:
            assert status_of(gateway, None)["drops"]["wan"] == {}
            # A socket bound to the loopback address cannot send there.
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


def test_a_resolver_that_does_not_answer_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
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
# Simulate unreachable name servers: each lookup takes a minute.
import socket, time
resolve = socket.getaddrinfo
def ask(host, *arguments, **options):
    return time.sleep(60) if "invalid" in str(host) else resolve(host, *arguments, **options)
socket.getaddrinfo = ask
from fjm2d.cli import main
main()
"""


def test_ctrl_c_stops_the_gateway_at_once_even_if_the_resolver_hangs(port: int, tmp_path: Path) -> None:
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
    """Write a configuration file of a gateway that sends no datagram off this host, and return its path."""
    file = folder / "fjm2d.toml"
    file.write_text(
        f'key_file = "{folder / "key"}"\n[wan]\nlisten = ["127.0.0.1:{port}"]\n'
        f'[lan]\ninterface = "127.0.0.1"\nttl = 0\nbeacon = "239.192.57.91:{port + 1}"\n'
        f'[status]\nlisten = ""\n[[group]]\naddress = "239.192.57.90:{port + 1}"\n'
    )
    return file


@pytest.mark.parametrize("taken", ["status", "wan", "interface"])
def test_a_failure_to_start_is_reported_in_one_line(taken: str, port: int, tmp_path: Path) -> None:
    file = on_this_host(tmp_path, port)
    OWN.save(tmp_path / "key")
    if taken == "interface":
        file.write_text(file.read_text().replace('"127.0.0.1"', '"none7"'))
    if taken == "status":
        file.write_text(file.read_text().replace('listen = ""', f'listen = "127.0.0.1:{port}"'))
    kind = socket.SOCK_STREAM if taken == "status" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", port + 1 if taken == "interface" else port))
        if taken == "status":
            other.listen()
        command = (sys.executable, "-m", "fjm2d", "run", "--config", str(file))
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("Error: ")
    assert {
        "status": f"status.listen: cannot listen at TCP 127.0.0.1:{port}: Address already in use",
        "wan": "wan.listen: cannot listen at UDP",
        "interface": "interface='none7'",
    }[taken] in line


def test_the_status_command_shows_peers_rates_and_groups(port: int, tmp_path: Path) -> None:
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


def test_each_question_to_the_lan_is_a_different_datagram(port: int, tmp_path: Path) -> None:
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


def test_a_gateway_closes_completely_and_can_open_again(port: int, tmp_path: Path) -> None:
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
