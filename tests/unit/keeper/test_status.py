"""Tests of the status of a keeper on the wire, and of the kinds of commands."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fjm2.bus.signals.signals import ANNOUNCEMENT, NOTICE
from fjm2.cell.outgoing import State
from fjm2.cell.wire.kinds import KEEPER_STATUS, Kind
from fjm2.keeper.status import KeeperStatus, StatusFlag, decode_status
from fjm2.keeper.survey import lag_of

STATUS = KeeperStatus(
    state=State.SERVING,
    flags=StatusFlag.FULL,
    pid=12,
    epoch=3,
    configuration=1,
    cell_id=99,
    keeper_id=bytes(range(16)),
    incarnation=1 << 63,
    committed=7,
    last_index=8,
    table_version=2,
    durable_lsn=5,
    messages=1000,
    store_bytes=1 << 30,
    allowed_bytes=10 << 30,
    live_bytes=4096,
    waiting_bytes=0,
    free_bytes=50 << 30,
    sync_us=700,
    conflicts=0,
    host="paris",
)


def test_a_status_comes_back_as_it_was_sent() -> None:
    assert decode_status(STATUS.encode()) == STATUS
    assert decode_status(STATUS.encode() + b"of a later version") == STATUS
    assert decode_status(replace(STATUS, sync_us=1 << 40).encode()) == replace(STATUS, sync_us=(1 << 32) - 1)
    long = replace(STATUS, host="é" * 100)
    assert len(long.encode()) < 300
    assert decode_status(long.encode()) is not None


@given(st.binary(max_size=300), st.integers(0, 200))
def test_malformed_bytes_are_no_status(noise: bytes, cut: int) -> None:
    decode_status(noise)
    decode_status(bytes((KEEPER_STATUS,)) + noise)
    whole = STATUS.encode()
    assert decode_status(whole[: min(cut, len(whole) - 1)]) is None


def test_json_has_names_and_no_bytes() -> None:
    told = STATUS.as_dict()
    assert (told["state"], told["keeper_id"], told["is_full"]) == ("serving", STATUS.keeper_id.hex(), True)
    flags = [(each["is_full"], each["lacks_room"]) for each in (replace(STATUS, flags=n).as_dict() for n in range(4))]
    assert flags == [(False, False), (True, False), (False, True), (True, True)]
    assert not any(isinstance(value, bytes) for value in told.values())


def test_lag_is_counted_within_a_cell() -> None:
    behind = replace(STATUS, keeper_id=bytes(16), messages=990)
    stranger = replace(STATUS, cell_id=98, messages=5000)
    assert [lag_of(each, [STATUS, behind, stranger]) for each in (STATUS, behind, stranger)] == [0, 10, 0]


def test_no_kind_of_command_stands_for_two_things() -> None:
    kinds = [ANNOUNCEMENT, NOTICE, KEEPER_STATUS, *Kind.__members__.values()]
    assert len(set(kinds)) == len(kinds)
