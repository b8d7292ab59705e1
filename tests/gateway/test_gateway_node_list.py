"""Tests of the node list on the gateway's side: lists, tokens, certificates and advertisements."""

import asyncio
import hashlib
import hmac
import json
import signal
import ssl
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2admin import advert
from fjm2admin.registry import tokens
from fjm2d.admin.directory import Directory
from fjm2d.admin.node_list import FILE_NAME, NodeListFile, member_of
from fjm2d.config import AdminConfig, GatewayConfig
from fjm2d.keys import KeyPair
from fjm2d.roster import Member
from fjm2d.values import Endpoint

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
    """An HTTP server that sends the configured answers, valid or not."""

    def __init__(self, answers: dict[str, tuple[int, Any]], tls: ssl.SSLContext | None = None) -> None:
        self.answers = answers
        """Status and content of the answer, by HTTP method."""
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
    """Run a directory until a condition holds. Return the directory, and the last node list that it delivered."""
    lists: list[list[Member]] = []
    directory = Directory(config, OWN.public, lambda members: lists.append(list(members)), lambda: sample or {})
    directory.open()
    try:
        async with asyncio.timeout(10):
            while not until(directory, lists):  # noqa: ASYNC110, there is no event to wait for
                await asyncio.sleep(0.01)
    finally:
        await directory.close()
    return directory, lists[-1] if lists else None


REGISTERED = {"id": OWN.public.id_text, "list_version": 5, "heartbeat_s": 10, "advert": {"port": 0}}


def test_a_list_is_used_saved_and_loaded_again(tmp_path: Path) -> None:
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
        # The directory ignores the file, which was saved from another service.
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
def test_a_service_that_answers_nonsense_counts_as_unreachable(
    tmp_path: Path, answers: dict[str, tuple[int, Any]]
) -> None:
    async def scenario() -> None:
        async with Web(answers) as url:
            directory, members = await followed(settings(tmp_path, url), lambda d, _: d.problem)
        assert not directory.is_reached
        assert members is None
        assert not (tmp_path / FILE_NAME).exists()

    asyncio.run(scenario())


def test_the_reason_for_refusing_a_token_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        answers = {"POST": (409, {"code": "taken", "message": "the name is somebody else's"}), "GET": (401, b"")}
        async with Web(answers) as url:
            directory, _ = await followed(settings(tmp_path, url), lambda d, _: d.problem)
        assert directory.problem == "409: the name is somebody else's"

    asyncio.run(scenario())


def test_a_corrected_token_is_used_soon(tmp_path: Path) -> None:
    """The directory reads the token's file again after the service has refused the old token."""

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
                while len(posts()) < 4:  # noqa: ASYNC110, there is no event to wait for
                    await asyncio.sleep(0.01)
                # Retries come after about 0.5, 1 and 2 s.
                assert 2.5 < posts()[-1] - began_at < 6
                assert directory.problem == "401: no"
                file.write_text(TOKEN[0])
                web.answers["POST"] = (200, REGISTERED)
                while not directory.is_reached:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await directory.close()
        assert "fjm2_of_old" in web.asked[0]
        assert TOKEN[0] in next(head for head in reversed(web.asked) if head[0] == "P")
        # Advertisements are verified with the key of the new token.
        directory.receive_advert(advert.pack(advert.ADVERT, 8, TOKEN[1].advert_key))
        assert directory._is_newer.is_set()

    asyncio.run(scenario())


def test_a_token_file_that_vanishes_while_the_list_changes_does_no_harm(tmp_path: Path) -> None:
    """Heartbeats continue with the token read before, and their answers still announce a newer list."""

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
                while directory.version != 5:  # noqa: ASYNC110, there is no event to wait for
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

    # A blocked event loop cannot run a timeout, so a signal ends the test.
    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(25)
    try:
        asyncio.run(scenario())
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_private_certificate_authority_can_be_replaced_while_running(
    tmp_path: Path, require_tool: Callable[[str], str]
) -> None:
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


def test_only_authenticated_advertisements_count() -> None:
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
def test_any_entry_gives_a_gateway_or_none(key: str, value: Any) -> None:
    member = member_of({**ENTRY, key: value})
    assert member is None or member.public_key == OTHER.public
    assert member_of(value) is None


def test_a_list_that_the_disk_did_not_take_is_written_when_there_is_room(tmp_path: Path) -> None:
    """Otherwise a gateway that starts while the service is away knows nobody until the list changes again."""
    directory = tmp_path / "state"
    directory.touch()  # no folder can be made there

    async def main() -> None:
        file = NodeListFile(directory, "http://127.0.0.1")
        await file.save({"version": 7, "nodes": []})
        assert file.read() is None
        directory.unlink()
        await file.save_again()
        found = file.read()
        assert found is not None
        assert found.version == 7
        (directory / "nodes.json").unlink()
        await file.save_again()  # once is enough
        assert file.read() is None

    asyncio.run(main())
