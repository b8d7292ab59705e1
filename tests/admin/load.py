"""Load test of the node-list service: simulated gateways register, send heartbeats and wait for changes of the list.

`python tests/admin/load.py` starts a service on this host. It prints how long changes took to reach all gateways, and
how much processor time and memory the service used.
"""

import argparse
import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import os

from running import Admin, new_key

from fjm2admin.registry.store import Store
from fjm2admin.registry.tokens import Scope, make

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_WAIT_S = 30
_REGISTER_S = 180
_REACHED_S = 4.0


@dataclass
class Result:
    """Measurements of one run."""

    nodes: int
    reached_s: list[float] = field(default_factory=list)
    """For each change of the list, the seconds until the last gateway had received it."""
    unreached: int = 0
    cpu: float = 0.0
    """Processor time of the service, as an average number of busy cores."""
    register_s: float = 0.0
    rss_mb: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Connection:
    """A minimal HTTP client. A thousand such clients must use less processor time than the service."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nAccept-Encoding: gzip\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, content: object = None, head: str = "") -> tuple[int, str, bytes]:
        """Send a request. Return the status, ETag and body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        reader, writer = self._streams
        body = b"" if content is None else json.dumps(content).encode()
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{kind}{head}\r\n".encode() + body)
        raw = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, etag, length = int(raw.split(" ", 2)[1]), "", 0
        for line in raw.split("\r\n"):
            name, _, value = line.partition(": ")
            if name == "etag":
                etag = value
            elif name == "content-length":
                length = int(value)
        return status, etag, await reader.readexactly(length)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


class Watcher:
    """For each gateway, the latest version of the node list that it has received."""

    def __init__(self, nodes: int) -> None:
        self.versions = [0] * nodes
        self.changed = asyncio.Event()

    def note(self, number: int, version: int) -> None:
        self.versions[number] = version
        self.changed.set()

    def behind(self, version: int) -> int:
        return sum(one < version for one in self.versions)


async def gateway(number: int, port: int, token: str, watcher: Watcher, heartbeat_s: float, result: Result) -> None:
    beating, waiting = Connection(port, token), Connection(port, token)
    random = Random(number)
    try:
        await asyncio.sleep(random.uniform(0, heartbeat_s))
        profile = {
            "name": f"node {number}",
            "public_key": new_key(),
            "endpoints": [f"127.0.0.1:{10_000 + number}"],
            "groups": ["239.192.57.40:5740"],
            "version": "0.1.0",
        }
        began_at = time.monotonic()
        status, _, body = await beating.ask("POST", "/api/v1/nodes", profile)
        assert status == 200, (status, body)
        result.register_s = max(result.register_s, time.monotonic() - began_at)
        node_id = json.loads(body)["id"]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(beat(beating, node_id, heartbeat_s, result))
            tasks.create_task(poll(number, waiting, watcher, result))
    finally:
        beating.close()
        waiting.close()


async def beat(connection: Connection, node_id: str, heartbeat_s: float, result: Result) -> None:
    for count in range(1_000_000):
        link = {
            "peer": "00000000",
            "bytes_in": count * 1_000_000,
            "bytes_out": count * 500_000,
            "rtt_ms": 20,
            "loss": 0,
        }
        metrics = {"uptime_s": count * heartbeat_s + 1, "links": [link | {"peer": f"{peer:08x}"} for peer in range(8)]}
        status, _, body = await connection.ask("POST", f"/api/v1/nodes/{node_id}/heartbeat", {"metrics": metrics})
        if status != 200:
            result.errors.append(f"heartbeat: {status} {body[:100]!r}")
        await asyncio.sleep(heartbeat_s)


async def poll(number: int, connection: Connection, watcher: Watcher, result: Result) -> None:
    etag = ""
    while True:
        path = f"/api/v1/nodes?wait={_WAIT_S}"
        status, etag, _ = await connection.ask("GET", path, head=f"If-None-Match: {etag}\r\n" if etag else "")
        if status == 200:
            watcher.note(number, int(etag.strip('"')))
        elif status != 304:
            result.errors.append(f"list: {status}")
            await asyncio.sleep(1)


