"""Tests of the UDP datagrams that advertise the version of the node list. Only registered gateways get them."""

import asyncio
import hmac
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import Admin, Gateway, until

from fjm2admin import advert
from fjm2admin.config import AdminConfig
from fjm2admin.registry.nodes import Profile
from fjm2admin.registry.service import Caller, Service
from fjm2admin.registry.store import Store
from fjm2admin.registry.tokens import Scope, digest_of, make


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    made.settimeout(5)
    with made:
        yield made


def test_the_version_is_advertised_and_queries_are_answered(
    start: Callable[..., Admin], port: int, udp: socket.socket
) -> None:
    admin = start(advert_port=port, advert_every_s=300)
    token = admin.token("paris")
    own = f"127.0.0.1:{udp.getsockname()[1]}"
    with Gateway(admin.url, token, endpoints=["203.0.113.9:9", own, "127.0.0.2:9"]) as gateway:
        assert gateway.register().json()["advert"] == {"port": port}
        key = advert_key(token)
        gateway.until_listed(lambda nodes: "paris" in nodes)
        datagram, sender = udp.recvfrom(2048)
        version = gateway.http.get("/api/v1/nodes").json()["version"]
        assert sender == ("127.0.0.1", port)
        assert advert.unpack(datagram, key, advert.ADVERT) == version
        # Datagrams are not valid under the key of another token.
        assert advert.unpack(datagram, advert_key(token + "x"), advert.ADVERT) is None
        assert advert.unpack(datagram, key, advert.QUERY) is None

        query = advert.pack(advert.QUERY, 0, key)
        udp.sendto(query, ("127.0.0.1", port))
        answer = udp.recv(2048)
        assert advert.unpack(answer, key, advert.ADVERT) == version
        assert len(answer) <= len(query)


def advert_key(token: str) -> bytes:
    return hmac.digest(digest_of(token), b"fjm2 advert", "sha256")


def test_strangers_and_forgeries_get_no_answer(start: Callable[..., Admin], port: int, udp: socket.socket) -> None:
    admin = start(advert_port=port, advert_every_s=300)
    token = admin.token("paris")
    key = advert_key(token)
    query = advert.pack(advert.QUERY, 0, key)
    with Gateway(admin.url, token, endpoints=[f"127.0.0.1:{udp.getsockname()[1]}"]) as gateway:
        gateway.register()
        udp.recv(2048)
        forged = [
            b"",
            query[:-1],
            query + b"\0",
            advert.pack(advert.QUERY, 0, bytes(32)),
            advert.pack(advert.ADVERT, 0, key),
        ]
        forged += [query[:at] + bytes([query[at] ^ 1]) + query[at + 1 :] for at in range(len(query))]
        for datagram in forged:
            udp.sendto(datagram, ("127.0.0.1", port))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(query, ("127.0.0.1", port))
            dropped = f"fjm2admin_adverts_dropped_total {len(forged) + 1}"
            until(lambda: dropped in gateway.http.get("/metrics").text, 5, "all dropped")
            stranger.settimeout(0.2)
            with pytest.raises(TimeoutError):
                stranger.recv(2048)
        udp.settimeout(0.2)
        with pytest.raises(TimeoutError):
            udp.recv(2048)


def test_a_node_with_ever_new_addresses_causes_no_load(data: Path, udp: socket.socket) -> None:
    """The service collects nodes' addresses once a tick, not once a request. Only the last address of a node counts."""
    port = udp.getsockname()[1]

    async def scenario() -> None:
        store = Store(data)
        _, token = make("paris", Scope.GATEWAY, None, 0.0)
        store.add_token(token)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.bind(("127.0.0.1", 0))
            service = Service(AdminConfig(data=str(data)), store, sender)
            known: list[list[advert.Target]] = []
            assert service.advertiser is not None
            service.advertiser.know = lambda targets: known.append(list(targets))  # type: ignore[method-assign]
            await service.start()
            made = Profile("0000000a", "a", "key", ("127.0.0.1:9", f"127.0.0.9:{port}"), (), None, "1")
            await service.register(Caller(token, "127.0.0.1"), made)
            await asyncio.sleep(0.3)
            known.clear()
            for number in range(1, 10):
                await service.heartbeat(Caller(token, f"127.0.0.{number}"), made.id, None, None)
            assert known == []
            await asyncio.sleep(1.5)
            assert known == [[advert.Target(("127.0.0.9", port), token.advert_key)]]
            await service.close()

    asyncio.run(scenario())
