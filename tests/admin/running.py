"""Helpers that run the node-list service in its own process, and clients that act as gateways."""

import base64
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx
from click.testing import CliRunner

from fjm2admin.cli import main

ROOT = Path(__file__).parents[2]
START_S = 30.0


def command(data: Path, *arguments: str) -> list[str]:
    """Return the command line of `fjm2admin` with these arguments. Settings are passed in environment variables."""
    return [sys.executable, "-m", "fjm2admin", *arguments, "--data", str(data)]


def environment(**settings: object) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FJM2ADMIN_")}
    return clean | {f"FJM2ADMIN_{name.upper()}": str(value) for name, value in settings.items()}


def run(data: Path, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run an `fjm2admin` command to its end. Return its exit code and output."""
    return subprocess.run(
        command(data, *arguments),
        cwd=ROOT,
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )


def make_token(data: Path, name: str, *options: str) -> str:
    """Create a token with `fjm2admin token create`, and return its text.

    The command runs in this process: nearly all tests need a token, and starting a process takes time.
    """
    settings = {key: None for key in os.environ if key.startswith("FJM2ADMIN_")}
    done = CliRunner(env=settings).invoke(main, ["token", "create", "--name", name, *options, "--data", str(data)])
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def until(is_so: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Wait until a condition holds, and return the number of seconds waited. Fail after `timeout_s`."""
    began_at = time.monotonic()
    while not is_so():
        assert time.monotonic() - began_at < timeout_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - began_at


class Admin:
    """The node-list service: `fjm2admin run` on a free port of this host."""

    def __init__(self, data: Path, **settings: object) -> None:
        self.data = data
        self._settings = {"port": 0, "advert_port": 0, **settings}
        self.lines: list[str] = []
        self.process: subprocess.Popen[str]
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def start(self) -> None:
        self.process = subprocess.Popen(
            command(self.data, "run"),
            cwd=ROOT,
            env=environment(**self._settings),
            stderr=subprocess.PIPE,
            text=True,
        )
        said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, said), daemon=True).start()
        while True:
            line = said.get(timeout=START_S)
            assert line, "\n".join(self.lines)
            if line.startswith("Node list and page at "):
                self.url = line.split()[-1].rstrip("/")
                return

    def _read(self, process: subprocess.Popen[str], said: queue.Queue[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.lines.append(line.rstrip())
            said.put(line)
        said.put("")

    def again(self) -> None:
        """Start the service again on the port that it had before."""
        self._settings["port"] = self.port
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.start()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """Kill the service with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """End the service with a signal. Return its exit code and the seconds until its process ended."""
        began_at = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(15)
        return code, time.monotonic() - began_at

    def token(self, name: str, *options: str) -> str:
        """Create a token for this service, and return its text."""
        return make_token(self.data, name, *options)

    def until_status(self, token: str, status: int) -> None:
        with Gateway(self.url, token) as asker:
            until(lambda: asker.http.get("/api/v1/nodes").status_code == status, 5, "token taken over")


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


class Gateway:
    """A client of the service that acts as one gateway."""

    def __init__(self, url: str, token: str, name: str = "paris", **more: Any) -> None:
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=40)
        self.profile: dict[str, Any] = {
            "name": name,
            "public_key": new_key(),
            "endpoints": ["127.0.0.1:5741"],
            "groups": ["239.192.57.40:5740"],
            "lan": f"lan {name}",
            "version": "0.1.0",
            **more,
        }
        self.id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def register(self) -> httpx.Response:
        answer = self.http.post("/api/v1/nodes", json=self.profile)
        if answer.is_success:
            self.id = answer.json()["id"]
        return answer

    def heartbeat(self, **content: Any) -> httpx.Response:
        return self.http.post(f"/api/v1/nodes/{self.id}/heartbeat", json=content)

    def upload(self, *samples: dict[str, Any]) -> httpx.Response:
        return self.http.post(f"/api/v1/nodes/{self.id}/metrics", json={"samples": samples})

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the entries of the node list, by the nodes' names."""
        answer = self.http.get("/api/v1/nodes")
        assert answer.status_code == 200, answer.text
        return {node["name"]: node for node in answer.json()["nodes"]}

    def until_listed(self, is_so: Callable[[dict[str, dict[str, Any]]], bool], timeout_s: float = 5) -> float:
        """Wait until a condition on the node list holds, and return the number of seconds waited.

        The condition counts as false if it names a node that is not in the list.
        """

        def is_listed_so() -> bool:
            try:
                return is_so(self.nodes())
            except KeyError:
                return False

        return until(is_listed_so, timeout_s, "listed so")


def sample(uptime_s: float, *links: dict[str, Any]) -> dict[str, Any]:
    return {"uptime_s": uptime_s, "links": list(links)}


def link(peer: str, bytes_in: int, bytes_out: int, **more: Any) -> dict[str, Any]:
    return {"peer": peer, "bytes_in": bytes_in, "bytes_out": bytes_out, "rtt_ms": 20.0, "loss": 0.0, **more}
