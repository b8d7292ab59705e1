"""Tests of the HTTP API that gateways use, against a running service."""

import concurrent.futures
import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from running import Admin, Gateway, link, run, sample, until

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


def test_endpoints_are_stored_in_canonical_form(gateway: Gateway) -> None:
    gateway.profile["endpoints"] = ["GW.Example.ORG:05741", "[2001:DB8:0::7]:5741", "[FE80::1%eth0]:1"]
    assert gateway.register().status_code == 200
    shown = ["gw.example.org:5741", "[2001:db8::7]:5741", "[fe80::1%eth0]:1"]
    gateway.until_listed(lambda nodes: nodes["paris"]["endpoints"] == shown)


@pytest.mark.parametrize(("wrong", "where"), REFUSED, ids=lambda value: str(value)[:40])
def test_invalid_fields_are_refused_by_name(standing: Gateway, wrong: dict[str, object], where: str) -> None:
    # The JSON is encoded by hand, since a client library would refuse some of these texts.
    body = json.dumps(standing.profile | wrong)
    answer = standing.http.post("/api/v1/nodes", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["code"] in ("invalid", "unreadable")
    assert where in answer.json()["message"] or answer.status_code == 400


def test_a_new_address_does_not_change_the_list(admin: Admin, gateway: Gateway) -> None:
    """A gateway behind a pool of addresses may use a different address for each connection."""
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


def test_a_heartbeat_for_an_unknown_node_is_refused(gateway: Gateway) -> None:
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


def test_waiting_ends_with_a_change_or_the_timeout(admin: Admin, gateway: Gateway) -> None:
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


def test_without_an_etag_there_is_no_wait(gateway: Gateway) -> None:
    began_at = time.monotonic()
    assert gateway.http.get("/api/v1/nodes?wait=30").status_code == 200
    assert time.monotonic() - began_at < 5


def test_waiting_requests_are_limited_and_leaving_makes_room(start: Callable[..., Admin]) -> None:
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


def test_samples_become_history(gateway: Gateway) -> None:
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


def test_pages_get_the_state_of_a_link_and_the_reason_of_its_drops(gateway: Gateway) -> None:
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


def test_events_contain_changes(admin: Admin, gateway: Gateway) -> None:
    viewer = {"Authorization": f"Bearer {admin.token('v', '--scope', 'view')}"}
    with httpx.stream("GET", f"{admin.url}/api/v1/events", headers=viewer, timeout=20) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: snapshot"
        assert [node["name"] for node in json.loads(next(lines)[6:])["nodes"]] == ["paris"]
        gateway.http.delete(f"/api/v1/nodes/{gateway.id}")
        found = (json.loads(line[6:]) for line in lines if line.startswith("data: "))
        assert next(event for event in found if event["removed"])["removed"] == [gateway.id]
