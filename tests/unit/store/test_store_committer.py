"""Tests of the thread that commits, on a real directory."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from lives import frames_of

from fjm2.base.errors import JournalError
from fjm2.base.ledger import Ledger
from fjm2.store.config import Need, StoreConfig
from fjm2.store.disk import Buffer
from fjm2.store.drive.committer import BUSY_BYTES, BUSY_S, BUSY_S_MAX, COMMIT_S_MIN, URGENT_S, Committer
from fjm2.store.drive.os_disk import OsDisk
from fjm2.store.opening import open_journal
from fjm2.store.runs import Run

LEDGER = Ledger(1, 0, 0)
CONFIG = StoreConfig(segment_bytes=64 << 10, store_bytes_max=64 << 20)


class Slow(OsDisk):
    """A disk whose syncs wait until they are let go, or fail."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.go = threading.Event()
        self.go.set()
        self.error = 0
        self.threads: set[int] = set()
        self.syncs = 0

    def fdatasync(self, file: int) -> None:
        assert self.go.wait(10)
        self.syncs += 1
        self.threads.add(threading.get_ident())
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        super().fdatasync(file)


class Heard:
    """Everything that a committer told."""

    def __init__(self) -> None:
        self.lsns: list[int] = []
        self.errors: list[OSError] = []
        self.changed = asyncio.Event()

    def synced(self, lsn: int) -> None:
        self.lsns.append(lsn)
        self.changed.set()

    def failed(self, error: OSError) -> None:
        self.errors.append(error)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def committing(directory: Path, config: StoreConfig = CONFIG) -> AsyncIterator[tuple[Slow, Committer, Heard]]:
    with Slow(directory) as disk:
        heard = Heard()
        journal = open_journal(disk, config, Random(1))
        committer = Committer(journal, disk, on_synced=heard.synced, on_failed=heard.failed, state=lambda: b"state")
        try:
            yield disk, committer, heard
        finally:
            disk.go.set()
            await committer.close()
            await committer.close()


def test_appends_are_committed_in_the_thread_and_told_in_the_loop(tmp_path: Path) -> None:
    async def run() -> None:
        async with committing(tmp_path) as (disk, committer, heard):
            disk.threads.clear()
            lsn = committer.append([Run.of(LEDGER, 1, [b"a"])])
            assert lsn == 1
            await heard.until(lambda: heard.lsns == [1])
            assert threading.get_ident() not in disk.threads
            assert frames_of(committer.journal, disk, LEDGER) == {1: b"a"}

    asyncio.run(run())


def test_all_that_comes_during_a_sync_shares_the_next_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with committing(tmp_path) as (disk, committer, heard):
            await heard.until(lambda: True)
            disk.go.clear()
            assert {committer.append([Run.of(LEDGER, 100 + n, [b"a"])]) for n in range(5)} == {1}, "all of one turn"
            await asyncio.sleep(0)
            assert {committer.append([Run.of(LEDGER, n, [b"b"])]) for n in range(2, 50)} == {2}
            disk.go.set()
            await heard.until(lambda: bool(heard.lsns) and heard.lsns[-1] == 2)
            assert heard.lsns == [1, 2]

    asyncio.run(run())


def test_each_write_has_what_its_owner_fills_in(tmp_path: Path) -> None:
    async def run() -> None:
        async with committing(tmp_path) as (disk, committer, heard):
            waiting = [2]

            def fill() -> None:
                for n in waiting:
                    committer.append([Run.of(LEDGER, n, [b"filled"])])
                waiting.clear()

            committer.fill = fill
            disk.go.clear()
            assert committer.append([Run.of(LEDGER, 1, [b"a"])]) == 1
            await asyncio.sleep(0)
            assert not waiting
            waiting += [3, 4]
            disk.go.set()
            await heard.until(lambda: bool(heard.lsns) and heard.lsns[-1] == 2)
            assert heard.lsns == [1, 2]
            assert list(frames_of(committer.journal, disk, LEDGER)) == [1, 2, 3, 4]
            waiting.append(5)
            async with asyncio.timeout(10):
                while heard.lsns[-1] < 3:  # nothing else has to wait
                    committer.kick()
                    await asyncio.sleep(0.001)
            assert list(frames_of(committer.journal, disk, LEDGER)) == [1, 2, 3, 4, 5]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("size", "fill_s", "rest_s"),
    [(10, 0.0, COMMIT_S_MIN), (10, 0.003, COMMIT_S_MIN), (BUSY_BYTES, 0.0, BUSY_S), (BUSY_BYTES, 0.003, BUSY_S_MAX)],
    ids=["small", "small, slow", "large", "large, slow"],
)
def test_commits_of_a_stream_gather_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, fill_s: float, rest_s: float
) -> None:
    """The next commit begins later behind a large batch than behind a small one, and even later if the loop is slow."""
    monkeypatch.setattr(OsDisk, "fdatasync", lambda *_: None)

    async def run() -> None:
        async with committing(tmp_path, StoreConfig(segment_bytes=4 << 20, store_bytes_max=64 << 20)) as parts:
            _, committer, heard = parts
            loop, now = asyncio.get_running_loop(), 0.0
            monkeypatch.setattr(loop, "time", lambda: now)  # a busy machine would take time from each rest

            def fill() -> None:
                nonlocal now
                now += fill_s

            committer.fill = fill
            rests: list[float] = []
            monkeypatch.setattr(loop, "call_later", lambda rest, *call: (rests.append(rest), loop.call_soon(*call)))
            for n in range(1, 40):
                committer.append([Run.of(LEDGER, n, [bytes(size)])])
                await heard.until(lambda: heard.lsns[-1:] == [n])  # noqa: B023
            assert rests == pytest.approx([rest_s] * len(rests))
            assert len(rests) == 39

    asyncio.run(run())


