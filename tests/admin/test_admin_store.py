"""Tests of the service's database file: its content, how long data is kept, and how it survives failures."""

import asyncio
import contextlib
import gzip
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import httpx
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from load import run_load
from representatives import representatives
from running import ROOT, Admin, Gateway, run, until

from fjm2admin.cli import main
from fjm2admin.config import AdminConfig
from fjm2admin.errors import Refusal, StoreError
from fjm2admin.registry.look_alikes import looks_of
from fjm2admin.registry.measures import STEP_S, LinkSample, Meter, Point
from fjm2admin.registry.nodes import Node, Profile, Registry, Silences, State
from fjm2admin.registry.store import TIERS, Lock, Seen, Store, StoredNode
from fjm2admin.registry.tokens import Scope, make
from fjm2admin.web import feed


def profile(name: str = "paris", node_id: str = "0000000a", key: str = "key") -> Profile:
    return Profile(node_id, name, key, ("127.0.0.1:1", "[::1]:2"), ("239.1.2.3:4",), None, "1")


def stored(made: Profile) -> StoredNode:
    return StoredNode(made, "token", "127.0.0.1", 1.0, 2.0)


def test_saved_nodes_are_read_back(data: Path) -> None:
    store = Store(data)
    _, token = make("paris", Scope.GATEWAY, "paris", 3.0)
    store.add_token(token)
    store.save_node(stored(profile()))
    store.save_batch([Seen(9.0, "127.0.0.2", "0000000a")], [], [(8.0, token.id)], 77, 10.0)
    store.close()
    again = Store(data)
    (node,) = again.nodes()
    assert (node.profile, node.last_seen, node.address) == (profile(), 9.0, "127.0.0.2")
    assert [(one.id, one.digest, one.used_at) for one in again.tokens()] == [(token.id, token.digest, 8.0)]
    assert (again.list_version(), again.saved_at()) == (77, 10.0)
    again.close()


def test_a_node_takes_the_place_of_one_with_its_name_or_key(data: Path) -> None:
    store = Store(data)
    store.save_node(stored(profile()))
    store.save_node(stored(profile(node_id="0000000b", key="other")))
    assert store.node_ids() == {"0000000b"}
    store.save_node(stored(profile(name="rome", node_id="0000000b", key="other")))
    assert [node.profile.name for node in store.nodes()] == ["rome"]
    store.close()


def test_history_is_condensed_and_bounded(data: Path) -> None:
    store = Store(data)
    now, days = 1_800_000_000, 9
    for minute in range(0, days * 1440, 15):
        # A quarter of an hour at a time, with condensing in between, as in a running service.
        at = now - days * 86_400 + minute * 60
        points = [
            ("a", Point(at + step, 100.0 + step, 8.0, 0.0, step / 1e4, 5.0, step)) for step in range(0, 900, STEP_S)
        ]
        store.save_batch([], points, [], 1, at)
        store.thin_out(at + 900)
    for tier in TIERS:
        kept = store.history("a", tier, 0)
        assert tier.kept_s / tier.step_s - 2 <= len(kept) <= tier.kept_s / tier.step_s + 2
        assert min(point.at for point in kept) >= now - tier.kept_s
        assert all(point.at % tier.step_s == 0 for point in kept)
    coarse = store.history("a", TIERS[-1], 0)[10]
    assert coarse.in_bps == pytest.approx(100 + (900 - STEP_S) / 2)
    assert (coarse.loss, coarse.queue_bytes) == (0.089, 890)
    store.remove_nodes(["a"])
    assert not any(store.history("a", tier, 0) for tier in TIERS)
    store.close()


def test_a_process_that_is_killed_loses_nothing_that_was_written(data: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "sys.path[:0] = ['tests/admin', 'tests', '.']\n"
        "from test_admin_store import profile, stored; from fjm2admin.registry.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "for number in range(1_000_000):\n"
        "    store.save_node(stored(profile(f'n{number}', f'{number:08x}', str(number))))\n"
        "    print(number, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, data], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        for _ in range(200):
            last = int(process.stdout.readline())
        process.kill()
    store = Store(data)
    names = {node.profile.name for node in store.nodes()}
    assert {f"n{number}" for number in range(last + 1)} <= names
    store.close()


def test_a_file_with_a_newer_schema_is_left_alone(data: Path) -> None:
    Store(data).close()
    connection = sqlite3.connect(data)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="made by a newer fjm2admin"):
        Store(data)


def test_a_damaged_file_is_reported_with_a_remedy(data: Path) -> None:
    data.write_bytes(b"no database " * 1000)
    with pytest.raises(StoreError, match="file is not a database; put a copy in its place, or move it away"):
        Store(data)


