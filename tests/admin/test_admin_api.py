"""The API as gateways use it, over HTTP and UDP, from a real service."""

import asyncio
import concurrent.futures
import contextlib
import hmac
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from running import Admin, Gateway, command, environment, link, run, sample, until

from fjm2admin import advert
from fjm2admin.config import AdminConfig
from fjm2admin.registry.nodes import Profile
from fjm2admin.registry.service import Caller, Service
from fjm2admin.registry.store import Store, StoredNode
from fjm2admin.registry.tokens import Scope, digest_of, make
from fjm2admin.web.models import node_id_of

REFUSED = [
    ({"name": ""}, "body.name"),
    ({"name": "x" * 65}, "body.name"),
    ({"name": "a\u202eb"}, "body.name"),
    ({"name": "\ud800"}, "body"),
    ({"public_key": "A" * 44}, "body.public_key"),
    ({"public_key": "A" * 42 + "B="}, "body.public_key"),
    ({"endpoints": []}, "body.endpoints"),
    ({"endpoints": ["203.0.113.7:1"] * 9}, "body.endpoints"),
    ({"endpoints": ["203.0.113.7:0"]}, "body.endpoints.0"),
    ({"endpoints": ["203.0.113.999:1"]}, "body.endpoints.0"),
    ({"endpoints": ["2001:db8::1:5741"]}, "body.endpoints.0"),
    ({"endpoints": ["a b:1"]}, "body.endpoints.0"),
    ({"endpoints": ["[fe80::1%\u2028\x1b[2J]:1"]}, "body.endpoints.0"),
    ({"endpoints": ["[fe80::1%<b>]:1"]}, "body.endpoints.0"),
    ({"endpoints": ["[fe80::1%]:1"]}, "body.endpoints.0"),
    ({"groups": ["[ff02::1%\n]:1"]}, "body.groups.0"),
    ({"groups": ["203.0.113.7:5740"]}, "body.groups.0"),
    ({"groups": ["239.192.57.40:5740"] * 65}, "body.groups"),
    ({"version": None}, "body.version"),
    ({"surprise": 1}, "body.surprise"),
]


def test_a_gateway_registers_and_is_listed(gateway: Gateway) -> None:
    answer = gateway.register().json()
    assert answer["id"] == node_id_of(gateway.profile["public_key"]) == gateway.id
    assert (answer["heartbeat_s"], answer["advert"]) == (10, {"port": 0})
    gateway.until_listed(lambda nodes: "paris" in nodes)
    node = gateway.nodes()["paris"]
    assert {name: node[name] for name in gateway.profile} == gateway.profile
    assert node["state"] == "live"
    assert abs(node["last_seen"] - time.time()) < 10


def test_endpoints_are_kept_in_their_one_form(gateway: Gateway) -> None:
    gateway.profile["endpoints"] = ["GW.Example.ORG:05741", "[2001:DB8:0::7]:5741", "[FE80::1%eth0]:1"]
    assert gateway.register().status_code == 200
    shown = ["gw.example.org:5741", "[2001:db8::7]:5741", "[fe80::1%eth0]:1"]
    gateway.until_listed(lambda nodes: nodes["paris"]["endpoints"] == shown)


