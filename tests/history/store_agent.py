"""A program that has messages stored by keepers, without the JMS API, and writes down which of them are.

    python store_agent.py URI LOG NAME publish [SETTING=VALUE ...]

It obeys the commands of `cell_agent.py`. If nothing is confirmed for some seconds, it gives up what is in flight, whose
outcome is in doubt, and goes on under another name: keepers may lack a message for ever that a kill took from them.
"""

import asyncio
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "system" / name) for name in ("keeper", "faults")]

from agent import Log  # noqa: E402
from cell_agent import CellSettings, body_of, commands  # noqa: E402
from keepers import Writer  # noqa: E402

from fjm2.bus.bus import BUS_DEFAULTS, Bus  # noqa: E402
from fjm2.cell.wire.stored import STORED_TYPE  # noqa: E402
from fjm2.uri import BusConfig  # noqa: E402

_LANE = 4
_TICK_S = 0.005
_ASK_S = 0.02
_IN_FLIGHT_MAX = 256
_PATIENCE_S = 3.0


class StoreAgent:
    """Writes through one bus after the other."""

    def __init__(self, uri: str, name: str, settings: CellSettings, log: Log) -> None:
        self._uri, self._name, self._settings, self._log = uri, name, settings, log
        self._lives = 0
        self._in_flight: set[tuple[str, int]] = set()
        """Names and numbers of messages whose outcome is open."""
        self._confirmed_at = 0.0
        self.may_send = asyncio.Event()
        self.is_closing = False

    async def run(self) -> None:
        while not self.is_closing:
            bus = await Bus.open(BusConfig.from_uri(self._uri, BUS_DEFAULTS))
            try:
                self._lives += 1
                name = f"{self._name}.{self._lives}"
                bus.announce(self._lives, name, frozenset())
                await self._write(Writer(bus), name)
            finally:
                await bus.close(bus.close_deadline(0.1, 0.1))

    async def _write(self, writer: Writer, name: str) -> None:
        """Write until nothing is confirmed any more."""
        loop = asyncio.get_running_loop()
        self._in_flight.clear()
        self._confirmed_at = loop.time()
        number, due, asked_at = 0, 0.0, 0.0
        while not self.is_closing:
            if not self._in_flight:
                self._confirmed_at = loop.time()
            elif loop.time() - self._confirmed_at > _PATIENCE_S:
                return
            if loop.time() - asked_at > _ASK_S and writer.tracker.poll_request(loop.time()):
                asked_at = loop.time()
                writer.bus.lanes.of_priority[_LANE].session.request_acks(STORED_TYPE)
            due = min(due + self._settings.per_s * _TICK_S, self._settings.per_s)
            while due >= 1 and len(self._in_flight) < _IN_FLIGHT_MAX and self.may_send.is_set():
                number += 1
                due -= 1
                self._send(writer, name, number)
            await asyncio.sleep(_TICK_S)

    def _send(self, writer: Writer, name: str, number: int) -> None:
        self._log.add(event="send", producer=name, lane=_LANE, number=number)
        message = name, number
        self._in_flight.add(message)

        def complete(_: object) -> None:
            if message in self._in_flight:
                self._in_flight.discard(message)
                self._confirmed_at = asyncio.get_running_loop().time()
                self._log.add(event="sent", producer=name, lane=_LANE, number=number)

        writer.send(body_of(name, _LANE, number)).add_done_callback(complete)

    async def rest(self) -> None:
        """Stop to send, and wait until everything is stored or given up."""
        self.may_send.clear()
        while self._in_flight:  # noqa: ASYNC110
            await asyncio.sleep(_TICK_S)


async def main(uri: str, path: str, name: str, _role: str, *texts: str) -> None:
    agent = StoreAgent(uri, name, CellSettings.of(list(texts)), Log(path))
    task = asyncio.create_task(agent.run())
    print("ready", flush=True)
    async for line in commands():
        if line == "begin":
            agent.may_send.set()
        elif line == "pause":
            await agent.rest()
        print(line, flush=True)
    agent.is_closing = True
    await task


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