def test_the_service_s_folder_names_the_file_before_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "service" / "fjm2admin.sqlite"
    monkeypatch.setattr("fjm2admin.config.SERVICE_DATA", file)
    assert AdminConfig().data_path == Path(file.name)
    file.parent.mkdir()
    assert AdminConfig().data_path == file


def test_a_clock_that_was_set_back_does_not_stop_condensing(data: Path) -> None:
    store = Store(data)
    now = 1_800_000_000
    ahead = now + 1_000_000
    store.save_batch([], [("a", Point(ahead, 1.0, 1.0, 0.0, None, None, 0))], [], 1, ahead)
    store.thin_out(ahead)
    store.save_batch([], [("a", Point(now, 2.0, 1.0, 0.0, None, None, 0))], [], 1, now)
    store.thin_out(now + 10)
    for tier in TIERS:
        assert [point.in_bps for point in store.history("a", tier, 0)] == [2.0]
    store.close()


def test_two_names_of_a_file_share_a_lock(data: Path) -> None:
    other = data.with_name("other.sqlite")
    other.symlink_to(data)
    with Lock(data), pytest.raises(StoreError, match="another fjm2admin runs"), Lock(other):
        pass


def test_a_lock_has_one_holder(data: Path) -> None:
    with Lock(data), pytest.raises(StoreError, match="another fjm2admin runs"), Lock(data):
        pass
    with Lock(data):
        pass


# Nodes in memory


def node(name: str, node_id: str, now: float = 0.0) -> Node:
    return Node(profile(name, node_id, node_id), "token", "127.0.0.1", 0.0, 0.0, now)


def test_states_follow_silence() -> None:
    registry = Registry(Silences(30, 600, 6000), 10, 10)
    registry.put(node("paris", "0000000a"))
    for now, state in (
        (29.9, State.LIVE),
        (30, State.STALE),
        (599, State.STALE),
        (600, State.GONE),
        (5999, State.GONE),
    ):
        registry.expire(now)
        assert [one.state for one in registry] == [state], now
    assert [one.id for one in registry.expire(6000)[1]] == ["0000000a"]


def test_the_number_of_nodes_is_limited() -> None:
    registry = Registry(Silences(1, 2, 3), 2, 2)
    registry.put(node("a", "0000000a"))
    registry.put(node("b", "0000000b"))
    registry.check_room("token", registry.conflicting(profile("a", "0000000c")))
    with pytest.raises(Refusal, match="no more can be registered"):
        registry.check_room("other", registry.conflicting(profile("c", "0000000c")))


def test_the_nodes_of_a_token_are_limited() -> None:
    registry = Registry(Silences(1, 2, 3), 100, 2)
    for name, node_id in (("a", "0000000a"), ("b", "0000000b"), ("b", "0000000c"), ("c", "0000000c")):
        registry.check_room("token", registry.conflicting(profile(name, node_id)))
        registry.put(node(name, node_id))
    with pytest.raises(Refusal, match="this token has registered 2 nodes"):
        registry.check_room("token", [])
    registry.check_room("token", registry.conflicting(profile("c", "0000000d")))
    registry.check_room("other", [])
    registry.remove("0000000c")
    registry.check_room("token", [])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.booleans())))
def test_names_and_ids_are_unique(moves: list[tuple[str, str, bool]]) -> None:
    registry = Registry(Silences(1, 2, 3), 100, 100)
    model: dict[str, str] = {}
    for name, node_id, is_leaving in moves:
        if is_leaving:
            registry.remove(node_id)
            model = {one: other for one, other in model.items() if one != node_id}
        else:
            registry.put(node(name, node_id))
            model = {one: other for one, other in model.items() if one != node_id and other != name} | {node_id: name}
        assert {one.id: one.profile.name for one in registry} == model
        for known, its_name in model.items():
            found = registry.named(its_name)
            assert found is not None
            assert found.id == known


def test_an_advert_goes_only_where_requests_come_from() -> None:
    one = node("paris", "0000000a")
    assert list(one.advert_addresses()) == [("127.0.0.1", 1)]
    one.address = "::1"
    assert list(one.advert_addresses()) == [("::1", 2)]
    one.address = "203.0.113.1"
    assert list(one.advert_addresses()) == []


def test_rates_add_up_to_the_counters_for_any_intervals() -> None:
    random, meter = Random(3), Meter()
    uptime, counted, points = 0.0, 0, []
    for _ in range(500):
        step = random.uniform(0.5, 1.5)
        uptime += step
        counted += int(step * 125_000)
        done = meter.add(uptime, [LinkSample("p", counted, 2 * counted, {}, None, None, 0)], 1e9 + uptime)
        points += [done] if done else []
    assert len(points) == pytest.approx(500 / STEP_S, abs=2)
    assert all(point.in_bps == pytest.approx(1e6, rel=1e-3) for point in points[1:])
    assert all(point.out_bps == pytest.approx(2e6, rel=1e-3) for point in points[1:])


