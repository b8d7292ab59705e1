"""Sends what a plan lists into the cell of a bus, by an outbox: each message once, however often this is killed."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from fjm2.base.errors import ConfigError, JournalError
from fjm2.base.quantities import counted
from fjm2.base.ranges import RangeSet
from fjm2.bus.bus import BUS_DEFAULTS, Bus
from fjm2.bus.config import BusConfig
from fjm2.jms.sends.cell_driver import CellDriver
from fjm2.jms.sends.outbox_sending import OutboxSending
from fjm2.jms.settings import ClientSettings
from fjm2.messages.destination import Topic
from fjm2.messages.errors import JMSError, ResourceAllocationError
from fjm2.outbox.drive.directory import OpenOutbox, open_outbox
from fjm2.outbox.drive.disk_outbox import DiskOutbox
from fjm2.store.disk import Disk
from fjm2.store.journal import Journal

from .frames import adopted_frame
from .plan import LANES, OUTBOX, Part, Plan, read_plan, write_plan
from .present_cell import check_cell
from .survey import Span, Survey

_OUTBOX_BYTES: Final = 256 << 20
"""Size of the outbox: it has room for the longest message beside what is on its way."""
_FLYING_BYTES_MAX: Final = 64 << 20
"""Bytes in the outbox from which on nothing is added until keepers have stored some."""
_READ_BYTES: Final = 1 << 20
_LOOK_S: Final = 0.02
STILL_S: Final = 30.0
"""Time without progress after which an adoption ends: the next one goes on."""
_NAME: Final = "keep-adopt"
"""Client id under which others see an adoption."""

OnProgress = Callable[[int, int], None]
"""Called with the number of messages that keepers have stored, and of all that this run sends."""


class Adopted(NamedTuple):
    """Result of an adoption."""

    messages: int
    """Messages that keepers have stored, those of earlier runs included."""
    added: int
    """Messages that this run has added to them."""
    unwanted: int
    """Messages that were left out, because the present cell has no durable subscription to their topics."""
    unwanted_topics: tuple[str, ...]


def make_folder(folder: Path) -> None:
    """Make the folder of an adoption, if it is missing. Raise ConfigError if that is not possible."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: {error.strerror}: expected a folder that remembers what was sent; name another one by --journal"
        ) from error


async def adopt(
    survey: Survey, journal: Journal, disk: Disk, folder: Path, uri: str, on_progress: OnProgress
) -> Adopted:
    """Send what was found in a store into the cell of a bus. Return when keepers have all of it on disk.

    `folder` has the journal of the adoption, or gets it. Raise ConfigError if it cannot be used, JournalError if the
    store cannot be read, and JMSError if no cell takes the messages.
    """
    config = BusConfig.from_uri(uri, BUS_DEFAULTS)
    await check_cell(config, survey.cell_id)
    await asyncio.to_thread(make_folder, folder)
    # First of all, as it has the lock: nobody else changes the plan.
    opened = await asyncio.to_thread(open_outbox, folder / OUTBOX, _OUTBOX_BYTES)
    accepted = [opened.recovered[lane].accepted for lane in range(LANES)]
    async with _sending(opened, folder / OUTBOX, config) as (outbox, driver):
        before = read_plan(folder, survey.cell_id)
        for lane, count in enumerate(accepted):
            if count > before.count(lane):
                raise ResourceAllocationError(
                    f"{folder}: its outbox has {counted(count, 'message')} of lane {lane}, and its plan "
                    f"{before.count(lane)}: expected the plan to have them all; restore the folder"
                )
        stored = {each for each, topic in survey.topics.items() if driver.keepers_of(Topic(topic.name))}
        plan = before.extended(accepted, _parts(span for span in survey.spans if span.frame_hash in stored))
        left_out = [span for span in survey.spans if span.frame_hash not in stored]
        await asyncio.to_thread(write_plan, folder, plan)
        flight = _Flight(outbox, opened, plan, accepted, on_progress)
        for lane, count in enumerate(accepted):
            for part in plan.within(lane, count, plan.count(lane)):
                await flight.send(lane, part, journal, disk)
        await flight.land()
        unwanted = before.extended(accepted, _parts(left_out)).total - sum(accepted)
        names = sorted({survey.topics[span.frame_hash].name for span in left_out}) if unwanted else ()
        return Adopted(plan.total, plan.total - sum(accepted), unwanted, tuple(names))