async def change_and_measure(
    port: int, token: str, watcher: Watcher, changes: int, every_s: float, result: Result
) -> None:
    """Change the address of one node repeatedly. Measure how long each change takes to reach all gateways."""
    connection = Connection(port, token)
    profile = {"name": "mover", "public_key": new_key(), "endpoints": ["127.0.0.1:9"], "version": "1"}
    for number in range(changes):
        before = max(watcher.versions)
        began_at = time.monotonic()
        status, _, body = await connection.ask(
            "POST", "/api/v1/nodes", profile | {"endpoints": [f"127.0.0.1:{number + 1}"]}
        )
        assert status == 200, body
        reached = await all_behind(watcher, before + 1, began_at + max(every_s, _REACHED_S))
        result.unreached += watcher.behind(before + 1)
        if reached:
            result.reached_s.append(time.monotonic() - began_at)
        await asyncio.sleep(max(0, began_at + every_s - time.monotonic()))
    connection.close()


async def all_behind(watcher: Watcher, version: int, deadline: float) -> bool:
    while watcher.behind(version):
        watcher.changed.clear()
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + deadline - time.monotonic()):
                await watcher.changed.wait()
        except TimeoutError:
            return False
    return True


def cpu_s(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / _TICKS_PER_S


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def watch(pid: int, result: Result) -> None:
    while True:
        result.rss_mb.append(rss_mb(pid))
        await asyncio.sleep(1)


async def measure(admin: Admin, tokens: list[str], heartbeat_s: float, changes: int, every_s: float) -> Result:
    nodes = len(tokens) - 1
    result, watcher, pid = Result(nodes), Watcher(nodes), admin.process.pid
    gateways = [
        asyncio.create_task(gateway(number, admin.port, token, watcher, heartbeat_s, result))
        for number, token in enumerate(tokens[:-1])
    ]
    began_at = time.monotonic()
    try:
        while any(version == 0 for version in watcher.versions):
            told = f"{watcher.versions.count(0)} of {nodes} have no list: {result.errors[:3]}, {admin.lines[-3:]}"
            assert time.monotonic() - began_at < _REGISTER_S + heartbeat_s, told
            broken = [task.exception() for task in gateways if task.done()]
            assert not broken, broken[0]
            await asyncio.sleep(0.2)
        await asyncio.sleep(3)
        watching = asyncio.create_task(watch(pid, result))
        used, since = cpu_s(pid), time.monotonic()
        await change_and_measure(admin.port, tokens[-1], watcher, changes, every_s, result)
        result.cpu = (cpu_s(pid) - used) / (time.monotonic() - since)
        watching.cancel()
    finally:
        for task in gateways:
            task.cancel()
        await asyncio.gather(*gateways, return_exceptions=True)
    return result


def made_tokens(data: Path, count: int) -> Iterator[str]:
    """Write tokens into the service's database, each for a single node, and yield their texts."""
    store = Store(data)
    store.close()
    with sqlite3.connect(data) as connection:
        for number in range(count):
            name = f"node {number}" if number < count - 1 else "mover"
            text, token = make(name, Scope.GATEWAY, name, time.time())
            row = (token.id, token.name, token.scope.value, token.node, token.digest, token.created_at, None, None)
            connection.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            yield text
    connection.close()


def run_load(folder: Path, nodes: int, heartbeat_s: float, changes: int, every_s: float) -> Result:
    """Run a service with `nodes` simulated gateways, and change its node list `changes` times."""
    data = folder / "load.sqlite"
    tokens = list(made_tokens(data, nodes + 1))
    # All gateways have the same address here. In practice their addresses differ.
    limits = {"address_per_s": 1_000_000, "connections_per_address": 100_000}
    with Admin(data, heartbeat_s=heartbeat_s, log_level="warning", **limits) as admin:
        result = asyncio.run(measure(admin, tokens, heartbeat_s, changes, every_s))
        admin.stop()
        result.errors += [line for line in admin.lines if "error" in line]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--heartbeat", type=float, default=10.0, help="seconds between heartbeats of a gateway")
    parser.add_argument("--changes", type=int, default=12, help="changes of the list")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between changes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = run_load(Path(folder), options.nodes, options.heartbeat, options.changes, options.every)
    reached = result.reached_s or [float("inf")]
    print(f"{result.nodes} gateways, a heartbeat every {options.heartbeat:g} s, a change every {options.every:g} s")
    print(f"changes reached all within {max(reached):.2f} s (median {statistics.median(reached):.2f} s)", end="")
    print(f"; {result.unreached} missed" if result.unreached else "")
    print(f"service: {result.cpu:.2f} cores; longest registration {result.register_s:.2f} s")
    minutes = [*result.rss_mb[::60], result.rss_mb[-1]]
    print(
        f"memory, a minute each: {', '.join(f'{one:.0f}' for one in minutes)} MB; {max(result.rss_mb):.0f} MB at most"
    )
    for error in result.errors[:5]:
        print(f"error: {error}")


if __name__ == "__main__":
    main()