@pytest.mark.alone
@pytest.mark.parametrize(("nodes", "changes"), representatives([(100, 2), (300, 5)], (100, 2)))
def test_a_change_reaches_hundreds_of_gateways_in_time(tmp_path: Path, nodes: int, changes: int) -> None:
    began_at = time.monotonic()
    result = run_load(tmp_path, nodes=nodes, heartbeat_s=3, changes=changes, every_s=1)
    assert result.errors == []
    assert (len(result.reached_s), result.unreached) == (changes, 0)
    assert max(result.reached_s) < 3
    assert result.register_s < 5
    assert result.cpu < 0.5
    assert max(result.rss_mb) < result.rss_mb[0] + 20
    assert time.monotonic() - began_at < 60


def test_an_unknown_scope_is_reported_without_a_traceback(data: Path) -> None:
    with contextlib.closing(Store(data)), contextlib.closing(sqlite3.connect(data)) as connection:
        connection.execute("INSERT INTO tokens VALUES ('x', 'x', 'emperor', NULL, x'00', 0, NULL, NULL)")
        connection.commit()
    listed = run(data, "token", "list")
    assert listed.returncode == 1
    assert listed.stderr.count("\n") == 1
    assert "'emperor'" in listed.stderr


# The list


def test_a_long_list_is_made_in_a_thread_and_later_changes_are_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    making = threading.Event()

    def slowly(version: int, entries: list[dict[str, object]]) -> feed.Snapshot:
        making.set()
        time.sleep(0.3)
        return snapshot(version, entries)

    async def scenario() -> None:
        nodes, told = [node("a", "0000000a")], []
        lists = feed.ListFeed(nodes, 0, told.append)
        monkeypatch.setattr(feed, "make_snapshot", slowly)
        nodes.append(node("b", "0000000b"))
        lists.changed()
        longest_s, at = 0.0, time.monotonic()
        while len(told) < 2:
            await asyncio.sleep(0.01)
            longest_s, at = max(longest_s, time.monotonic() - at), time.monotonic()
            if making.is_set() and len(nodes) == 2:
                nodes.append(node("c", "0000000c"))
                lists.changed()
        assert longest_s < 0.2
        assert told[0] < told[1] == lists.snapshot.version
        listed = json.loads(gzip.decompress(lists.snapshot.compressed))
        assert listed == json.loads(lists.snapshot.body)
        assert [one["name"] for one in listed["nodes"]] == ["a", "b", "c"]
        lists.close()

    snapshot = feed.make_snapshot
    asyncio.run(scenario())


# The commands


def test_an_id_wins_over_a_name_that_looks_like_it(data: Path) -> None:
    with contextlib.closing(Store(data)) as store:
        for name, node_id in (("0000000b", "0000000c"), ("0", "0000000b"), ("a", "0000000a")):
            store.save_node(stored(profile(name, node_id, node_id)))
    assert run(data, "nodes", "remove", "0000000b").returncode == 0
    with contextlib.closing(Store(data)) as store:
        assert store.node_ids() == {"0000000a", "0000000c"}


def test_no_option_is_ignored(data: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["nodes", "--config", str(tmp_path / "x.toml"), "remove", "a", "--data", str(data)])
    assert done.exit_code == 2
    assert "options go after the command" in done.stderr


def test_a_file_that_others_can_read_causes_a_warning(start: Callable[..., Admin], data: Path) -> None:
    Store(data).close()
    data.chmod(0o644)
    admin = start()
    until(lambda: any("Warning: other users can read that file" in line for line in admin.lines), 5, "told")


@pytest.mark.parametrize(("silent_s", "state"), [(5, "live"), (60, "stale"), (1000, "gone")])
@pytest.mark.parametrize("away_s", [0, 5000], ids=["running", "stopped"])
def test_nodes_are_listed_with_their_states(data: Path, silent_s: float, state: str, away_s: float) -> None:
    """States are those at the service's last write. Time without a running service does not count as silence."""
    now = time.time() - away_s
    with contextlib.closing(Store(data)) as store:
        store.save_node(replace(stored(profile()), last_seen=now - silent_s))
        store.save_batch([], [], [], 1, now)
    listed = run(data, "nodes")
    assert listed.stdout.splitlines()[1].split()[:3] == ["0000000a", "paris", state]
    assert ("No service has written" in listed.stderr) == bool(away_s)
    (entry,) = json.loads(run(data, "nodes", "--json").stdout)
    assert entry["state"] == state


