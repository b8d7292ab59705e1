"""Tests of tokens: they are shown once, limited to their scope, revocable, and never stored in clear text."""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from running import Admin, Gateway, make_token, new_key, run, until

from fjm2admin.config import AdminConfig
from fjm2admin.errors import Refusal
from fjm2admin.registry.service import Service
from fjm2admin.registry.store import Store
from fjm2admin.registry.tokens import Scope, TokenBook, make
from fjm2admin.web.limits import ConcurrencyLimit, RateLimit, address_key


def test_only_the_whole_token_is_found() -> None:
    text, token = make("paris", Scope.GATEWAY, None, 0.0)
    book = TokenBook([token])
    assert book.find(text) is token
    for wrong in ("", text[:-1], text + "A", text.upper(), text.replace("fjm2_", "fjm2-"), f"{text[:18]}{'A' * 43}"):
        assert book.find(wrong) is None, wrong


def test_neither_file_nor_commands_hold_the_token(data: Path) -> None:
    text = make_token(data, "paris", "--node", "paris")
    secret = text.rpartition("_")[2]
    for file in data.parent.iterdir():
        assert secret.encode() not in file.read_bytes(), file
        assert file.stat().st_mode & 0o077 == 0, f"{file} can be read by others"
    listed = run(data, "token", "list")
    assert "paris" in listed.stdout
    assert secret not in listed.stdout
    entries = json.loads(run(data, "token", "list", "--json").stdout)
    assert [(entry["name"], entry["scope"], entry["node"]) for entry in entries] == [("paris", "gateway", "paris")]
    assert hashlib.sha256(text.encode()).hexdigest() not in json.dumps(entries)


def test_a_name_is_taken_until_its_token_is_revoked(data: Path) -> None:
    make_token(data, "paris")
    again = run(data, "token", "create", "--name", "paris")
    assert again.returncode == 1
    assert "choose another name, or revoke that one" in again.stderr
    assert run(data, "token", "revoke", "paris").returncode == 0
    make_token(data, "paris")
    assert run(data, "token", "revoke", "rome").returncode == 1


def test_a_new_token_is_accepted_at_once_while_the_service_runs(admin: Admin) -> None:
    for number in range(3):
        with Gateway(admin.url, admin.token(f"token {number}"), f"node {number}") as made:
            assert made.register().status_code == 200


def test_a_revoked_token_is_soon_refused(admin: Admin) -> None:
    with Gateway(admin.url, admin.token("paris")) as gateway:
        assert gateway.register().status_code == 200
        assert run(admin.data, "token", "revoke", "paris").returncode == 0
        assert until(lambda: gateway.heartbeat().status_code == 401, 5, "revoked") < 2


def test_guessed_tokens_cause_no_load_and_delay_nobody(data: Path) -> None:
    """Hundreds of requests with guessed tokens read the database only a few times.

    Meanwhile a real token is accepted.
    """
    looks = 0

    def count(statement: str) -> None:
        nonlocal looks
        looks += statement == "PRAGMA data_version"

    async def scenario() -> None:
        store = Store(data)
        service = Service(AdminConfig(data=str(data)), store, None)
        await service.start()
        store._connection.set_trace_callback(count)
        began_at, stop = time.monotonic(), asyncio.Event()

        async def hammer() -> None:
            while not stop.is_set():
                assert await service.token_of(make("x", Scope.GATEWAY, None, 0.0)[0]) is None

        strangers = [asyncio.create_task(hammer()) for _ in range(200)]
        await asyncio.sleep(0.5)
        text, token = make("paris", Scope.GATEWAY, None, time.time())
        command = Store(data)
        command.add_token(token)
        asked_at = time.monotonic()
        assert await service.token_of(text) == token
        assert time.monotonic() - asked_at < 1.0
        command.revoke_token("paris", time.time())
        command.close()
        while await service.token_of(text) is not None:  # noqa: ASYNC110, there is no event to wait for
            await asyncio.sleep(0.01)
        assert time.monotonic() - asked_at < 2.0
        stop.set()
        await asyncio.gather(*strangers)
        took_s = time.monotonic() - began_at
        await service.close()
        # The service may read the database five times a second for strangers, and once a second for commands.
        assert 2 <= looks <= 3 + 6.5 * took_s

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", ["x", "fjm2_", "fjm2_000000000000_short"])
def test_malformed_tokens_are_not_looked_for(data: Path, wrong: str) -> None:
    async def scenario() -> None:
        service = Service(AdminConfig(data=str(data)), Store(data), None)
        await service.start()
        began_at = time.monotonic()
        for _ in range(20):
            assert await service.token_of(wrong) is None
        assert time.monotonic() - began_at < 0.2
        await service.close()

    asyncio.run(scenario())


def test_a_wait_ends_when_its_token_is_revoked_and_the_list_changes(admin: Admin) -> None:
    watcher = admin.token("watcher", "--scope", "view")
    with httpx.stream("GET", f"{admin.url}/api/v1/events", headers={"Authorization": f"Bearer {watcher}"}) as answer:
        chunks = answer.iter_raw()
        assert b"event: snapshot" in next(chunks)
        run(admin.data, "token", "revoke", "watcher")
        # Events before the end were already on their way.
        assert len(list(chunks)) <= 3


