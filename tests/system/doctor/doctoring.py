"""`fjm2 doctor` as a process in a namespace, and its findings."""

import json
import os
import subprocess
import sys
from typing import Any

from netns import Namespace, Network

GROUP, PORT = "239.192.57.71", 5740
URI = f"fjm2://{GROUP}:{PORT}?interface=veth0"
FJM2 = (sys.executable, "-W", "error", "-m", "fjm2")
DEADLINE_S = 40.0


class Outcome:
    """The findings and the exit code of one run of the doctor."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        assert "Traceback" not in done.stderr, done.stderr
        assert done.stdout, done.stderr
        told = json.loads(done.stdout)
        self.code = done.returncode
        self.findings: list[dict[str, Any]] = told["findings"]
        assert told["exit_code"] == self.code

    def problems(self, verdict: str = "") -> set[str]:
        return {one["problem"] for one in self.findings if one["problem"] and verdict in ("", one["verdict"])}

    def of(self, problem: str) -> dict[str, Any]:
        found = [one for one in self.findings if one["problem"] == problem]
        assert found, f"{problem} is not among {self.problems()}: {self.findings}"
        return found[0]

    def check(self, name: str) -> dict[str, Any]:
        return next(one for one in self.findings if one["check"] == name)


def doctor(host: Namespace, *arguments: str, uri: str = URI, env: dict[str, str] | None = None) -> Outcome:
    argv = ("ip", "netns", "exec", host.name, *FJM2, "doctor", "--json", "--uri", uri, *arguments)
    environment = {name: value for name, value in os.environ.items() if name != "FJM2_NO_GSO"} | (env or {})
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, env=environment, check=False)
    return Outcome(done)


def unprivileged(host: Namespace) -> Outcome:
    """Run the doctor on a host as root without the capabilities for networks."""
    drop = "-net_admin,-net_raw"
    prefix = ("setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}")
    argv = ("ip", "netns", "exec", host.name, *prefix, *FJM2, "doctor", "--json", "--uri", URI)
    return Outcome(subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False))


def two_hosts(network: Network) -> tuple[Namespace, Namespace]:
    """Make two hosts on a switch. Their addresses are 10.57.1.1 and 10.57.1.2, both on the interface veth0."""
    hosts = network.namespace(), network.namespace()
    network.switch(*hosts)
    return hosts


def subscriber(host: Namespace, interface: str, group: str = GROUP) -> subprocess.Popen[str]:
    """Start a subscriber of a bus, and wait until it listens. It announces itself on the bus."""
    uri = f"fjm2://{group}:{PORT}?interface={interface}"
    process = host.start(*FJM2, "sub", "news", "--uri", uri, "--client-id", "desk-7")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("listening on")
    return process


def listen(host: Namespace, uri: str = URI) -> tuple[subprocess.Popen[str], str]:
    """Start `fjm2 doctor --listen`. Return its process, and the address that it prints."""
    process = host.start(*FJM2, "doctor", "--listen", "--uri", uri, "--timeout", str(DEADLINE_S))
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("listening in "), line
    return process, line.split()[-1]
