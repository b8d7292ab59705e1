"""Tests of starting and ending the service: kills, restarts, shutdown, and errors that prevent a start."""

import asyncio
import concurrent.futures
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from running import Admin, Gateway, run, until

from fjm2admin.config import AdminConfig
from fjm2admin.registry.nodes import Profile
from fjm2admin.registry.service import Service
from fjm2admin.registry.store import Store, StoredNode


def test_a_killed_service_comes_back_with_everything_it_confirmed(admin: Admin, gateway: Gateway) -> None:
    before = gateway.http.get("/api/v1/nodes").json()["version"]
    with Gateway(admin.url, admin.token("rome"), "rome") as other:
        assert other.register().status_code == 200
        admin.kill()
        admin.again()
        listed = other.nodes()
        assert set(listed) == {"paris", "rome"}
        assert {node["state"] for node in listed.values()} == {"live"}
        # Neither gateway has to register again.
        assert other.heartbeat().status_code == 200
        assert gateway.heartbeat().status_code == 200
        other.http.delete(f"/api/v1/nodes/{other.id}")
        other.until_listed(lambda nodes: set(nodes) == {"paris"})
        assert other.http.get("/api/v1/nodes").json()["version"] > before


def test_after_a_kill_no_old_version_stands_for_a_newer_list(data: Path) -> None:
    """The service was killed after it stored a node, but before it stored the version of the list with this node."""

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


def test_time_while_the_service_is_away_does_not_count_as_silence(start: Callable[..., Admin]) -> None:
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
def test_it_ends_at_once_even_if_requests_wait(admin: Admin, gateway: Gateway, number: int) -> None:
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
