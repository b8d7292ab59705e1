"""Sites for tests: LANs of hosts and gateways in separate namespaces, joined by a switch that acts as the Internet."""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "system"))

from netns import Namespace, Network, skip_where_impossible

from fjm2d.keys import KeyPair

ROOT = Path(__file__).parents[2]
JMS_PEER = ROOT / "tests" / "system" / "jms_peer.py"
GROUP, PORT = "239.192.57.40", 5740
URI = f"fjm2://{GROUP}:{PORT}?interface=lan0"
WAN_PORT = 5741
DEADLINE_S = 30.0


def until(holds: Callable[[], Any], what: Callable[[], str], deadline_s: float = DEADLINE_S) -> Any:
    """Call `holds` until it returns a true value, and return this value.

    Fail with the text of `what` if the deadline passes first.
    """
    deadline = time.monotonic() + deadline_s
    while not (found := holds()):
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)
    return found


class Gateway:
    """A gateway process in a namespace, with its own key, settings file and log."""

    def __init__(self, namespace: Namespace, folder: Path, name: str, wan_host: str, lan: str = "") -> None:
        self.namespace = namespace
        self.name = name
        self.wan_host = wan_host
        self.lan = lan
        self.keys = KeyPair.generate()
        self.folder = folder / name
        self.folder.mkdir()
        self.keys.save(self.folder / "key")
        self.file = self.folder / "fjm2d.toml"
        self.process: subprocess.Popen[str] | None = None
        self._log = self.folder / "log"

    def as_peer(self, *, is_found: bool = True) -> str:
        """Return this gateway's `[[peer]]` table for the settings of other gateways.

        It contains the gateway's endpoint if `is_found`.
        """
        place = f'["{self.wan_host}:{WAN_PORT}"]' if is_found else "[]"
        return (
            f'[[peer]]\nname = "{self.name}"\npublic_key = "{self.keys.public.text}"\n'
            f'endpoints = {place}\nlan = "{self.lan}"\n'
        )

    def configure(self, *more: str) -> None:
        self.file.write_text(
            f"""
name = "{self.name}"
key_file = "{self.folder / "key"}"
state_directory = "{self.folder}"
[wan]
rate = "none"
[lan]
interface = "lan0"
label = "{self.lan}"
[log]
format = "json"
[[group]]
address = "{GROUP}:{PORT}"
"""
            + "\n".join(more)
        )

    def start(self) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                (
                    "ip",
                    "netns",
                    "exec",
                    self.namespace.name,
                    sys.executable,
                    "-m",
                    "fjm2d",
                    "run",
                    "--config",
                    self.file,
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                cwd=ROOT,
            )

    @property
    def running(self) -> subprocess.Popen[str]:
        assert self.process is not None
        return self.process

    def send_signal(self, number: signal.Signals) -> None:
        self.running.send_signal(number)

    def kill(self) -> None:
        """Kill the process. As in a crash, the gateway sends no goodbye."""
        self.running.kill()
        self.running.wait()

    def stop(self) -> int:
        self.running.terminate()
        return self.running.wait(10)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log records of one kind of event."""
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def get(self, path: str) -> tuple[int, str]:
        """Return the status code and body that the gateway's status server answers; (0, "") if it does not answer."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with self.namespace.entered():
            try:
                with opener.open(f"http://127.0.0.1:5743{path}", timeout=5) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()
            except OSError:
                return 0, ""

    def status(self) -> dict[str, Any]:
        """Return the content of the gateway's `/status`, or an empty dict if it does not answer."""
        code, body = self.get("/status")
        return json.loads(body) if code == 200 else {}

    def wanted_by(self) -> int:
        """Return the number of peers that want the first group of this gateway."""
        groups = self.status().get("groups", [])
        return len(groups[0]["wanted_by"]) if groups else 0

    def is_up(self, count: int = 1) -> bool:
        """Return True if at least `count` peers are connected and have reported that they are forwarders."""
        peers = self.status().get("peers", [])
        return sum(peer["state"] == "up" and peer["is_forwarder"] for peer in peers) >= count


