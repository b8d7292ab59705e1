"""Gateways and the node-list service of the lab: their files, processes and status."""

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from internet import LAN_DEVICE, GatewayHost, Internet
from netns import Namespace
from peers import READY_S
from programs import Program

from fjm2d.keys import KeyPair

GROUP = ("239.192.57.40", 5740)
WAN_PORT, STATUS_PORT = 5741, 5743
ADMIN_PORT = 8750
_HTTP_S = 5.0
_RUN = ("-m", "fjm2d", "run", "--config")
_METRIC = re.compile(r"([a-z_0-9]+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')

Labels = dict[str, str]


def uri(**settings: object) -> str:
    """Return the URI of the bus, which is the same on every LAN."""
    return f"fjm2://{GROUP[0]}:{GROUP[1]}?" + "&".join(
        f"{k}={v}" for k, v in ({"interface": LAN_DEVICE} | settings).items()
    )


class Gateway:
    """A gateway on its host, with its own key and configuration.

    It is a context manager: the gateway runs for the duration of the block.
    """

    def __init__(self, host: GatewayHost, lan: str, folder: Path, rate: str = "none") -> None:
        self.host = host
        self.lan = lan
        self.rate = rate
        self._folder = folder / host.name
        self._folder.mkdir(parents=True)
        self.keys = KeyPair.generate()
        self.keys.save(self._folder / "key")
        self.config_path = self._folder / "fjm2d.toml"
        self._program: Program | None = None
        self._before: list[str] = []

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def wan(self) -> tuple[str, int]:
        """Address at which other gateways reach this one."""
        return self.host.address, WAN_PORT

    def know_peers(self, peers: Iterable[Self], *, has_endpoints: bool = True) -> None:
        """Configure peers, but no node-list service. Peers without endpoints have to call this gateway."""
        tables = (_peer_table(peer, has_endpoints) for peer in peers)
        self.config_path.write_text(self._settings() + "".join(tables))

    def know_admin(self, address: str, token: str) -> None:
        """Configure no peers: only the address of the node-list service, and a token."""
        admin = f'[admin]\nurl = "http://{address}:{ADMIN_PORT}"\ntoken = "{token}"\n'
        self.config_path.write_text(self._settings() + admin)

    def _settings(self) -> str:
        place = f"{self.host.address}:{WAN_PORT}"
        return f"""\
name = "{self.name}"
key_file = "{self._folder / "key"}"
state_directory = "{self._folder}"
[wan]
listen = ["0.0.0.0:{WAN_PORT}"]
endpoints = ["{place}"]
rate = "{self.rate}"
[lan]
interface = "{LAN_DEVICE}"
label = "{self.lan}"
[status]
listen = "127.0.0.1:{STATUS_PORT}"
[log]
format = "text"
[[group]]
address = "{GROUP[0]}:{GROUP[1]}"
"""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            error.add_note(str(self))
        if self._program is not None:
            self._program.close()

    def __str__(self) -> str:
        return f"gateway {self.name}: {self._program}"

    def start(self) -> None:
        self._program = Program(self.host.namespace, sys.executable, *_RUN, self.config_path)

    def restart(self) -> None:
        """Start the gateway again after it was killed."""
        self.close()
        self.start()

    def close(self) -> None:
        if self._program is not None:
            self._before += self._program.lines
            self._program.close()
            self._program = None

    @property
    def program(self) -> Program:
        assert self._program is not None
        return self._program

    def kill(self) -> None:
        self.program.kill()

    def reload(self) -> None:
        self.program.signal(signal.SIGHUP)

    def get(self, path: str) -> str:
        """Return the answer of the gateway's status server to a path. Raise OSError if there is none."""
        return _get(self.host.namespace, "127.0.0.1", STATUS_PORT, path)

    def status(self) -> Any:
        return json.loads(self.get("/status"))

    def metrics(self) -> dict[str, list[tuple[Labels, float]]]:
        """Return the gateway's metrics: the labels and value of each sample, by the name of the metric."""
        found: dict[str, list[tuple[Labels, float]]] = {}
        for line in self.get("/metrics").splitlines():
            match = _METRIC.fullmatch(line)
            if match is not None:
                found.setdefault(match[1], []).append((dict(_LABEL.findall(match[2] or "")), float(match[3])))
        return found

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's values over all samples that have the given labels."""
        return sum(value for found, value in self.metrics().get(name, ()) if labels.items() <= found.items())

    def wait_until_up(self, count: int, timeout_s: float = READY_S) -> None:
        """Wait until the gateway has connected to `count` peers since its start."""
        self.program.wait_until(
            lambda: sum("peer_up" in line for line in self.program.lines) >= count or None, f"{count} peers", timeout_s
        )


def _peer_table(peer: Gateway, has_endpoints: bool) -> str:
    endpoints = f'"{peer.host.address}:{WAN_PORT}"' if has_endpoints else ""
    return f"""\
[[peer]]
name = "{peer.name}"
public_key = "{peer.keys.public.text}"
endpoints = [{endpoints}]
lan = "{peer.lan}"
"""


@contextlib.contextmanager
def static_gateways(lab: Internet, folder: Path, names: str, *, rate: str = "none") -> Iterator[dict[str, Gateway]]:
    """Run the named gateways, separated by blanks, as peers of each other. Wait until they are connected."""
    made = make_gateways(lab, folder, names, rate=rate)
    for gateway in made.values():
        gateway.know_peers(other for other in made.values() if other is not gateway)
    with contextlib.ExitStack() as stack:
        for gateway in made.values():
            stack.enter_context(gateway)
        for gateway in made.values():
            gateway.wait_until_up(sum(other.lan != gateway.lan for other in made.values()))
        yield made


def make_gateways(lab: Internet, folder: Path, names: str, *, rate: str = "none") -> dict[str, Gateway]:
    """Return the named gateways. They are not running, and have no configuration yet."""
    made = {}
    for site in lab.sites.values():
        for host in site.gateways:
            if host.name in names.split():
                made[host.name] = Gateway(host, site.name, folder, rate)
    return made


class Admin:
    """The node-list service on its host. It is a context manager: the service runs for the duration of the block."""

    def __init__(self, lab: Internet, folder: Path, **settings: object) -> None:
        self._namespace = lab.admin
        self.address = lab.admin_address
        self._data = folder / "admin.sqlite"
        self._environment = {f"FJM2ADMIN_{name.upper()}": str(value) for name, value in settings.items()}
        self._program: Program | None = None

    def token(self, name: str) -> str:
        """Create a token for the gateway with this name, and return the token's text."""
        command = ("token", "create", "--name", name, "--node", name, "--data", str(self._data))
        done = subprocess.run((sys.executable, "-m", "fjm2admin", *command), capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            error.add_note(f"admin: {self._program}")
        self.close()

    def start(self) -> None:
        command = ("run", "--host", self.address, "--port", ADMIN_PORT, "--data", self._data)
        environment = {"FJM2ADMIN_PAGE": "open"} | self._environment
        self._program = Program(self._namespace, sys.executable, "-m", "fjm2admin", *command, environment=environment)
        self._program.wait_for_line("Node list and page at")

    def close(self) -> None:
        if self._program is not None:
            self._program.close()
            self._program = None

    def kill(self) -> None:
        assert self._program is not None
        self._program.kill()
        self.close()

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the entries of the node list, by the nodes' names."""
        found = json.loads(_get(self._namespace, self.address, ADMIN_PORT, "/api/v1/nodes"))
        return {node["name"]: node for node in found["nodes"]}


def _get(namespace: Namespace, host: str, port: int, path: str) -> str:
    with namespace.entered():
        connection = http.client.HTTPConnection(host, port, timeout=_HTTP_S)
        connection.connect()
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
    if answer.status != http.client.OK:
        raise OSError(f"{path}: {answer.status} {text}")
    return text
