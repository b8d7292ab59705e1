"""Everything that the durable consumers of a process hear on a bus, passed to the clients of its connections."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from fjm2.base.ledger import Ledger
from fjm2.bus.ledgers.ledger_gate import LedgerGate
from fjm2.bus.ledgers.ledger_tap import LedgerTap
from fjm2.bus.ledgers.replay_listener import ReplayListener
from fjm2.cell.wire.kinds import Kind
from fjm2.messages.destination import Destination
from fjm2.messages.frame import Frame, frame_alone

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus

    from ..sends.cell_driver import CellDriver, LedgerOwner


class Hearing(Protocol):
    """A client that hears a cell and numbered frames. It does what follows from them in `settle`."""

    @property
    def hashes(self) -> frozenset[int]:
        """Hashes of the topics that it consumes from."""

    def hear_command(self, node_id: int, content: bytes, now: float) -> None: ...
    def hear_frames(self, frame_hash: int, ledger: Ledger, first: int, frames: list[Frame], now: float) -> None: ...
    def hear_others(self, ledger: Ledger, first: int, count: int, now: float) -> None: ...
    def hear_entry(self, ledger: Ledger, index: int, data: bytes, now: float) -> None: ...
    def settle(self) -> None: ...


class DurableHub:
    """Hears a bus while there are clients. Implements `CellListener` and `LedgerHearer`."""

    def __init__(self, bus: "Bus", driver: "CellDriver") -> None:
        self.driver: Final = driver
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._clients: list[Hearing] = []
        self._wanted: frozenset[int] = frozenset()
        self._tap = LedgerTap(self, self._settle_soon)
        self._replays = ReplayListener(bus.config, lambda _, frames: self._tap.take(frames), lambda: True)
        self._is_settling = False

    def add(self, client: Hearing) -> None:
        """Let a client hear the bus."""
        if not self._clients:
            self._bus.lanes.signals.hear_commands(int(Kind.CATCH_UP_PAGE), self.hear_command)
            self._bus.router.add_tap(self._tap)
            self.driver.listener = self
            for gate in self.driver.gates:
                self.note_gate(gate)
        self._clients.append(client)
        self.want()

    async def remove(self, client: Hearing) -> None:
        """Let a client hear nothing more."""
        self._clients.remove(client)
        self.want()
        if not self._clients:
            self._bus.lanes.signals.hear_commands(int(Kind.CATCH_UP_PAGE), None)
            self._bus.router.remove_tap(self._tap)
            self.driver.listener = None
            for gate in self.driver.gates:
                gate.on_numbered = None
            await self._replays.close()

    def want(self) -> None:
        """Find out anew which topics are consumed from."""
        self._wanted = frozenset[int]().union(*(client.hashes for client in self._clients))
        self._tap.want(self._wanted)

    def listen_to_replays(self) -> None:
        """Hear what keepers send to those who catch up, for a while."""
        self._replays.listen()

    def note_gate(self, gate: "LedgerGate | LedgerOwner") -> None:
        """Hear what a connection of this process sends: the network does not bring it back."""
        gate.on_numbered = self._hear_own

    # Input.

    def hear_command(self, node_id: int, content: bytes) -> None:
        """Take a heartbeat, or a page, after what was heard before it."""
        self._tap.take_gathered()
        now = self._loop.time()
        self._tell(lambda client: client.hear_command(node_id, content, now))

    def _hear_own(self, destination: Destination, ledger: Ledger, first: int, frames: list[bytes]) -> None:
        if destination.frame_hash in self._wanted:
            self.receive_frames(destination.frame_hash, ledger, first, [frame_alone(frame) for frame in frames])
        else:
            self.receive_others(ledger, first, len(frames))

    def receive_frames(self, frame_hash: int, ledger: Ledger, first: int, frames: list[Frame]) -> None:
        now = self._loop.time()
        self._tell(lambda client: client.hear_frames(frame_hash, ledger, first, frames, now))

    def receive_others(self, ledger: Ledger, first: int, count: int) -> None:
        now = self._loop.time()
        self._tell(lambda client: client.hear_others(ledger, first, count, now))

    def receive_entry(self, ledger: Ledger, index: int, data: bytes) -> None:
        now = self._loop.time()
        self._tell(lambda client: client.hear_entry(ledger, index, data, now))

    def _tell(self, act: Callable[[Hearing], None]) -> None:
        for client in self._clients:
            act(client)
        self._settle_soon()

    def _settle_soon(self) -> None:
        if not self._is_settling:
            self._is_settling = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._tap.take_gathered()
        self._is_settling = False
        for client in list(self._clients):
            client.settle()