@pytest.mark.parametrize(
    ("scope", "may_register", "may_remove"), [("gateway", 200, 403), ("view", 403, 403), ("admin", 403, 204)]
)
def test_each_scope_permits_its_own_requests(
    admin: Admin, gateway: Gateway, scope: str, may_register: int, may_remove: int
) -> None:
    with Gateway(admin.url, admin.token("other", "--scope", scope), "rome") as other:
        assert other.register().status_code == may_register
        assert "paris" in other.nodes()
        other.id = gateway.id
        assert other.heartbeat().status_code == 403
        assert other.upload({"uptime_s": 1, "links": []}).status_code == 403
        assert other.http.delete(f"/api/v1/nodes/{gateway.id}").status_code == may_remove


def test_a_token_for_one_node_cannot_register_another(admin: Admin) -> None:
    with Gateway(admin.url, admin.token("rome", "--node", "rome"), "paris") as gateway:
        refused = gateway.register()
        assert (refused.status_code, refused.json()["code"]) == (403, "wrong_node")
        gateway.profile["name"] = "rome"
        assert gateway.register().status_code == 200


def test_a_name_that_has_a_token_of_its_own_is_not_free(admin: Admin, gateway: Gateway) -> None:
    own = admin.token("rome", "--node", "rome")
    with Gateway(admin.url, admin.token("any"), "rome") as squatter, Gateway(admin.url, own, "rome") as rome:
        refused = squatter.register()
        assert (refused.status_code, refused.json()["code"]) == (409, "taken")
        assert rome.register().status_code == 200
    # The node that holds a name keeps it, even after a token for just this name is created.
    admin.token("paris alone", "--node", "paris")
    assert gateway.register().status_code == 200


def test_neither_name_nor_key_can_be_taken_over(admin: Admin, gateway: Gateway) -> None:
    with Gateway(admin.url, admin.token("thief")) as thief:
        for stolen in ({"name": "paris"}, {"name": "rome", "public_key": gateway.profile["public_key"]}):
            thief.profile |= {"public_key": new_key()} | stolen
            refused = thief.register()
            assert (refused.status_code, refused.json()["code"]) == (409, "taken")
    assert gateway.nodes()["paris"]["public_key"] == gateway.profile["public_key"]


def test_the_node_of_a_revoked_token_goes_to_the_token_made_for_it(admin: Admin, gateway: Gateway) -> None:
    run(admin.data, "token", "revoke", "paris")
    with (
        Gateway(admin.url, admin.token("any")) as stranger,
        Gateway(admin.url, admin.token("new", "--node", "paris")) as heir,
    ):
        stranger.profile["public_key"] = heir.profile["public_key"] = gateway.profile["public_key"]
        assert stranger.register().status_code == 409
        assert heir.register().status_code == 200
        assert heir.id == gateway.id


def test_a_node_may_change_its_key(gateway: Gateway) -> None:
    old = gateway.id
    gateway.profile["public_key"] = new_key()
    assert gateway.register().status_code == 200
    assert gateway.id != old
    gateway.until_listed(lambda nodes: [node["id"] for node in nodes.values()] == [gateway.id])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--name", ""), "1 to 64 printable characters"),
        (("--name", "a\nb"), "printable"),
        (("--name", "x", "--scope", "root"), "'gateway', 'view', 'admin'"),
        (("--name", "x", "--scope", "view", "--node", "x"), "--node needs a token of scope gateway"),
    ],
)
def test_mistakes_are_reported_with_what_is_allowed(data: Path, arguments: tuple[str, ...], told: str) -> None:
    done = run(data, "token", "create", *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert not data.exists()


def test_rates_are_limited_by_address_and_by_token(start: Callable[..., Admin]) -> None:
    admin = start(token_per_s=1)
    with Gateway(admin.url, admin.token("paris")) as asker:
        answers = [asker.http.get("/api/v1/nodes") for _ in range(6)]
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert answers[-1].json()["code"] == "too_often"
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert httpx.get(f"{admin.url}/healthz").status_code == 200


def test_a_stranger_is_limited_before_any_look_at_the_token(start: Callable[..., Admin]) -> None:
    admin = start(address_per_s=2)
    with Gateway(admin.url, "x") as stranger:
        statuses = [stranger.http.get("/api/v1/nodes").status_code for _ in range(12)]
    assert statuses[0] == 401
    assert statuses[-1] == 429


def test_a_bucket_fills_again() -> None:
    limit = RateLimit(2)
    assert [limit.wait_s("a", 0.0) for _ in range(9)] == [0.0] * 8 + [0.5]
    assert limit.wait_s("b", 0.0) == 0
    assert limit.wait_s("a", 0.4) == pytest.approx(0.1)
    assert limit.wait_s("a", 0.51) == 0


def test_buckets_have_bounded_memory() -> None:
    limit = RateLimit(1, keys_max=100)
    for number in range(10_000):
        limit.wait_s(str(number), float(number))
    assert len(limit) == 100


def test_ipv6_hosts_are_limited_by_their_network() -> None:
    assert address_key("2001:db8::1") == address_key("2001:db8::ffff:2")
    assert address_key("2001:db8::1") != address_key("2001:db8:0:1::1")
    assert address_key("::ffff:192.0.2.1") == address_key("192.0.2.1") != address_key("192.0.2.2")


def test_concurrent_requests_are_limited_in_all_and_for_each_key() -> None:
    limit = ConcurrencyLimit(3, 2)
    limit.acquire("a")
    limit.acquire("a")
    with pytest.raises(Refusal) as refused:
        limit.acquire("a")
    assert refused.value.status == 429
    limit.acquire("b")
    with pytest.raises(Refusal) as refused:
        limit.acquire("c")
    assert refused.value.status == 503
    limit.release("a")
    limit.acquire("c")
    assert limit.count == 3
