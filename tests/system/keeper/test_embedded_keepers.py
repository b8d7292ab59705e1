"""Keepers inside of programs: `ConnectionFactory(keep=...)`, as real processes on the loopback interface."""

import asyncio
import contextlib
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_programs import ASYNCIO, BLOCKING, Programs
from keepers import DEADLINE_S, Keepers, Writer, uri_of, writing
from representatives import representatives
from test_keepers import exported

from fjm2.errors import ConfigError
from fjm2.jms import ConnectionFactory, ResourceAllocationError, Topic
from fjm2.jms.sends import own_keeper
from fjm2.keeper.store_directory import config_of, open_store
from fjm2.outbox.drive.directory import open_outbox
from fjm2.store.config import StoreConfig
from fjm2.store.errors import StoreInUseError

MESSAGES = 200
TAKEOVERS = 4
"""Kills of one test. The deadline was seen to hold for hundreds."""
TAKEOVER_S = 0.3


def other_bus(uri: str) -> str:
    """Return a URI of the same bus whose sockets are not shared."""
    return f"{uri}&dscp=8"


@pytest.fixture
def directory(cell_of_one: Keepers) -> Path:
    """Return a directory with the store of a cell of one."""
    return cell_of_one.folder / "one"


async def send(writer: Writer, count: int) -> None:
    """Send messages, and wait until all of them are stored."""
    futures = [writer.send(b"%d" % number) for number in range(count)]
    await writer.stored(futures[-1])


async def served(writer: Writer, before: set[int]) -> float:
    """Return the time at which a node serves that did not before."""
    ends_at = time.monotonic() + DEADLINE_S
    while not (new := writer.managers.keys() - before):
        assert time.monotonic() < ends_at
        await asyncio.sleep(0.005)
    return writer.managers[new.pop()]


async def takeover_s(writer: Writer, end: Callable[[], object]) -> float:
    """End a process, and return the time until another one serves."""
    before = set(writer.managers)
    began = time.monotonic()
    await asyncio.to_thread(end)
    return await served(writer, before) - began


@pytest.mark.parametrize("text", representatives([ASYNCIO, BLOCKING], BLOCKING), ids=["asyncio", "blocking"])
def test_a_program_keeps_what_is_sent(programs: Programs, directory: Path, port: int, text: str) -> None:
    async def write() -> None:
        async with writing(port) as writer:
            await send(writer, MESSAGES)

    program = programs.start(directory, port, text).opened()
    asyncio.run(write())
    program.close()
    assert exported(directory) == list(range(1, MESSAGES + 1))


def test_the_first_connection_starts_it_and_the_last_close_ends_it(directory: Path, port: int) -> None:
    async def use() -> None:
        factory = ConnectionFactory(uri_of(port), keep=directory)
        first, second = await factory.create_connection(), await factory.create_connection()
        await first.close()
        with pytest.raises(StoreInUseError):
            open_store(directory, StoreConfig())
        await second.close()
        open_store(directory, StoreConfig()).disk.shut()
        async with factory.create_connection():
            pass
        open_store(directory, StoreConfig()).disk.shut()

    asyncio.run(use())


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.1])
def test_a_close_that_is_cancelled_ends_it_too(directory: Path, port: int, after_s: float) -> None:
    async def use() -> None:
        factory = ConnectionFactory(uri_of(port), keep=directory, outbox=directory.with_name("outbox"))
        context = await factory.create_context()
        await context.send(Topic("cancelled"), "a")
        closing = asyncio.create_task(context.close())
        await asyncio.sleep(after_s)
        closing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await closing
        open_store(directory, StoreConfig()).disk.shut()
        open_outbox(directory.with_name("outbox"), 1 << 30).disk.shut()

    asyncio.run(use())


def test_a_new_directory_is_founded_while_the_connection_opens(tmp_path: Path, port: int) -> None:
    async def use() -> None:
        async with (
            ConnectionFactory(other_bus(uri_of(port)), keep=str(tmp_path / "new")).create_connection(),
            writing(port) as writer,
        ):
            await send(writer, MESSAGES)

    asyncio.run(use())
    assert exported(tmp_path / "new") == list(range(1, MESSAGES + 1))


@pytest.mark.alone
def test_programs_of_one_host_take_over_from_one_another(programs: Programs, directory: Path, port: int) -> None:
    async def write() -> None:
        async with writing(port) as writer:
            for number in range(TAKEOVERS + 1):
                await asyncio.to_thread(programs.start(directory, port, (ASYNCIO, BLOCKING)[number % 2]).opened)
                await send(writer, MESSAGES)
                if number:
                    unconfirmed = writer.send(b"meanwhile")
                    took.append(await takeover_s(writer, programs.keeper(directory).end))
                    await writer.stored(unconfirmed)

    took: list[float] = []
    asyncio.run(write())
    assert max(took) < TAKEOVER_S, took
    programs.kill()
    assert len(exported(directory)) == (TAKEOVERS + 1) * MESSAGES + TAKEOVERS


@pytest.mark.alone
def test_a_program_stands_by_for_a_keeper(programs: Programs, cell_of_one: Keepers, directory: Path) -> None:
    async def write() -> None:
        async with writing(cell_of_one.port) as writer:
            await asyncio.to_thread(programs.start(directory, cell_of_one.port).opened)
            await send(writer, MESSAGES)
            assert await takeover_s(writer, one.end) < TAKEOVER_S
            await send(writer, MESSAGES)

    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")
    asyncio.run(write())


