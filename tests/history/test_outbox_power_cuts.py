"""Power cuts of publishers with outboxes: what their sends accepted is in the outbox, once and in order."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from durable_programs import OUTBOX_BYTES, Program, outbox_sender
from outbox_history import LIFE, faults_of

from fjm2.errors import ConfigError
from fjm2.messages.frame import body_place
from fjm2.messages.header import HEADER
from fjm2.outbox.drive.directory import open_outbox
from fjm2.outbox.outbox_store import OutboxStore

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("require_fuse")]

LANE = 0
CUTS = 5
CUTS_MAX = 12
"""Power cuts in which syncs that do nothing are found out."""


@pytest.fixture
def mount(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    from cell_stage import forgetful

    with forgetful(tmp_path / "mount", request.node.name) as mount:
        yield mount


def cut_in_the_middle(mount: Path, uri: str, life: int, random: Random, *before: str) -> list[int]:
    """Let a publisher send, and cut its power. Return the numbers whose sends returned."""
    program: Program = outbox_sender(uri, mount / "a", life * LIFE, *before)
    try:
        program.until_ready()
        time.sleep(random.uniform(0.05, 0.4))
        program.popen.kill()
        program.popen.wait(10)
        os.setxattr(mount, "user.cut", b"")
    finally:
        program.kill()
    return [int(line) for line in program.lines if line.isdigit()]


def waiting_in(directory: Path) -> list[int]:
    """Return the numbers in an outbox."""
    opened = open_outbox(directory, OUTBOX_BYTES)
    try:
        store = OutboxStore(opened.journal, opened.journal.append)
        lane = opened.recovered[LANE]
        found: list[int] = []
        at = lane.released + 1
        while at <= lane.accepted:
            read = store.read(LANE, at, lane.accepted)
            for frame in read.fetch(opened.disk):
                assert frame is not None
                found.append(int(frame[body_place(HEADER.unpack_from(frame)) :].decode()))
            at = lane.released + 1 + len(found)
        return found
    finally:
        opened.disk.shut()


@pytest.fixture
def uri(port: int) -> str:
    return f"fjm2://239.192.57.68:{port}?interface=127.0.0.1&ttl=0"


@pytest.mark.parametrize("cuts", [CUTS, pytest.param(20, marks=pytest.mark.nightly)])
def test_power_cuts_lose_nothing_that_was_accepted(mount: Path, uri: str, cuts: int) -> None:
    random = Random(cuts)
    accepted: list[list[int]] = []
    for life in range(cuts):
        accepted.append(cut_in_the_middle(mount, uri, life, random))
        assert accepted[-1], "the publisher sent nothing"
        assert faults_of(accepted, waiting_in(mount / "a")) == []


def test_syncs_that_do_nothing_are_found_out(mount: Path, uri: str, eatmydata: str) -> None:
    random = Random(1)
    accepted: list[list[int]] = []
    for life in range(CUTS_MAX):
        accepted.append(cut_in_the_middle(mount, uri, life, random, eatmydata))
        try:
            if faults_of(accepted, waiting_in(mount / "a")):
                return
        except ConfigError:
            return  # the outbox is damaged as a whole
    pytest.fail(f"{CUTS_MAX} power cuts without syncs lost nothing")