@pytest.mark.parametrize(("wrong", "where"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_makes_no_sense_is_refused_and_named(standing: Gateway, wrong: dict[str, object], where: str) -> None:
    # By hand: some of it is no text that a client would send.
    body = json.dumps(standing.profile | wrong)
    answer = standing.http.post("/api/v1/nodes", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["code"] in ("invalid", "unreadable")
    assert where in answer.json()["message"] or answer.status_code == 400


def test_another_address_is_no_other_list(admin: Admin, gateway: Gateway) -> None:
    """As from a pool of addresses, where each connection may come from another one."""
    gateway.until_listed(lambda nodes: "paris" in nodes)
    before = gateway.http.get("/api/v1/nodes").json()["version"]
    elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(base_url=admin.url, headers=gateway.http.headers, transport=elsewhere) as other:
        assert other.post(f"/api/v1/nodes/{gateway.id}/heartbeat", json={}).is_success
        assert other.post("/api/v1/nodes", json=gateway.profile).is_success
        time.sleep(0.5)
        assert other.get("/api/v1/nodes").json()["version"] == before
    assert gateway.heartbeat(endpoints=["127.0.0.1:9"]).is_success
    gateway.until_listed(lambda nodes: nodes["paris"]["endpoints"] == ["127.0.0.1:9"])
    assert gateway.http.get("/api/v1/nodes").json()["version"] > before


def test_a_heartbeat_of_nobody_says_so(gateway: Gateway) -> None:
    gateway.id = "00000000"
    assert gateway.heartbeat().json()["code"] == "no_such_node"
    assert gateway.heartbeat().status_code == 404


def test_a_heartbeat_moves_a_node(gateway: Gateway) -> None:
    assert gateway.heartbeat(endpoints=["127.0.0.1:9999"]).status_code == 200
    gateway.until_listed(lambda nodes: nodes["paris"]["endpoints"] == ["127.0.0.1:9999"])


def test_the_list_is_sent_once(gateway: Gateway) -> None:
    gateway.until_listed(lambda nodes: "paris" in nodes)
    first = gateway.http.get("/api/v1/nodes")
    again = gateway.http.get("/api/v1/nodes", headers={"If-None-Match": first.headers["etag"]})
    assert first.headers["etag"] == f'"{first.json()["version"]}"'
    assert (again.status_code, again.content) == (304, b"")
    gateway.heartbeat()
    time.sleep(0.3)
    assert gateway.http.get("/api/v1/nodes", headers={"If-None-Match": first.headers["etag"]}).status_code == 304


def test_waiting_ends_with_the_change_or_the_time(admin: Admin, gateway: Gateway) -> None:
    gateway.until_listed(lambda nodes: "paris" in nodes)
    time.sleep(0.3)
    etag = gateway.http.get("/api/v1/nodes").headers["etag"]
    began_at = time.monotonic()
    answer = gateway.http.get("/api/v1/nodes?wait=0.5", headers={"If-None-Match": etag})
    assert answer.status_code == 304
    assert 0.4 < time.monotonic() - began_at < 2
    with concurrent.futures.ThreadPoolExecutor(1) as pool, Gateway(admin.url, admin.token("rome"), "rome") as other:
        waiting = pool.submit(gateway.http.get, "/api/v1/nodes?wait=30", headers={"If-None-Match": etag})
        time.sleep(0.3)
        assert not waiting.done()
        began_at = time.monotonic()
        other.register()
        answer = waiting.result(10)
        assert time.monotonic() - began_at < 2
    assert {node["name"] for node in answer.json()["nodes"]} == {"paris", "rome"}


def test_a_wait_without_a_list_is_none(gateway: Gateway) -> None:
    began_at = time.monotonic()
    assert gateway.http.get("/api/v1/nodes?wait=30").status_code == 200
    assert time.monotonic() - began_at < 5


def test_no_more_wait_than_may_and_who_leaves_makes_room(start: Callable[..., Admin]) -> None:
    admin = start(waits_per_token=2)
    token = admin.token("paris")
    with Gateway(admin.url, token) as gateway:
        gateway.register()
        gateway.until_listed(lambda nodes: "paris" in nodes)
        time.sleep(0.3)
        etag = gateway.http.get("/api/v1/nodes").headers["etag"]
        head = f"GET /api/v1/nodes?wait=30 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"

        def ask() -> int:
            return gateway.http.get("/api/v1/nodes?wait=0.1", headers={"If-None-Match": etag}).status_code

        with ExitStack() as waiting:
            for _ in range(2):
                one = waiting.enter_context(socket.create_connection(("127.0.0.1", admin.port)))
                one.sendall(f"{head}If-None-Match: {etag}\r\n\r\n".encode())
            until(lambda: "fjm2admin_waiting 2" in gateway.http.get("/metrics").text, 5, "both wait")
            assert ask() == 429
        until(lambda: ask() == 304, 5, "seats free again")


def test_a_node_leaves(gateway: Gateway) -> None:
    gateway.until_listed(lambda nodes: "paris" in nodes)
    assert gateway.http.delete(f"/api/v1/nodes/{gateway.id}").status_code == 204
    gateway.until_listed(lambda nodes: not nodes)
    assert gateway.heartbeat().status_code == 404
    assert gateway.http.delete(f"/api/v1/nodes/{gateway.id}").status_code == 404


def test_a_command_removes_a_node_from_a_running_service(admin: Admin, gateway: Gateway) -> None:
    gateway.until_listed(lambda nodes: "paris" in nodes)
    assert "paris" in run(admin.data, "nodes").stdout
    assert run(admin.data, "nodes", "remove", "paris").returncode == 0
    gateway.until_listed(lambda nodes: not nodes)


def test_a_silent_node_turns_stale_then_gone_then_is_forgotten(start: Callable[..., Admin]) -> None:
    admin = start(heartbeat_s=0.3, stale_s=1, gone_s=2, forget_s=3)
    began_at = time.monotonic()
    with Gateway(admin.url, admin.token("paris")) as gateway:
        gateway.register()
        began_at = time.monotonic()
        gateway.until_listed(lambda nodes: nodes["paris"]["state"] == "stale")
        assert 0.9 < time.monotonic() - began_at < 1.9
        gateway.until_listed(lambda nodes: not nodes)
        assert 1.9 < time.monotonic() - began_at < 2.9
        assert gateway.heartbeat().status_code == 200
        gateway.until_listed(lambda nodes: nodes["paris"]["state"] == "live")
        time.sleep(3.9)
        assert gateway.heartbeat().status_code == 404


def test_what_was_measured_becomes_history(gateway: Gateway) -> None:
    uploaded = gateway.upload(
        sample(100, link("0000000a", 0, 0)),
        sample(110, link("0000000a", 1_000_000, 250_000, rtt_ms=30, loss=0.25, drops={"queue_full": 5})),
        sample(120, link("0000000a", 2_000_000, 500_000, drops={"queue_full": 10, "expired": 5})),
    )
    assert uploaded.status_code == 200, uploaded.text
    until(lambda: len(gateway.http.get(f"/api/v1/nodes/{gateway.id}/history").json()["points"]) >= 2, 5, "written")
    history = gateway.http.get(f"/api/v1/nodes/{gateway.id}/history").json()
    assert (history["id"], history["step_s"]) == (gateway.id, 10)
    middle, last = history["points"][-2:]
    assert (middle["in_bps"], middle["out_bps"], middle["drops_per_s"]) == pytest.approx((8e5, 2e5, 0.5))
    assert (middle["rtt_ms"], middle["loss"]) == (30, 0.25)
    assert (last["in_bps"], last["drops_per_s"]) == pytest.approx((8e5, 1.0))
    assert gateway.http.get("/api/v1/nodes/00000000/history").status_code == 404


def test_a_gateway_that_restarts_counts_from_zero(gateway: Gateway) -> None:
    gateway.heartbeat(metrics=sample(1000, link("0000000a", 10**12, 10**12)))
    gateway.heartbeat(metrics=sample(1, link("0000000a", 1000, 1000)))
    gateway.heartbeat(metrics=sample(2, link("0000000a", 2000, 3000)))
    event = first_event(gateway)
    (shown,) = event["nodes"]
    assert (shown["rates"]["in_bps"], shown["rates"]["out_bps"]) == (8000, 16_000)


def test_pages_are_told_how_a_link_is_and_why_it_drops(gateway: Gateway) -> None:
    before = link("0000000a", 1000, 1000, drops={"queue_full": 1, "forged": 50})
    after = link(
        "0000000a", 2000, 2000, drops={"queue_full": 9, "forged": 52}, is_up=True, rate_bps=23e6, queue_bytes=7
    )
    idle = link("0000000b", 0, 0, is_up=False)
    gateway.heartbeat(metrics=sample(1, before))
    assert gateway.heartbeat(metrics=sample(3, after, idle) | {"is_forwarder": False}).status_code == 200
    (shown,) = first_event(gateway)["nodes"]
    assert shown["is_forwarder"] is False
    links = {one["peer"]: one for one in shown["links"]}
    busy = links["0000000a"]
    assert (busy["is_up"], busy["rate_bps"], busy["drops_per_s"], busy["reason"]) == (True, 23e6, 5.0, "queue_full")
    down = links["0000000b"]
    assert (down["is_up"], down["rate_bps"], down["drops_per_s"], down["reason"]) == (False, None, 0.0, None)


def first_event(gateway: Gateway) -> dict[str, list[dict[str, Any]]]:
    with gateway.http.stream("GET", "/api/v1/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                found: dict[str, list[dict[str, Any]]] = json.loads(line[6:])
                return found
    raise AssertionError("no event")


def test_events_tell_what_changes(admin: Admin, gateway: Gateway) -> None:
    viewer = {"Authorization": f"Bearer {admin.token('v', '--scope', 'view')}"}
    with httpx.stream("GET", f"{admin.url}/api/v1/events", headers=viewer, timeout=20) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: snapshot"
        assert [node["name"] for node in json.loads(next(lines)[6:])["nodes"]] == ["paris"]
        gateway.http.delete(f"/api/v1/nodes/{gateway.id}")
        found = (json.loads(line[6:]) for line in lines if line.startswith("data: "))
        assert next(event for event in found if event["removed"])["removed"] == [gateway.id]


def test_a_killed_service_comes_back_with_everything_it_answered(admin: Admin, gateway: Gateway) -> None:
    before = gateway.http.get("/api/v1/nodes").json()["version"]
    with Gateway(admin.url, admin.token("rome"), "rome") as other:
        assert other.register().status_code == 200
        admin.kill()
        admin.again()
        listed = other.nodes()
        assert set(listed) == {"paris", "rome"}
        assert {node["state"] for node in listed.values()} == {"live"}
        # Neither has to register again.
        assert other.heartbeat().status_code == 200
        assert gateway.heartbeat().status_code == 200
        other.http.delete(f"/api/v1/nodes/{other.id}")
        other.until_listed(lambda nodes: set(nodes) == {"paris"})
        assert other.http.get("/api/v1/nodes").json()["version"] > before


def test_after_a_kill_no_old_version_stands_for_a_newer_list(data: Path) -> None:
    """A node was stored, and the version of the list that had it was not yet."""

    async def etag_after_start() -> str:
        service = Service(AdminConfig(data=str(data)), Store(data), None)
        await service.start()
        etag = service.feed.snapshot.etag
        await service.close()
        return etag

    before = asyncio.run(etag_after_start())
    with contextlib.closing(Store(data)) as store:
        store.save_node(StoredNode(Profile("0000000a", "a", "key", (), (), None, "1"), "token", "::1", 1.0, 2.0))
    assert asyncio.run(etag_after_start()) != before


def test_time_while_the_service_is_away_is_no_silence(start: Callable[..., Admin]) -> None:
    admin = start(heartbeat_s=0.2, stale_s=2, gone_s=5, forget_s=50)
    with Gateway(admin.url, admin.token("paris")) as gateway, Gateway(admin.url, admin.token("r"), "rome") as silent:
        silent.register()
        gateway.register()
        gateway.until_listed(lambda nodes: nodes["rome"]["state"] == "stale")
        gateway.heartbeat()
        time.sleep(0.2)
        assert admin.stop()[0] == 0
        time.sleep(2.5)
        admin.again()
        assert {name: node["state"] for name, node in gateway.nodes().items()} == {"paris": "live", "rome": "stale"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_whoever_waits(admin: Admin, gateway: Gateway, number: int) -> None:
    gateway.until_listed(lambda nodes: "paris" in nodes)
    time.sleep(0.3)
    etag = gateway.http.get("/api/v1/nodes").headers["etag"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(gateway.http.get, "/api/v1/nodes?wait=30", headers={"If-None-Match": etag})
        watching = pool.submit(httpx.get, f"{admin.url}/api/v1/events", timeout=30)
        until(lambda: "fjm2admin_watching 1" in httpx.get(f"{admin.url}/metrics").text, 5, "watching")
        code, took_s = admin.stop(number)
        assert (code, took_s < 2) == (0, True)
        assert waiting.result(5).status_code == 304
        assert "event: snapshot" in watching.result(5).text
    assert admin.lines[-1] == "Stopped."
    assert not [line for line in admin.lines if "Traceback" in line or '"error"' in line]


def test_two_services_do_not_share_a_file(admin: Admin) -> None:
    second = run(admin.data, "run", port=0, advert_port=0)
    assert second.returncode == 1
    assert "another fjm2admin runs with this file" in second.stderr


def test_an_address_that_is_taken_is_named(admin: Admin, tmp_path: Path) -> None:
    second = run(tmp_path / "other.sqlite", "run", port=admin.port, advert_port=0)
    assert second.returncode == 1
    assert f"cannot listen on TCP 127.0.0.1:{admin.port}: Address already in use" in second.stderr


def test_bodies_are_bounded(start: Callable[..., Admin]) -> None:
    admin = start(body_bytes=5000)
    token = admin.token("paris")
    with Gateway(admin.url, token) as gateway:
        gateway.register()
        told = gateway.heartbeat(endpoints=["a" * 10_000])
        assert (told.status_code, told.json()["code"]) == (413, "too_long")

        def pieces() -> Iterator[bytes]:
            yield from (b"x" * 1000 for _ in range(10))

        untold = httpx.post(f"{admin.url}/api/v1/nodes", content=pieces(), headers={"Authorization": f"Bearer {token}"})
        assert untold.status_code == 413


def test_a_stranger_gets_nothing(admin: Admin, gateway: Gateway) -> None:
    proxied = {"X-Forwarded-For": "203.0.113.9"}
    rebound = {"Host": f"evil.example:{admin.port}"}
    for method, path in (
        ("POST", "/api/v1/nodes"),
        ("POST", f"/api/v1/nodes/{gateway.id}/heartbeat"),
        ("DELETE", f"/api/v1/nodes/{gateway.id}"),
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/events"),
        ("GET", f"/api/v1/nodes/{gateway.id}/history"),
        ("GET", "/api/v1/anything"),
        ("GET", "/metrics"),
    ):
        for headers in (proxied, rebound, {"Authorization": "Bearer fjm2_"}, {"Authorization": "Basic YTpi"}):
            answer = httpx.request(method, f"{admin.url}{path}", headers=headers)
            assert answer.status_code == 401, (path, headers)
            assert gateway.profile["public_key"] not in answer.text
    old_proxy = f"GET /api/v1/nodes HTTP/1.0\r\nHost: 127.0.0.1:{admin.port}\r\nConnection: close\r\n\r\n"
    assert b" 401 " in answer_to(admin, old_proxy)
    # On this host one may look without a token, and no more.
    assert httpx.get(f"{admin.url}/api/v1/nodes").status_code == 200
    assert httpx.post(f"{admin.url}/api/v1/nodes", json=gateway.profile).status_code == 403
    assert httpx.delete(f"{admin.url}/api/v1/nodes/{gateway.id}").status_code == 403


def answer_to(admin: Admin, text: str) -> bytes:
    with socket.create_connection(("127.0.0.1", admin.port), timeout=10) as connection:
        connection.sendall(text.encode())
        return connection.recv(65_536)


@pytest.mark.parametrize(("settings", "status"), [({}, 200), ({"trusted_proxies": "::1"}, 401)])
def test_who_is_on_this_host_may_look_unless_there_is_a_proxy(
    start: Callable[..., Admin], settings: dict[str, str], status: int
) -> None:
    admin = start(host="127.0.0.5", **settings)
    assert httpx.get(f"{admin.url}/api/v1/nodes").status_code == status
    told = [line for line in admin.lines if "page" in line]
    assert ("asks for a token" in told[1]) == (status == 401)


def test_addresses_of_proxies_are_the_same_however_they_are_written(start: Callable[..., Admin]) -> None:
    admin = start(host="::1", trusted_proxies="0:0:0::1,2001:DB8::5", log_level="debug", log_format="json")
    forwarded = {"X-Forwarded-For": "::ffff:203.0.113.9, 2001:db8:0::5"}
    httpx.get(f"{admin.url}/healthz", headers=forwarded)
    until(lambda: any('"203.0.113.9"' in line for line in admin.lines), 5, "logged")


def test_monitors_may_ask_for_heads_alone(admin: Admin) -> None:
    for path in ("/", "/healthz"):
        answer = httpx.head(f"{admin.url}{path}")
        assert (answer.status_code, answer.content) == (200, b"")
    assert httpx.head(f"{admin.url}/api/v1/events").status_code == 405
    # Nobody is sent to whatever host a request names.
    assert httpx.get(f"{admin.url}/healthz/", headers={"Host": "evil.example"}).status_code == 404


def test_a_proxys_word_counts_only_if_it_is_trusted(start: Callable[..., Admin]) -> None:
    admin = start(trusted_proxies="127.0.0.1", page="token", log_level="debug", log_format="json")
    httpx.get(f"{admin.url}/healthz", headers={"X-Forwarded-For": "198.51.100.1, 203.0.113.9"})
    httpx.get(f"{admin.url}/healthz", headers={"X-Forwarded-For": "<script>"})
    addresses = lambda: [json.loads(line)["address"] for line in admin.lines if '"request"' in line]  # noqa: E731
    until(lambda: addresses() == ["203.0.113.9", "127.0.0.1"], 5, "logged")


def test_metrics_tell_what_is_there(admin: Admin, gateway: Gateway) -> None:
    told = gateway.http.get("/metrics").text.splitlines()
    assert 'fjm2admin_nodes{state="live"} 1' in told
    assert "fjm2admin_tokens 1" in told
    assert any(line.startswith('fjm2admin_requests_total{status="200"} ') for line in told)
    assert httpx.get(f"{admin.url}/healthz").json() == {"status": "ok", "reason": None}


# Advertisements


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    made.settimeout(5)
    with made:
        yield made


def test_the_version_is_advertised_and_asked_for(start: Callable[..., Admin], port: int, udp: socket.socket) -> None:
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
        # Nobody else can make one, nor a query.
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


def test_a_node_that_comes_from_ever_new_addresses_is_no_load(data: Path, udp: socket.socket) -> None:
    """The addresses of all nodes are gathered once in a while, not for every request; the last one counts."""
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


# Settings and commands


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("port = 99999", "port=99999: expected 0 to 65535"),
        ('port = "8750"', "port='8750': expected a whole number"),
        ("prot = 1", "prot: unknown, expected one of host, port, data"),
        ('page = "all"', "page=all: expected one of auto, open, token"),
        ('host = "localhost"', "host=localhost: expected an IP address"),
        ("stale_s = 5", "stale_s=5: expected more than heartbeat_s, which is 10"),
        ('certificate = "/nowhere"', "certificate=/nowhere: expected a file that can be read"),
        ("port = ", "not TOML"),
    ],
)
def test_a_wrong_setting_is_told_with_file_name_and_what_is_allowed(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "admin.toml"
    file.write_text(text)
    done = run(tmp_path / "x.sqlite", "run", "--check", "--config", str(file))
    assert done.returncode == 2
    assert told in done.stderr
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr


def test_all_that_is_wrong_is_told_at_once_with_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "admin.toml"
    file.write_text('page = "all"\nunknown = 1\n')
    done = run(tmp_path / "x.sqlite", "run", "--check", "--config", str(file), port="many", heartbeat_s=-1)
    for told in (
        f"{file}: page=all",
        f"{file}: unknown",
        "FJM2ADMIN_PORT=many",
        "FJM2ADMIN_HEARTBEAT_S: heartbeat_s=-1",
    ):
        assert told in done.stderr


def test_the_environment_wins_over_the_file_and_options_over_both(tmp_path: Path) -> None:
    file = tmp_path / "admin.toml"
    file.write_text("port = 1\nheartbeat_s = 7\n")
    assert run(tmp_path / "x.sqlite", "run", "--check", "--config", str(file), port=70_000).returncode == 2
    process = subprocess.run(
        [*command(tmp_path / "x.sqlite", "run", "--check", "--port", "80"), "--config", str(file)],
        env=environment(port=70_000) | {"PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stdout) == (0, "The settings are fine.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run"],
        ["token"],
        ["token", "create"],
        ["token", "list"],
        ["token", "revoke"],
        ["nodes"],
        ["nodes", "remove"],
    ],
)
def test_help_has_examples(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fjm2admin", *arguments, "--help"], capture_output=True, text=True, check=True
    )
    assert "Example: fjm2admin" in done.stdout


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    no_database = tmp_path / "no.sqlite"
    no_database.write_text("this is no database" * 100)
    for arguments, path in (
        (("nodes",), tmp_path / "none.sqlite"),
        (("run",), no_database),
        (("run",), tmp_path / "none" / "x.sqlite"),
    ):
        done = run(path, *arguments, port=0, advert_port=0)
        assert done.returncode == 1
        assert str(path.parent) in done.stderr
        assert "Traceback" not in done.stderr