SEND = """
sys.path.insert(0, FOLDER)
        from keepers import writing
        async with writing(int(sys.argv[1].split(":")[2].split("?")[0])) as writer:
            for number in range(50):
                await writer.stored(writer.send(b"%d" % number))
            print("stored", flush=True)
            END
"""


@pytest.mark.parametrize(
    "ending",
    representatives(
        ["raise SystemExit(0)", "import os; os._exit(0)", "sys.exit()"], "import os; os._exit(0)", "sys.exit()"
    ),
)
def test_nothing_stored_is_lost_by_a_program_that_does_not_close(
    programs: Programs, directory: Path, port: int, ending: str
) -> None:
    # The connection is kept from being closed: its interpreter ends first.
    text = ASYNCIO.replace("async with ConnectionFactory", "connection = await ConnectionFactory").replace(
        ".create_connection() as connection:", ".create_connection()\n    if True:"
    )
    body = SEND.strip().replace("FOLDER", repr(str(Path(__file__).parent))).replace("END", ending)
    program = programs.start(directory, port, text.replace("sys.argv[1]", "sys.argv[1] + '&dscp=8'"), body)
    assert program.wait() == 0, program.said
    assert program.said == ["open", "stored"]
    assert exported(directory) == list(range(1, 51))


@pytest.mark.parametrize("text", representatives([ASYNCIO, BLOCKING], ASYNCIO), ids=["asyncio", "blocking"])
def test_ctrl_c_leaves_the_directory_free(programs: Programs, directory: Path, port: int, text: str) -> None:
    async def write() -> None:
        async with writing(port) as writer:
            await send(writer, MESSAGES)

    body = "await asyncio.sleep(60)" if text is ASYNCIO else "import time; time.sleep(60)"
    program = programs.start(directory, port, text, body).opened()
    asyncio.run(write())
    assert program.end(signal.SIGINT) == -signal.SIGINT
    assert program.said[-1] == "KeyboardInterrupt"
    assert not any("fjm2-keeper" in line or "PROBLEM" in line for line in program.said)
    assert exported(directory) == list(range(1, MESSAGES + 1))


@pytest.mark.alone
def test_a_forked_child_does_not_hold_the_directory(programs: Programs, directory: Path, port: int) -> None:
    async def write() -> None:
        async with writing(port) as writer:
            parent = programs.start(directory, port, ASYNCIO, fork)
            await asyncio.to_thread(parent.until, lambda: "forked" in parent.said)
            await asyncio.to_thread(programs.start(directory, port).opened)
            await send(writer, MESSAGES)
            assert await takeover_s(writer, parent.popen.kill) < TAKEOVER_S

    fork = (
        "import os, time\n        if not os.fork(): time.sleep(4); os._exit(0)\n        print('forked', flush=True)\n"
    )
    fork += "        await asyncio.sleep(60)"
    asyncio.run(write())


def test_a_failed_disk_is_told_and_the_next_connection_starts_again(
    programs: Programs, directory: Path, port: int
) -> None:
    async def write() -> None:
        async with writing(port) as writer:
            await send(writer, 1)
            resource.prlimit(program.popen.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            writer.send(b"lost")
            await asyncio.to_thread(program.until, lambda: any("PROBLEM" in line for line in program.said))

    again = "await asyncio.to_thread(sys.stdin.readline)\n        import resource\n"
    again += "        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
    again += "        async with ConnectionFactory(sys.argv[1], keep=sys.argv[2]).create_connection(): print('again')"
    program = programs.start(directory, port, ASYNCIO, again).opened()
    asyncio.run(write())
    problem = next(line for line in program.said if "PROBLEM" in line and "store has failed" in line)
    assert "the keeper of this program has ended: the store has failed (File too large)" in problem
    program.go_on()
    assert program.wait() == 0, program.said
    assert program.said[-2:] == ["again", "closed"]


@pytest.mark.alone
def test_a_program_that_computes_does_not_starve_its_keeper(programs: Programs, directory: Path, port: int) -> None:
    async def write() -> None:
        async with writing(port) as writer:
            await send(writer, 1)
            ends_at = time.monotonic() + 3.0
            while time.monotonic() < ends_at:
                await writer.stored(writer.send(b"meanwhile"), 1.0)
            assert len(writer.epochs) == 1

    programs.start(directory, port, ASYNCIO, "while True: sum(range(1000))").opened()
    asyncio.run(write())


def test_one_program_keeps_in_a_directory_for_one_bus(directory: Path, port: int) -> None:
    async def use() -> None:
        async with ConnectionFactory(uri_of(port), keep=directory).create_connection():
            with pytest.raises(ConfigError, match="expected a directory for each bus"):
                await ConnectionFactory(uri_of(port + 1), keep=directory).create_connection()
            with pytest.raises(ConfigError, match=r"replicas=3: this program keeps in .* with replicas=1"):
                await ConnectionFactory(uri_of(port), keep=directory, replicas=3).create_connection()

    asyncio.run(use())
    open_store(directory, config_of(16 << 20)).disk.shut()


def test_a_connection_that_hears_no_cell_says_why(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_keeper, "SERVE_S", 0.5)

    async def use() -> None:
        await ConnectionFactory(uri_of(port), keep=tmp_path / "one", replicas=3).create_connection()

    with pytest.raises(ResourceAllocationError, match="replicas=3: a cell begins when 3 keepers are there") as caught:
        asyncio.run(use())
    assert caught.value.error_code == "no_keeper"
    open_store(tmp_path / "one", StoreConfig()).disk.shut()