class Peer:
    """A JMS publisher or subscriber in its own process."""

    def __init__(self, namespace: Namespace, *arguments: str, uri: str = URI) -> None:
        role, *rest = arguments
        self.process = namespace.start(sys.executable, str(JMS_PEER), role, uri, *rest)
        self.said: list[dict[str, Any]] = []
        """Reports that the process has printed so far."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.said.append(json.loads(line))

    def last(self, key: str) -> Any:
        """Return the value of a key in the newest report that has the key, or None."""
        return next((line[key] for line in reversed(self.said) if key in line), None)

    @property
    def received(self) -> int:
        return sum((self.last("received") or {}).values())

    @property
    def sent(self) -> int:
        return int(self.last("sent") or 0)

    @property
    def is_ready(self) -> bool:
        return bool(self.last("ready"))

    def faults(self) -> list[str]:
        return [line["fault"] for line in self.said if "fault" in line]

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def close(self) -> None:
        """Tell the process to close, and wait until it ends."""
        self.tell("close")
        until(lambda: self.process.poll() is not None, lambda: "it does not end")
        self._reader.join(DEADLINE_S)


class Admin:
    """The node-list service on its own host, which all gateways can reach."""

    HOST, PORT = "10.200.0.250", 8750

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self._namespace = namespace
        self._data = str(folder / "admin.sqlite")
        self._log = folder / "admin.log"
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.HOST}:{self.PORT}"

    def token(self, name: str) -> str:
        """Create a token for a gateway, and return its text."""
        command = (sys.executable, "-m", "fjm2admin", "token", "create", "--name", name, "--data", self._data)
        said = self._namespace.run(*command)
        return next(word for word in said.split() if word.startswith("fjm2_"))

    def start(self) -> None:
        command = (sys.executable, "-m", "fjm2admin", "run", "--data", self._data, "--host", self.HOST)
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                ("ip", "netns", "exec", self._namespace.name, *command), stdout=log, stderr=log, text=True, cwd=ROOT
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def log(self) -> str:
        return self._log.read_text()


class Internet:
    """A switch that acts as the Internet, and LANs that only their gateways connect to each other."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.folder = folder
        self.gateways: list[Gateway] = []
        self._switch = network.namespace()
        self._switch.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        self._switch.ip("link", "set", "br0", "up")

    def lan(self, name: str, hosts: int, gateways: int = 1, label: str = "") -> tuple[list[Namespace], list[Gateway]]:
        """Make a LAN, and return its hosts and its gateways. The gateways are called NAME1, NAME2, ..."""
        namespaces = [self.network.namespace() for _ in range(hosts + gateways)]
        self.network.switch(*namespaces, device="lan0")
        found = []
        for number, namespace in enumerate(namespaces[hosts:], 1):
            found.append(Gateway(namespace, self.folder, f"{name}{number}", self._join(namespace), label))
        self.gateways += found
        return namespaces[:hosts], found

    def _join(self, namespace: Namespace, host: str = "") -> str:
        number = len(self._switch.ip("-o", "link").splitlines())
        port = f"wan{number}"
        namespace.ip(*f"link add wan0 type veth peer name {port} netns {self._switch.name}".split())
        self._switch.ip(*f"link set {port} master br0 up".split())
        host = host or f"10.200.0.{number}"
        namespace.ip("address", "add", f"{host}/24", "dev", "wan0")
        namespace.ip("link", "set", "wan0", "up")
        return host

    def cut(self, gateway: Gateway, *, is_cut: bool) -> None:
        """Cut a gateway off from the Internet in both directions, or reconnect it. The gateway's own link stays up."""
        number = gateway.wan_host.rpartition(".")[2]
        self._switch.ip("link", "set", f"wan{number}", *(("nomaster",) if is_cut else ("master", "br0")))

    @cached_property
    def admin(self) -> Admin:
        """The node-list service, on its own host on the Internet."""
        namespace = self.network.namespace()
        self._join(namespace, Admin.HOST)
        return Admin(namespace, self.folder)

    def introduce_all(self, *more: str) -> None:
        """Configure every gateway with all other gateways as peers."""
        for gateway in self.gateways:
            others = (other.as_peer() for other in self.gateways if other is not gateway)
            gateway.configure(*more, *others)

    def start_all(self) -> None:
        for gateway in self.gateways:
            gateway.start()

    def close(self) -> None:
        for gateway in self.gateways:
            if gateway.process is not None and gateway.process.poll() is None:
                gateway.kill()
        if "admin" in self.__dict__:
            self.admin.kill()

    def logs(self) -> str:
        """Return the end of each gateway's log, for the messages of failed tests."""
        return "\n".join(f"--- {gateway.name}\n{gateway.log[-2000:]}" for gateway in self.gateways)


@contextmanager
def internet_here(folder: Path) -> Iterator[Internet]:
    """Yield an Internet without LANs, and remove it afterwards. Skip the test if namespaces cannot be made here."""
    skip_where_impossible("ip", "iptables", "sysctl")
    with Network() as network:
        made = Internet(network, folder)
        try:
            yield made
        finally:
            made.close()
