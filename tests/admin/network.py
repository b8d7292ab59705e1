"""A simulated network for tests of the service's page: gateways that report traffic between each other."""

import contextlib
import math
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
from running import Gateway, link, make_token, sample

NAMES = ("Paris", "Rome", "Oslo", "Lisbon")


class Network:
    """Simulated gateways, each with a link to every other. They report measurements until they are silenced."""

    def __init__(self, url: str, data: Path, names: tuple[str, ...] = NAMES, every_s: float = 0.5) -> None:
        self._url = url
        self._data = data
        self._names = names
        self._every_s = every_s
        self._stack = ExitStack()
        self._stopped = threading.Event()
        self._silent: set[str] = set()
        self.gateways: dict[str, Gateway] = {}

    def __enter__(self) -> Self:
        for number, name in enumerate(self._names):
            gateway = Gateway(
                self._url,
                make_token(self._data, f"token {number}", "--node", name),
                name,
                lan=f"LAN {number + 1}",
                endpoints=[f"198.51.100.{number + 1}:5741"],
            )
            self.gateways[name] = self._stack.enter_context(gateway)
        thread = threading.Thread(target=self._talk)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(self._stopped.set)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def silence(self, name: str) -> None:
        """Stop all reports of a gateway, as if it had been killed."""
        self._silent.add(name)

    def _talk(self) -> None:
        turn, moved = 0, dict.fromkeys(self.gateways, 0)
        while not self._stopped.wait(self._every_s):
            turn += 1
            for number, (name, gateway) in enumerate(self.gateways.items()):
                if name not in self._silent:
                    moved[name] += int(self._every_s * 1e6 * (2 + number + math.sin(turn / 8 + number)))
                    # A gateway continues while the service is down.
                    with contextlib.suppress(httpx.TransportError):
                        self._tell(gateway, self._sample(name, turn, moved[name]))

    def _tell(self, gateway: Gateway, measured: dict[str, object]) -> None:
        if gateway.id or gateway.register().status_code == 200:
            gateway.heartbeat(metrics=measured)

    def _sample(self, name: str, turn: int, moved: int) -> dict[str, object]:
        links = []
        for number, other in enumerate(self.gateways.values()):
            if other.id and other is not self.gateways[name]:
                loss = 0.03 + 0.01 * math.sin(turn / 3) if {name, self._names[number]} == {"Oslo", "Rome"} else 0.0004
                rtt_ms = 18 + 9 * number + 2 * math.sin(turn / 5)
                links.append(
                    link(
                        other.id,
                        moved * (number + 2) // 3,
                        moved,
                        rtt_ms=rtt_ms,
                        loss=loss,
                        queue_bytes=4200,
                        is_up=self._names[number] not in self._silent,
                        rate_bps=20e6 * (number + 1),
                        drops={"queue_full": 3 * turn if name == "Rome" else 0},
                    )
                )
        return sample(100 + turn * self._every_s, *links) | {"is_forwarder": name != "Oslo"}
