"""Tests of FJM2 on systems that lack features: it works without them, or says in one line what to do."""

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fjm2.norm.core.train import Train
from fjm2.norm.net.udp import UdpSocket, UdpStats

ELSEWHERE = (sys.executable, "-W", "error", str(Path(__file__).with_name("elsewhere.py")))
GROUP = "239.192.57.95"
DEADLINE_S = 60.0
RUNS_ON = ("linux-without-uvloop", "linux-without-gso", "darwin")

PUBLISH_AND_SUBSCRIBE = """
import asyncio, sys
from fjm2.jms import ConnectionFactory, Topic

async def main(uri):
    async with ConnectionFactory(uri).create_context() as context:
        consumer = context.create_consumer(Topic("t"))
        await consumer.ready()
        producer = context.create_producer()
        for number in range(100):
            await producer.send(Topic("t"), f"{number} " + 20_000 * "x")
        for number in range(100):
            message = await consumer.receive(timeout=20)
            assert message.text.startswith(f"{number} ")
        print(type(asyncio.get_running_loop()).__module__)

import fjm2
fjm2.run(main(sys.argv[1]))
"""
OPEN = """
import fjm2, fjm2.jms, fjm2.jms.blocking, fjm2.norm, fjm2.record, sys
try:
    fjm2.jms.blocking.ConnectionFactory(sys.argv[1]).create_connection()
except Exception as error:
    print(type(error).__mro__)
    print(error)
"""

COMMANDS = """
import json, sys
from click.testing import CliRunner
from fjm2.commands import main

bus = ("--uri", sys.argv[1])
session = ("--group", "239.192.57.95", "--port", "5799", "--interface", "lo", "--ttl", "0")
commands = (
    ("pub", "t", "x", *bus), ("sub", "t", *bus), ("request", "t", "x", *bus), ("reply", "t", "--echo", *bus),
    ("top", "--once", *bus), ("doctor", "--listen", *bus),
    ("norm", "recv", "--out", ".", *session), ("norm", "send", "--data", __file__, *session),
)
told = [CliRunner().invoke(main, command) for command in commands]
print(json.dumps([(one.exit_code, one.output) for one in told]))
"""


def run(system: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FJM2")}
    return subprocess.run(
        (*ELSEWHERE, system, *words), capture_output=True, text=True, timeout=DEADLINE_S, env=environment
    )


def uri_of(port: int) -> str:
    return f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0"


@pytest.mark.parametrize("system", RUNS_ON)
def test_messages_pass_without_uvloop_or_linux(system: str, port: int) -> None:
    done = run(system, "-c", PUBLISH_AND_SUBSCRIBE, uri_of(port))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("asyncio" if "uvloop" in system else "uvloop")


@pytest.mark.parametrize("system", ["linux-without-gso", "darwin"])
def test_a_kernel_that_refuses_gso_gets_one_by_one(system: str, port: int) -> None:
    """The transport asks the kernel for offload before it sends. A refusal is no error."""
    code = (
        "import sys; from fjm2.norm.net.udp import UdpConfig, UdpTransport\n"
        "with UdpTransport(UdpConfig(group=sys.argv[1], port=int(sys.argv[2]), interface='lo', ttl=0)) as one:\n"
        "    print(one.offload, one.address[0], one.kernel_drops(), one.check().value)"
    )
    done = run(system, "-c", code, GROUP, str(port))
    assert (done.stdout, done.stderr) == ("False 127.0.0.1 0 up\n", "")


class WithoutGro(socket.socket):
    """A socket as on Linux 4.18, which has GSO but no GRO."""

    def setsockopt(self, level: int, option: int, *value: Any) -> None:  # type: ignore[override]
        if (level, option) == (socket.IPPROTO_UDP, 104):
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        super().setsockopt(level, option, *value)


def test_a_kernel_that_only_segments_is_used_for_that() -> None:
    with WithoutGro(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
        kernel.bind(("127.0.0.1", 0))
        ours = UdpSocket(kernel, UdpStats(), offload=True)
        data = np.arange(30_000, dtype=np.uint16).view(np.uint8)
        assert ours.send(Train(data, 1000, ours.address))
        received = b""
        while (train := ours.receive()) is not None:
            received += train.data.tobytes()
    assert received == data.tobytes()
    assert ours.stats.offload_refused == 0


def test_without_linux_an_interface_must_be_named(port: int) -> None:
    done = run("darwin", "fjm2", "pub", "t", "x", "--uri", f"fjm2://{GROUP}:{port}?ttl=0")
    assert done.returncode == 1
    assert "no interface is set: expected the name of an interface, as routes are not known on darwin" in done.stderr
    assert "lo (127.0.0.1" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_windows_imports_and_says_why_a_bus_cannot_be_opened(port: int) -> None:
    done = run("win32", "-c", OPEN, uri_of(port))
    assert (done.returncode, done.stderr) == (0, "")
    kinds, told = done.stdout.splitlines()
    assert "FJM2Error" in kinds
    assert "platform=win32: expected Linux or macOS" in told
    assert "WSL 2" in told


def test_commands_say_it_on_windows(port: int) -> None:
    done = run("win32", "-c", COMMANDS, uri_of(port))
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert len(told) == 8
    for code, text in told:
        assert code == 1
        assert text.startswith("Error: platform=win32: expected Linux or macOS")
        assert len(text.splitlines()) == 1


def test_a_command_says_it_on_windows_and_ends(port: int) -> None:
    done = run("win32", "fjm2", "pub", "t", "x", "--uri", uri_of(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: platform=win32: expected Linux or macOS")


def test_the_doctor_says_it_on_windows(port: int) -> None:
    done = run("win32", "fjm2", "doctor", "--json", "--uri", uri_of(port))
    assert (done.returncode, done.stderr) == (2, "")
    problems = [one["problem"] for one in json.loads(done.stdout)["findings"] if one["verdict"] == "fault"]
    assert problems == ["no_recvmsg"]


@pytest.mark.parametrize("program", ["fjm2d", "fjm2admin", "fjm2bench"])
def test_services_say_it_on_windows(program: str, tmp_path: Path) -> None:
    words = ("run", "--config", str(tmp_path / "none.toml")) if program != "fjm2bench" else ("scale",)
    done = run("win32", program, *words)
    assert done.returncode != 0
    assert done.stderr.startswith("Error: ")
    assert "Linux or macOS" in done.stderr
    assert len(done.stderr.splitlines()) == 1