def test_health_tells_of_noise_in_the_file_within_two_seconds(start: Callable[..., Admin]) -> None:
    """The pages in the service's memory are good, so that its own reads and writes go on for a while."""
    admin = start()
    with Gateway(admin.url, admin.token("paris")) as gateway:
        gateway.register()
        registered_at = time.time()
        store = Store(admin.data)
        until(lambda: store.saved_at() > registered_at, 5, "nothing to write")
        store.close()
        assert httpx.get(f"{admin.url}/healthz").status_code == 200
        for path in (admin.data, admin.data.with_name(f"{admin.data.name}-wal")):
            with path.open("r+b") as file:
                file.write(Random(57).randbytes(path.stat().st_size))
        took_s = until(lambda: httpx.get(f"{admin.url}/healthz").status_code == 503, 5, "noticed")
        assert took_s < 2.5
        assert httpx.get(f"{admin.url}/healthz").json() == {"status": "failing", "reason": "store"}
        with Gateway(admin.url, gateway.http.headers["Authorization"].split()[1], "paris-2") as late:
            assert late.register().json()["code"] == "no_store"  # a restarted service would not know it


def test_health_tells_of_a_file_that_was_replaced(start: Callable[..., Admin], tmp_path: Path) -> None:
    admin = start()
    with Gateway(admin.url, admin.token("london")) as gateway:
        assert gateway.register().is_success
    admin.data.rename(tmp_path / "elsewhere")
    took_s = until(lambda: httpx.get(f"{admin.url}/healthz").status_code == 503, 5, "noticed")
    assert took_s < 2.5
    (tmp_path / "elsewhere").rename(admin.data)
    until(lambda: httpx.get(f"{admin.url}/healthz").status_code == 200, 5, "healthy again")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_health_tells_of_a_full_disk_although_small_writes_succeed(tmp_path: Path) -> None:
    """The log has pages that are used again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(("mount", "-t", "tmpfs", "-o", "size=4m", "fjm2-test", disk), check=False).returncode:
        pytest.skip("no tmpfs can be mounted")
    try:
        with contextlib.closing(Store(disk / "nodes")) as store:
            store.save_node(stored(profile()))
            store.save_node(stored(profile()))
            with contextlib.suppress(OSError), (disk / "hog").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            for work in (store.check, lambda: store.save_node(stored(profile("rome", "0000000b", "other")))):
                with pytest.raises(StoreError, match=r"its disk has 0 bytes left: make room"):
                    work()
            (disk / "hog").unlink()
            store.save_node(stored(profile("rome", "0000000b", "other")))
    finally:
        subprocess.run(("umount", "--lazy", disk), check=True)


def test_a_check_costs_little_and_waits_for_nobody(data: Path) -> None:
    store = Store(data)
    for number in range(100):
        store.save_node(stored(profile(f"n{number}", f"{number:08x}", f"key{number}")))
    began = time.process_time()
    for _ in range(100):
        store.check()
    assert (time.process_time() - began) / 100 < 0.01  # of a core, once a second
    other = sqlite3.connect(data, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    store.check()
    other.rollback()
    other.close()
    store.save_node(stored(profile("after", "000000ff", "after")))  # its own locks are still there
    store.close()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("Paris", "paris"),
        ("p\u0430ris", "paris"),
        ("\uff50\uff41\uff52\uff49\uff53", "paris"),
        ("\u0420ARIS", "paris"),
        ("\u043c\u043e\u0441\u043a\u0432\u0430", "\u041c\u043e\u0441\u043a\u0432\u0430"),
        ("Stra\u00dfe", "STRASSE"),
    ],
)
def test_names_that_look_alike_are_noticed(name: str, other: str) -> None:
    assert looks_of(name) & looks_of(other)


@pytest.mark.parametrize(
    ("name", "other"), [("paris", "paris-2"), ("node-1", "node-l"), ("o", "0"), ("p\u00e2ris", "paris")]
)
def test_names_that_differ_are_not(name: str, other: str) -> None:
    assert not looks_of(name) & looks_of(other)


def test_a_name_that_looks_like_another_is_refused(admin: Admin) -> None:
    token = admin.token("all")
    with Gateway(admin.url, token) as paris:
        assert paris.register().is_success
        for name in ("Paris", "p\u0430ris", "\uff50\uff41\uff52\uff49\uff53"):
            with Gateway(admin.url, token, name) as other:
                answer = other.register()
            assert (answer.status_code, answer.json()["code"]) == (409, "look_alike"), name
            assert (
                answer.json()["message"] == f"the name {name!r} looks like 'paris', which is registered: choose another"
            )
        assert paris.register().is_success
        with Gateway(admin.url, token, "london") as other:
            assert other.register().is_success
    done = run(admin.data, "token", "create", "--name", "ALL")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is a token named 'all', which looks like 'ALL': choose another name" in done.stderr


def test_a_node_may_change_the_case_of_its_own_name(admin: Admin) -> None:
    with Gateway(admin.url, admin.token("all")) as gateway:
        gateway.register()
        gateway.profile["name"] = "Paris"
        assert gateway.register().is_success
        gateway.until_listed(lambda nodes: list(nodes) == ["Paris"])
