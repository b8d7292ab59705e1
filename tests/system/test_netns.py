"""Tests of the private networks that other tests use."""

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from netns import CommandError, Network, run

pytestmark = pytest.mark.root


def test_a_failed_command_is_reported_with_its_output(network: Network) -> None:
    host = network.namespace()
    with pytest.raises(CommandError, match=rf"`ip -n {host.name} link delete eth77` ended with 1: Cannot find device"):
        host.ip("link", "delete", "eth77")
    with pytest.raises(CommandError, match="`no-such-program`: there is no no-such-program"):
        run("no-such-program")


def test_everything_is_gone_after_a_failure(require_root_and_netns: None) -> None:  # noqa: ARG001
    class DeliberateError(Exception):
        pass

    processes: list[subprocess.Popen[str]] = []
    names: list[str] = []

    def fail(network: Network) -> None:
        host = network.namespace()
        network.switch(host)
        names.append(host.name)
        processes.append(host.start("sleep", "60"))
        assert host.name in run("ip", "netns", "list")
        raise DeliberateError

    with pytest.raises(DeliberateError), Network() as network:
        fail(network)
    assert processes[0].returncode is not None
    assert names[0] not in run("ip", "netns", "list")


def test_processes_run_inside(network: Network) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    process = left.start("ip", "-br", "address", "show", "veth0")
    assert "10.57.1.1/24" in process.communicate(timeout=5)[0]
    assert "10.57.1.2/24" in right.run("ip", "-br", "address", "show", "veth0")
    with left.entered():
        assert "10.57.1.1/24" in run("ip", "-br", "address", "show", "veth0")
    assert "10.57.1" not in run("ip", "-br", "address")


@contextmanager
def inside_for_a_minute(name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a namespace, and wait until it is inside: on a busy machine `ip` may need a moment."""
    process = subprocess.Popen(["ip", "netns", "exec", name, "sleep", "60"])
    try:
        while str(process.pid) not in run("ip", "netns", "pids", name).split():
            assert process.poll() is None
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait()


def test_leftovers_of_a_killed_run_are_removed(require_root_and_netns: None) -> None:  # noqa: ARG001
    gone = subprocess.Popen(["true"])
    gone.wait()
    name = f"fjm2-{gone.pid}-1"
    run("ip", "netns", "add", name)
    with inside_for_a_minute(name) as inside, Network() as network:
        assert inside.wait(5) == -signal.SIGKILL
        assert name not in run("ip", "netns", "list")
        own = network.namespace().name
        with Network():
            assert own in run("ip", "netns", "list")
