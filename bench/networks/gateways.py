"""What stands between two LANs while a run lasts: gateways of ours, plain relays, or nothing."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from ..comparison.trial import Surroundings
from . import namespaces
from .selection import Sites
from .wan import LAN_DEVICE, LEFT_LAN, LEFT_WAN, RIGHT_LAN, RIGHT_WAN

_GROUP, _WAN_PORT = "239.192.57.40", 5741
_START_S, _STOP_S = 20.0, 5.0
_RATE_SHARE = 0.95
"""Of the line's rate: what an operator would let a gateway send. The rest is for headers below."""
_PYTHON = (sys.executable, "-m")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Gauge = Callable[[], float]
"""CPU seconds that the gateways have used so far."""


class GatewayError(Exception):
    """A gateway does not start; says what it said."""


@asynccontextmanager
async def standing(
    sites: Sites, way: str, port: int, rate_bps: float | None, around: Surroundings | None
) -> AsyncIterator[Gauge]:
    """Gateways that carry the default group's port, until the context is left."""
    async with AsyncExitStack() as stack:
        match way:
            case "fjm2d":
                pids = await _start_ours(sites, port, rate_bps, around, stack)
            case "plain-relay" | "plain-relay-threads":
                pids = await _start_plain(sites, port, "asyncio" if way == "plain-relay" else "threads", stack)
            case _:
                pids = []
        yield lambda: sum(map(_cpu_s, pids))


async def _start_plain(sites: Sites, port: int, make: str, stack: AsyncExitStack) -> list[int]:
    pids = []
    for host, addresses in (
        (sites.left, (LEFT_LAN, LEFT_WAN, RIGHT_WAN)),
        (sites.right, (RIGHT_LAN, RIGHT_WAN, LEFT_WAN)),
    ):
        command = ("fjm2bench.networks.plain_relay", make, _GROUP, str(port), *addresses)
        process = await stack.enter_async_context(_started(host, command, {}))
        assert process.stdout is not None
        await _until(process, process.stdout, "ready")
        pids.append(process.pid)
    return pids


async def _start_ours(
    sites: Sites, port: int, rate_bps: float | None, around: Surroundings | None, stack: AsyncExitStack
) -> list[int]:
    """Gateways with keys of their own, that have each other in their settings."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fjm2-bench-")))
    left, right = folder / "left", folder / "right"
    keys = {side: await _keygen(side) for side in (left, right)}
    _configure(left, port, rate_bps, keys[right], RIGHT_WAN)
    _configure(right, port, rate_bps, keys[left], LEFT_WAN)
    processes = []
    for host, side in ((sites.left, left), (sites.right, right)):
        name = f"gateway-{side.name}"
        command = ("fjm2d", "run", "--config", f"{side}.toml")
        started = _started(host, command, around("gateway", name) if around else {})
        processes.append(await stack.enter_async_context(started))
    for process in processes:
        assert process.stderr is not None
        await _until(process, process.stderr, "peer_up")
        stack.callback(asyncio.create_task(_drain(process.stderr)).cancel)
    return [process.pid for process in processes]


async def _keygen(file: Path) -> str:
    """The public key of a new pair."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*_PYTHON, "fjm2d", "keygen", str(file), stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    if process.returncode != 0:
        raise GatewayError(f"fjm2d keygen: {err.decode().strip()}")
    return out.decode().strip()


def _configure(side: Path, port: int, rate_bps: float | None, peer_key: str, peer_address: str) -> None:
    rate = "none" if rate_bps is None else f"{rate_bps * _RATE_SHARE / 1000:.0f}kbit"
    side.with_suffix(".toml").write_text(f"""\
name = "{side.name}"
key_file = "{side}"
state_directory = ""
wan.rate = "{rate}"
lan.interface = "{LAN_DEVICE}"
[[group]]
address = "{_GROUP}:{port}"
carry = "always"
[[peer]]
name = "peer"
public_key = "{peer_key}"
endpoints = ["{peer_address}:{_WAN_PORT}"]
""")


@asynccontextmanager
async def _started(
    host: namespaces.Host, arguments: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python program in a namespace. It ends with the context at the latest."""
    process = await asyncio.create_subprocess_exec(
        *host.inside(*_PYTHON, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
        start_new_session=True,  # Ctrl-C is for us; they are told when their time has come
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _until(process: asyncio.subprocess.Process, stream: asyncio.StreamReader, word: str) -> None:
    """Read what it says until this comes."""
    said = ""
    try:
        async with asyncio.timeout(_START_S):
            while line := (await stream.readline()).decode():
                if word in line:
                    return
                said = line.strip() or said
    except TimeoutError:
        raise GatewayError(f"a gateway did not say {word} within {_START_S:g} s; last: {said or 'nothing'}") from None
    assert process.stderr is not None
    said = (await process.stderr.read()).decode().strip() or said
    raise GatewayError(f"a gateway ended: {said[-500:] or 'nothing said'}")


async def _drain(stream: asyncio.StreamReader) -> None:
    """Nobody reads a log: it must not fill the pipe."""
    while await stream.read(1 << 16):
        pass


def _cpu_s(pid: int) -> float:
    try:
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(values[11]) + int(values[12])) / _TICKS_PER_S