@pytest.mark.parametrize("need", [Need.MESSAGE, Need.URGENT])
def test_what_is_urgent_ends_the_time_between_commits_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: Need
) -> None:
    monkeypatch.setattr(OsDisk, "fdatasync", lambda *_: None)

    async def run() -> None:
        async with committing(tmp_path, StoreConfig(segment_bytes=4 << 20, store_bytes_max=64 << 20)) as parts:
            disk, committer, heard = parts
            loop, now = asyncio.get_running_loop(), 0.0
            monkeypatch.setattr(loop, "time", lambda: now)
            calls: list[tuple[float, Callable[[], None]]] = []

            def call_later(rest: float, act: Callable[[], None]) -> asyncio.TimerHandle:
                calls.append((now + rest, act))
                return asyncio.TimerHandle(now + rest, act, (), loop)

            committer.append([Run.of(LEDGER, 1, [bytes(BUSY_BYTES)])])
            monkeypatch.setattr(loop, "call_later", call_later)
            await heard.until(lambda: heard.lsns == [1])
            for n in (2, 3):
                committer.append([Run.of(LEDGER, n, [b"a"])], need)
            at_once = list(frames_of(committer.journal, disk, LEDGER))
            now = calls[-1][0]
            calls[-1][1]()
            monkeypatch.undo()
            await heard.until(lambda: heard.lsns == [1, 2])
            assert at_once == [1], "the caller may be in the middle of what is to be written"
            assert [at for at, _ in calls] == pytest.approx([BUSY_S] if need is Need.MESSAGE else [BUSY_S, URGENT_S])

    asyncio.run(run())


def test_a_failed_sync_is_told_once_and_final(tmp_path: Path) -> None:
    async def run() -> None:
        async with committing(tmp_path) as (disk, committer, heard):
            committer.append([Run.of(LEDGER, 1, [b"a"])])
            await heard.until(lambda: heard.lsns == [1])
            disk.error = errno.EIO
            committer.append([Run.of(LEDGER, 2, [b"b"])])
            await heard.until(lambda: bool(heard.errors))
            disk.error, syncs = 0, disk.syncs
            with pytest.raises(JournalError):
                committer.append([Run.of(LEDGER, 3, [b"c"])])
            committer.kick()
            assert (len(heard.errors), heard.lsns, disk.syncs) == (1, [1], syncs)

    asyncio.run(run())
    incarnation = _incarnation(tmp_path)
    assert incarnation == _incarnation(tmp_path)
    assert not (tmp_path / "failed").exists()


def _incarnation(directory: Path) -> int:
    with OsDisk(directory) as disk:
        return open_journal(disk, CONFIG, Random()).identity.incarnation


def test_a_failed_sync_leaves_a_mark(tmp_path: Path) -> None:
    async def run() -> int:
        async with committing(tmp_path) as (disk, committer, heard):
            disk.error = errno.EIO
            committer.append([Run.of(LEDGER, 1, [b"a"])])
            await heard.until(lambda: bool(heard.errors))
            return committer.journal.identity.incarnation

    before = asyncio.run(run())
    assert (tmp_path / "failed").exists()
    assert _incarnation(tmp_path) != before


def test_close_writes_everything_that_waits(tmp_path: Path) -> None:
    async def run() -> None:
        async with committing(tmp_path) as (_, committer, _):
            for n in range(1, 200):
                assert committer.append([Run.of(LEDGER, n, [bytes(5000)])])

    asyncio.run(run())
    with OsDisk(tmp_path) as disk:
        assert open_journal(disk, CONFIG, Random(1)).waiting_frames(LEDGER) == 199


def test_checkpoints_are_written_when_they_are_due_and_segments_are_reused(tmp_path: Path) -> None:
    config = StoreConfig(segment_bytes=64 << 10, store_bytes_max=8 * 64 << 10, checkpoint_bytes=100_000)

    async def run() -> None:
        async with committing(tmp_path, config) as (_, committer, heard):
            sequence = 1
            async with asyncio.timeout(20):
                while sequence < 400:
                    if committer.append([Run.of(LEDGER, sequence, [bytes(5000)])]) is None:
                        await asyncio.sleep(0.001)
                        continue
                    await heard.until(lambda: sequence in committer.journal.known(LEDGER))  # noqa: B023
                    committer.journal.release(LEDGER, [(sequence, sequence + 1)])
                    committer.kick()
                    sequence += 1

    asyncio.run(run())
    assert sum(path.stat().st_size for path in tmp_path.glob("segment-*")) <= config.store_bytes_max
    with OsDisk(tmp_path) as disk:
        assert open_journal(disk, config, Random(1)).state == b"state"


def test_parts_that_the_kernel_takes_in_pieces_are_all_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwritev

    def in_pieces(descriptor: int, parts: Sequence[Buffer], offset: int) -> int:
        return whole(descriptor, [bytes(parts[0])[:7]], offset)

    monkeypatch.setattr(os, "pwritev", in_pieces)
    with OsDisk(tmp_path) as disk:
        file = disk.open("a")
        assert disk.pwritev(file, [b"x" * 20, b"y" * 5], 3) == 25
        assert disk.pread(file, 100, 0) == bytes(3) + b"x" * 20 + b"y" * 5
