"""Tests of access to the node-list service: strangers, users of its host, proxies, monitors, and limits on bodies."""

import json
import socket
from collections.abc import Callable, Iterator

import httpx
import pytest
from running import Admin, Gateway, until


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
    # Without a token, clients on this host may read everything but change nothing.
    assert httpx.get(f"{admin.url}/api/v1/nodes").status_code == 200
    assert httpx.post(f"{admin.url}/api/v1/nodes", json=gateway.profile).status_code == 403
    assert httpx.delete(f"{admin.url}/api/v1/nodes/{gateway.id}").status_code == 403


def answer_to(admin: Admin, text: str) -> bytes:
    with socket.create_connection(("127.0.0.1", admin.port), timeout=10) as connection:
        connection.sendall(text.encode())
        return connection.recv(65_536)


@pytest.mark.parametrize(("settings", "status"), [({}, 200), ({"trusted_proxies": "::1"}, 401)])
def test_people_on_this_host_may_see_the_page_unless_there_is_a_proxy(
    start: Callable[..., Admin], settings: dict[str, str], status: int
) -> None:
    admin = start(host="127.0.0.5", **settings)
    assert httpx.get(f"{admin.url}/api/v1/nodes").status_code == status
    told = [line for line in admin.lines if "page" in line]
    assert ("asks for a token" in told[1]) == (status == 401)


def test_proxies_match_in_every_notation_of_their_address(start: Callable[..., Admin]) -> None:
    admin = start(host="::1", trusted_proxies="0:0:0::1,2001:DB8::5", log_level="debug", log_format="json")
    forwarded = {"X-Forwarded-For": "::ffff:203.0.113.9, 2001:db8:0::5"}
    httpx.get(f"{admin.url}/healthz", headers=forwarded)
    until(lambda: any('"203.0.113.9"' in line for line in admin.lines), 5, "logged")


def test_head_requests_are_answered_for_monitors(admin: Admin) -> None:
    for path in ("/", "/healthz"):
        answer = httpx.head(f"{admin.url}{path}")
        assert (answer.status_code, answer.content) == (200, b"")
    assert httpx.head(f"{admin.url}/api/v1/events").status_code == 405
    # An answer never redirects to the host that the request names.
    assert httpx.get(f"{admin.url}/healthz/", headers={"Host": "evil.example"}).status_code == 404


def test_x_forwarded_for_counts_only_from_a_trusted_proxy(start: Callable[..., Admin]) -> None:
    admin = start(trusted_proxies="127.0.0.1", page="token", log_level="debug", log_format="json")
    httpx.get(f"{admin.url}/healthz", headers={"X-Forwarded-For": "198.51.100.1, 203.0.113.9"})
    httpx.get(f"{admin.url}/healthz", headers={"X-Forwarded-For": "<script>"})
    addresses = lambda: [json.loads(line)["address"] for line in admin.lines if '"request"' in line]  # noqa: E731
    until(lambda: addresses() == ["203.0.113.9", "127.0.0.1"], 5, "logged")


def test_metrics_are_served(admin: Admin, gateway: Gateway) -> None:
    told = gateway.http.get("/metrics").text.splitlines()
    assert 'fjm2admin_nodes{state="live"} 1' in told
    assert "fjm2admin_tokens 1" in told
    assert any(line.startswith('fjm2admin_requests_total{status="200"} ') for line in told)
    assert httpx.get(f"{admin.url}/healthz").json() == {"status": "ok", "reason": None}
