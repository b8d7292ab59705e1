"""Publishers with outboxes that are killed, over real keepers: all that they accepted is stored once, in order."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from durable_programs import Program, outbox_sender, reader
from keepers import Keepers, start_three, uri_of
from outbox_history import LIFE, faults_of

pytestmark = pytest.mark.calm


@pytest.fixture
def random() -> Random:
    seed = time.time_ns() % 1_000_000
    print(f"{seed=}")
    return Random(seed)


@contextlib.contextmanager
def reading(uri: str) -> Iterator[Program]:
    program = reader(uri)
    try:
        program.until_ready()
        yield program
    finally:
        program.kill()


def accepted_by(program: Program) -> list[int]:
    return [int(line) for line in program.lines if line.isdigit()]


def sent_and_killed(uri: str, directory: Path, life: int, after_s: float) -> list[int]:
    """Let a publisher send, kill it, and return the numbers whose sends returned."""
    program = outbox_sender(uri, directory, life * LIFE)
    try:
        program.until_ready()
        time.sleep(after_s)
    finally:
        program.kill()
    return accepted_by(program)


def check(program: Program, accepted: list[list[int]]) -> None:
    """Wait until everything has come, and check the history."""
    last = accepted[-1][-1]
    with contextlib.suppress(AssertionError):
        program.until(lambda: any(number >= last for number, _ in program.messages))
    time.sleep(1.0)
    assert faults_of(accepted, [number for number, _ in program.messages]) == []


@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_publisher_is_killed_again_and_again(
    cell_of_three: Keepers, tmp_path: Path, random: Random, kills: int
) -> None:
    start_three(cell_of_three)
    uri = uri_of(cell_of_three.port)
    with reading(uri) as program:
        accepted = [sent_and_killed(uri, tmp_path / "outbox", life, random.uniform(0.0, 0.6)) for life in range(kills)]
        accepted.append(sent_and_killed(uri, tmp_path / "outbox", kills, 2.0))
        check(program, accepted)


@pytest.mark.nightly
def test_a_publisher_is_killed_while_the_cell_is_away(cell_of_three: Keepers, tmp_path: Path, random: Random) -> None:
    three = start_three(cell_of_three)
    uri = uri_of(cell_of_three.port)
    outbox = tmp_path / "outbox"
    with reading(uri):
        pass  # the subscription stays
    accepted = [sent_and_killed(uri, outbox, 0, random.uniform(0.2, 0.6))]
    for keeper in three:
        keeper.end()
    accepted += [sent_and_killed(uri, outbox, life, random.uniform(0.1, 0.4)) for life in range(1, 6)]
    start_three(cell_of_three)
    with reading(uri) as program:
        accepted.append(sent_and_killed(uri, outbox, 6, 4.0))
        check(program, accepted)


@pytest.mark.nightly
def test_keepers_and_the_publisher_are_killed_by_turns(cell_of_three: Keepers, tmp_path: Path, random: Random) -> None:
    start_three(cell_of_three)
    uri = uri_of(cell_of_three.port)
    with reading(uri) as program:
        accepted: list[list[int]] = []
        for life in range(6):
            (victim,) = random.sample([each for each in cell_of_three.running if each.popen.poll() is None], 1)
            sending = outbox_sender(uri, tmp_path / "outbox", life * LIFE)
            try:
                sending.until_ready()
                time.sleep(random.uniform(0.0, 0.5))
                victim.end()
                time.sleep(random.uniform(0.0, 1.0))
            finally:
                sending.kill()
            accepted.append(accepted_by(sending))
            cell_of_three.start(victim.directory.name)
        cell_of_three.until(lambda: cell_of_three.serving)
        accepted.append(sent_and_killed(uri, tmp_path / "outbox", 6, 6.0))
        check(program, accepted)


def test_the_check_finds_what_is_wrong() -> None:
    accepted = [[0, 1, 2], [LIFE, LIFE + 1]]
    assert faults_of(accepted, [0, 1, 2, 3, LIFE, LIFE + 1]) == []
    assert faults_of(accepted, [0, 1, 2, 2, LIFE, LIFE + 1]) != []
    assert faults_of(accepted, [0, 1, LIFE, LIFE + 1, 2]) != []
    assert faults_of(accepted, [0, 2, 3, LIFE, LIFE + 1]) != []
    assert faults_of(accepted, [0, 1, LIFE, LIFE + 1]) != []


@pytest.mark.nightly
def test_an_outbox_that_is_lost_loses_messages(cell_of_three: Keepers, tmp_path: Path) -> None:
    """The tests above mean something only if the outbox is what saves the messages."""
    uri = uri_of(cell_of_three.port)
    start_three(cell_of_three)
    with reading(uri):
        pass
    for keeper in cell_of_three.running:
        keeper.end()
    accepted = [sent_and_killed(uri, tmp_path / "outbox", 0, 0.5)]
    shutil.rmtree(tmp_path / "outbox")
    start_three(cell_of_three)
    with reading(uri) as program:
        accepted.append(sent_and_killed(uri, tmp_path / "outbox", 1, 2.0))
        time.sleep(1.0)
        assert faults_of(accepted, [number for number, _ in program.messages]) != []