def _parts(spans: Iterable[Span]) -> Iterator[Part]:
    return (Part(span.ledger, span.first, span.end) for span in spans)


@contextlib.asynccontextmanager
async def _sending(
    opened: OpenOutbox, directory: Path, config: BusConfig
) -> AsyncIterator[tuple[DiskOutbox, CellDriver]]:
    """Yield an outbox that sends, and what knows the present cell."""
    settings = ClientSettings(outbox=directory)
    outbox = DiskOutbox(opened, settings.confirm_timeout_s)
    try:
        bus = await Bus.open(config)
    except BaseException:
        await outbox.close()
        raise
    connection_id = secrets.randbits(64)
    bus.announce(connection_id, _NAME, ())
    sending = OutboxSending(bus, settings, lambda _: None, outbox)  # `outbox.failure` tells what it reports
    try:
        driver = await sending.heard_cell()
        await sending.ready()
        if driver is None or driver.lacks_table:
            raise ResourceAllocationError(
                f"the keepers on fjm2://{config.group}:{config.port} do not serve any more: nothing was sent; repeat "
                "the command when they do",
                "no_keeper",
            )
        yield outbox, driver
    finally:
        await sending.close()
        bus.withdraw(connection_id)
        await bus.close()


class _Flight:
    """Messages on their way from the store to the keepers, by way of the outbox."""

    def __init__(
        self, outbox: DiskOutbox, opened: OpenOutbox, plan: Plan, accepted: list[int], on_progress: OnProgress
    ) -> None:
        self._outbox, self._journal = outbox, opened.journal
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._left = plan.total - sum(accepted)
        """Messages that are not in the outbox yet."""
        self.all: Final = self._left + outbox.waiting
        """Number of messages of this run, and of those of which it is to be found out if keepers have them."""
        self._done, self._done_at = 0, self._loop.time()

    async def send(self, lane: int, part: Part, journal: Journal, disk: Disk) -> None:
        """Add messages to the outbox, as fast as keepers store them."""
        ledger, first, end = part
        wanted, at, expected = RangeSet([(first, end)]), first, first
        while expected < end:
            read = journal.read(ledger, wanted, _READ_BYTES, at)
            frames = await asyncio.to_thread(read.fetch, disk)
            for sequence, frame in zip(read.sequences.tolist(), frames, strict=True):
                if frame is None or sequence != expected:
                    break
                written = self._outbox.accept(lane, adopted_frame(frame))
                self._left -= 1
                expected += 1
            else:
                at = expected
                if len(frames):
                    await written
                    await self._wait(lambda: self._journal.use.live < _FLYING_BYTES_MAX)
                    continue
            raise JournalError(f"message {expected} of {ledger} cannot be read: expected what was stored")

    async def land(self) -> None:
        """Wait until keepers have everything."""
        await self._wait(lambda: not self._outbox.waiting)

    async def _wait(self, is_over: Callable[[], bool]) -> None:
        """Wait until something is over, as long as there is progress."""
        while not self._is_over(is_over):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    def _is_over(self, is_over: Callable[[], bool]) -> bool:
        failure: JMSError | None = self._outbox.failure
        if failure is not None:
            raise failure
        now, done = self._loop.time(), self.all - self._left - self._outbox.waiting
        if done > self._done:
            self._done, self._done_at = done, now
            self._on_progress(done, self.all)
        if now - self._done_at > STILL_S:
            raise ResourceAllocationError(
                f"keepers have stored {self._done} of {counted(self.all, 'message')}, and none for {STILL_S:g} s: they "
                "may be full or gone, see fjm2 keep status; repeat the command to go on",
                "not_stored",
            )
        return is_over()
