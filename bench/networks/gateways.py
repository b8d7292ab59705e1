"""Gateways between the LANs of a `Wan`: fjm2d, plain relays, or none."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from .namespaces import EnvironmentOf, Host
from .wan import LAN_DEVICE, LEFT_LAN, LEFT_WAN, RIGHT_LAN, RIGHT_WAN, Wan

_GROUP, _WAN_PORT = "239.192.57.40", 5741
"""FJM2's default group, and the default port of gateways."""
_START_S = 20.0
"""Longest time for a gateway to be ready. Two gateways import, connect and exchange keys on a busy machine."""
_STOP_S = 5.0
"""Longest time for a gateway to end after SIGTERM."""
_RATE_SHARE = 0.95
"""Share of the line's rate that fjm2d may use, as an operator would set it. The rest is for headers of lower layers."""
_LAST_WORDS_CHARACTERS = 500
"""Maximum number of characters of a gateway's error output that a message quotes."""
_LOG_CHUNK_BYTES = 1 << 16
"""Bytes of a log that are read at once: the size of a pipe on Linux."""
_PYTHON = (sys.executable, "-m")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

CpuClock = Callable[[], float]
"""Function that returns the CPU seconds that the gateways have used so far."""


class GatewayError(Exception):
    """A gateway does not start. The message quotes its output."""


@asynccontextmanager
async def running_gateways(
    wan: Wan, way: str, port: int, rate_bps: float | None, environment_of: EnvironmentOf | None
) -> AsyncIterator[CpuClock]:
    """Run gateways until the context is left. They carry the default group at `port`. Yield their CPU clock."""
    async with AsyncExitStack() as stack:
        match way:
            case "fjm2d":
                pids = await _start_ours(wan, port, rate_bps, environment_of, stack)
            case "plain-relay" | "plain-relay-threads":
                pids = await _start_plain(wan, port, "asyncio" if way == "plain-relay" else "threads", stack)
            case _:
                pids = []
        yield lambda: sum(map(_cpu_s, pids))


async def _start_plain(wan: Wan, port: int, make: str, stack: AsyncExitStack) -> list[int]:
    pids = []
    for host, addresses in (
        (wan.left, (LEFT_LAN, LEFT_WAN, RIGHT_WAN)),
        (wan.right, (RIGHT_LAN, RIGHT_WAN, LEFT_WAN)),
    ):
        command = ("fjm2bench.networks.plain_relay", make, _GROUP, str(port), *addresses)
        process = await stack.enter_async_context(_started(host, command, {}))
        assert process.stdout is not None
        await _until(process, process.stdout, "ready")
        pids.append(process.pid)
    return pids


async def _start_ours(
    wan: Wan, port: int, rate_bps: float | None, environment_of: EnvironmentOf | None, stack: AsyncExitStack
) -> list[int]:
    """Start two gateways with new keys. Each has the other as its peer."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fjm2-bench-")))
    left, right = folder / "left", folder / "right"
    keys = {side: await _keygen(side) for side in (left, right)}
    _configure(left, port, rate_bps, keys[right], RIGHT_WAN)
    _configure(right, port, rate_bps, keys[left], LEFT_WAN)
    processes = []
    for host, side in ((wan.left, left), (wan.right, right)):
        name = f"gateway-{side.name}"
        command = ("fjm2d", "run", "--config", f"{side}.toml")
        started = _started(host, command, environment_of("gateway", name) if environment_of else {})
        processes.append(await stack.enter_async_context(started))
    for process in processes:
        assert process.stderr is not None
        await _until(process, process.stderr, "peer_up")
        stack.callback(asyncio.create_task(_drain(process.stderr)).cancel)
    return [process.pid for process in processes]


async def _keygen(file: Path) -> str:
    """Make a key pair and return its public key."""
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
    host: Host, arguments: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a Python program in a namespace until the context is left."""
    process = await asyncio.create_subprocess_exec(
        *host.inside(*_PYTHON, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
        start_new_session=True,  # Ctrl-C reaches only us; we end the processes
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
    """Read a program's output until a line contains a word."""
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
    raise GatewayError(f"a gateway ended: {said[-_LAST_WORDS_CHARACTERS:] or 'it said nothing'}")


async def _drain(stream: asyncio.StreamReader) -> None:
    """Discard a log, so that it does not fill its pipe and stop the program."""
    while await stream.read(_LOG_CHUNK_BYTES):
        pass


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used; 0 if it has ended."""
    try:
        # Fields 14 and 15 of proc(5) are the 12th and 13th after the program's name, which may contain anything.
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(values[11]) + int(values[12])) / _TICKS_PER_S
