"""Tests of what the doctor says about the keepers of a bus."""

from dataclasses import replace

import pytest

from fjm2.cell.outgoing import State
from fjm2.doctor.keepers import judge_keepers
from fjm2.doctor.verdict import Verdict
from fjm2.keeper.status import KeeperStatus, StatusFlag

GIB = 1 << 30
SERVING = KeeperStatus(
    state=State.SERVING,
    flags=0,
    pid=12,
    epoch=3,
    configuration=1,
    cell_id=99,
    keeper_id=bytes(range(16)),
    incarnation=1,
    committed=7,
    last_index=8,
    table_version=2,
    durable_lsn=5,
    messages=1000,
    store_bytes=GIB,
    allowed_bytes=10 * GIB,
    live_bytes=GIB // 2,
    waiting_bytes=0,
    free_bytes=50 * GIB,
    sync_us=700,
    conflicts=0,
    host="paris",
)
FOLLOWER = replace(SERVING, state=State.FOLLOWER, keeper_id=bytes(16), host="lyon")


def found(*keepers: KeeperStatus) -> dict[str | None, str]:
    return {finding.problem: finding.text for finding in judge_keepers(list(keepers))}


def test_a_cell_that_is_well_and_a_bus_without_one_are_ok() -> None:
    findings = [*judge_keepers([SERVING, FOLLOWER]), *judge_keepers([])]
    assert [finding.verdict for finding in findings] == [Verdict.OK, Verdict.OK]
    assert findings[0].text == "2 keepers, and 00010203 at paris is the manager"


@pytest.mark.parametrize("state", [State.FOLLOWER, State.CANDIDATE, State.EMPTY, State.AMNESIAC])
def test_a_cell_that_does_not_serve(state: State) -> None:
    assert "no_majority" in found(replace(FOLLOWER, state=state))
    assert "no_majority" not in found(SERVING, replace(FOLLOWER, state=state))


def test_two_cells() -> None:
    stranger = replace(FOLLOWER, cell_id=100, state=State.STRANDED)
    findings = list(judge_keepers([SERVING, stranger]))
    assert [finding.problem for finding in findings] == ["two_cells"]
    assert "lyon" in findings[0].advice[0]
    assert not found(SERVING, replace(FOLLOWER, state=State.EMPTY, cell_id=0)).keys() - {None}


def test_a_store_that_is_full_or_nearly_so() -> None:
    assert "store_full" in found(replace(SERVING, flags=StatusFlag.FULL))
    too_full = found(FOLLOWER, replace(SERVING, flags=StatusFlag.FULL | StatusFlag.LACKS_ROOM))
    assert "store_full" not in too_full
    assert "cannot be the manager" in too_full["store_too_full"]
    assert "store_nearly_full" in found(replace(SERVING, free_bytes=GIB // 4))
    assert "store_nearly_full" in found(replace(SERVING, store_bytes=10 * GIB, live_bytes=10 * GIB - 1))
    # Segments without messages are used again.
    assert found(replace(SERVING, store_bytes=10 * GIB, free_bytes=0)).keys() == {None}


def test_a_wiped_member_and_a_slow_disk() -> None:
    assert "keeper_lost_store" in found(SERVING, replace(FOLLOWER, state=State.AMNESIAC))
    assert found(replace(SERVING, sync_us=31_000))["slow_sync"].startswith("the disk of 00010203 at paris takes 31 ms")


def test_names_from_the_network_take_one_line() -> None:
    assert "\n" not in found(SERVING, replace(FOLLOWER, host="ly\non", state=State.AMNESIAC))["keeper_lost_store"]
