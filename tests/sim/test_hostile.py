"""Tests of an engine against datagrams that are made to harm it."""

import errno
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hostile.attack import attack
from hostile.attacker import Attacker
from hostile.datagrams import Fake, feedback, fti, item, request
from hostile.limits import count_elements, resident_bytes
from hostile.target import TARGET, Sight
from representatives import representatives
from victim import ME, Victim, fakes

from fjm2.norm.core.config import Fec, ReceiverConfig, SenderConfig, Sync
from fjm2.norm.core.engine import sender_of
from fjm2.norm.core.receive.stores import FileStore
from fjm2.norm.core.send.sources import MemorySource
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import Data, Info, Nack, RepairAdv, decode
from fjm2.norm.events import (
    LossReason,
    ObjectCompleted,
    ObjectLost,
    ObjectsMissed,
    SenderVanished,
    StreamLost,
    StreamReceived,
)

SEED = int(os.environ.get("FJM2_SEED", "1"))


@pytest.fixture
def fake() -> Fake:
    return next(fakes(1))


@pytest.mark.parametrize("arenas", [2, pytest.param(5, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("is_forging", [False, True], ids=["honest", "forging"])
def test_engine_withstands_all_attacks(is_forging: bool, arenas: int) -> None:
    print(f"seed {SEED}")
    for number in range(arenas):
        attack(3000, SEED + number, is_forging=is_forging)


@pytest.mark.parametrize("name", sorted(Attacker(Random(1), Sight(1), True).campaigns))
@pytest.mark.parametrize("cases", representatives([100, 300, 800], 100))
def test_engine_withstands_each_attack(name: str, cases: int) -> None:
    attack(cases, SEED, only=name, is_forging=name.startswith("forged"))


# Nothing raises.


def test_unknown_field_sizes_are_refused(fake: Fake) -> None:
    victim = Victim(ReceiverConfig(sync=Sync.ALL))
    for bits in (0, 1, 7, 9, 255):
        victim.take(fake, fake.data(0, 1, bytes(10), fti=fti(2, 5000, 100, 10, 5, bits), fec_id=2))
        victim.take(fake, fake.flush(0, 5, ME, 5))
        victim.pass_time(1.0)
        fake.object_id += 1
    assert victim.drops(Drop.UNSUPPORTED) == 5


def test_a_stream_of_which_nothing_came_leaps_and_goes_back_as_flushes_say(fake: Fake) -> None:
    victim = Victim(ReceiverConfig(sync=Sync.ALL))
    ext = fti(5, 1 << 20, 100, 64)
    victim.take(fake, fake.data(0, 5, bytes(50), fti=ext, flags=0x20))
    for _ in range(3):
        for block in (100_000, 0):
            for _ in range(4):
                victim.take(fake, fake.flush(block, 7))
                victim.pass_time(0.02)
    assert victim.sent_of(Nack)


def test_flush_with_another_code_does_not_mix_with_an_earlier_fti(fake: Fake) -> None:
    victim = Victim()
    wide = fake.data(3, 1, bytes(10), fti=fti(2, 50_000, 100, 10, 5, 16), flags=1, fec_id=2)
    victim.take(fake, wide, fake.flush(3, 1, ME, 5))
    victim.pass_time(1.0)
    assert victim.sent_of(Nack)


def test_short_segment_alone_may_be_too_long_for_its_stream(fake: Fake) -> None:
    victim = Victim()
    ext = fti(5, 10_000, 100, 10)
    victim.take(fake, fake.data(0, 0, b"\0\x64" + bytes(106), fti=ext, flags=0x20))
    victim.take(fake, fake.data(0, 5, bytes(400), fti=ext, flags=0x20), segment_bytes=1000)
    assert victim.drops(Drop.OVERSIZE) == 1


@pytest.mark.parametrize("flags", [0, 0x20])
def test_stream_does_not_become_an_object_nor_the_reverse(fake: Fake, flags: int) -> None:
    victim = Victim()
    ext = fti(5, 10_000, 100, 10)
    victim.take(fake, fake.data(0, 0, b"\0\x5c" + bytes(98), fti=ext, flags=flags))
    victim.take(fake, *(fake.data(0, at, bytes(8), fti=ext, flags=flags ^ 0x20) for at in range(3)))
    victim.take(fake, *(fake.data(0, at, bytes(8), flags=flags ^ 0x20)[:22] for at in range(3)))
    assert victim.drops(Drop.FTI_MISMATCH) >= 3


@pytest.mark.parametrize("block", [65_535, 0xFFFFFFFF])
def test_endless_blocks_need_no_endless_ring(fake: Fake, block: int) -> None:
    victim = Victim()
    fec_id = 0 if block > 65_535 else 129
    ext = fti(fec_id, 1 << 40, 65_000, block)
    for symbol in (0, 5, 9):
        content = b"\0\x64" + bytes(106)
        victim.take(fake, fake.data(0, symbol, content, fti=ext, flags=0x20, fec_id=fec_id))
    assert 0 < count_elements(victim.engine)[1] < 64 << 20


def test_more_missing_than_python_can_count(fake: Fake) -> None:
    victim = Victim()
    ext = fti(0, 1 << 40, 10, 0xFFFFFFFF)
    victim.take(fake, fake.data(0, 0, b"\0\x0a" + bytes(16), fti=ext, flags=0x20, fec_id=0))
    for block in range(0x7000, 0x60000, 0x7000):
        for _ in range(3):  # one FLUSH that far ahead is not believed
            victim.take(fake, fake.flush(block, 1, fec_id=0))
            victim.now += 0.01
    victim.pass_time(1.0)
    assert victim.sent_of(Nack)


def test_odd_symbol_is_not_taken_together_with_the_first_segment(fake: Fake) -> None:
    """The invalid symbol has no place in the object. It must not count as the segment just before the first one."""
    content = Random(1).randbytes(400)
    ext = fti(5, 400, 100, 4, 2)
    victim = Victim()
    rows = [
        fake.data(0, 9, bytes(100), fti=ext),
        *(fake.data(0, at, content[100 * at :][:100], fti=ext) for at in range(4)),
    ]
    (done,) = [
        event for event in victim.take(fake, *rows, segment_bytes=len(rows[0])) if isinstance(event, ObjectCompleted)
    ]
    assert bytes(done.data or b"") == content


def test_full_disk_loses_the_object_only(tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    victim = Victim(ReceiverConfig(file_directory=str(tmp_path)))
    monkeypatch.setattr(FileStore, "write", fail)
    events = victim.take(fake, fake.data(0, 0, bytes(100), fti=fti(5, 400, 100, 4), flags=0x10))
    assert [event.reason for event in events if isinstance(event, ObjectLost)] == [LossReason.FAILED]
    assert not list(tmp_path.iterdir())


# Memory.


def test_claims_of_one_sender_are_bounded(fake: Fake) -> None:
    victim = Victim()
    for _ in range(200):
        victim.take(fake, fake.data(0, 0, bytes(100), fti=fti(5, 10 << 20, 1000, 64)))
        fake.object_id += 1
    assert victim.drops(Drop.NO_MEMORY) == 194
    assert count_elements(victim.engine)[1] <= 64 << 20


def test_claims_take_neither_memory_nor_mappings() -> None:
    """Claims of many large objects take little memory.

    They also take few memory mappings, of which the kernel allows a process 65,530.
    """
    victim = Victim(ReceiverConfig())
    resident, mappings = resident_bytes(), mapping_count()
    for fake in fakes(20):
        for _ in range(100):
            victim.take(fake, fake.data(0, 3, bytes(1000), fti=fti(5, 8 << 20, 1000, 64)))
            fake.object_id += 1
    assert count_elements(victim.engine)[1] > 10 << 30
    assert resident_bytes() - resident < 100 << 20
    assert mapping_count() - mappings < 500


def mapping_count() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_objects_without_reserved_memory_are_requested_later(fake: Fake) -> None:
    victim = Victim(ReceiverConfig(total_bytes_max=100_000))
    ext = fti(5, 60_000, 60_000, 1)
    victim.take(fake, fake.data(0, 0, bytes(10), fti=ext))
    fake.object_id = 1
    victim.take(fake, fake.data(0, 0, bytes(60_000), fti=ext))
    fake.object_id = 0
    (first,) = victim.take(fake, fake.data(0, 0, bytes(60_000), fti=ext))[-1:]
    victim.pass_time(1.0)
    assert isinstance(first, ObjectCompleted)
    nack = decode(victim.sent_of(Nack)[-1])
    assert isinstance(nack, Nack)
    assert [position.object_id for asked in nack.requests for position in asked.items] == [1]
    fake.object_id = 1
    assert isinstance(victim.take(fake, fake.data(0, 0, bytes(60_000), fti=ext))[-1], ObjectCompleted)


def test_small_parity_does_not_come_for_free(fake: Fake) -> None:
    victim = Victim(ReceiverConfig(total_bytes_max=1 << 20))
    ext = fti(5, 1 << 19, 1, 100, 100)
    events = [event for at in range(4000) for event in victim.take(fake, fake.data(at, 100, b"", fti=ext))]
    assert [event.reason for event in events if isinstance(event, ObjectLost)] == [LossReason.NO_MEMORY]
    assert victim.engine.memory_bytes <= 1 << 20


def test_infos_are_counted(fake: Fake) -> None:
    victim = Victim(ReceiverConfig(total_bytes_max=1 << 20))
    reasons = set()
    for _ in range(200):
        events = victim.take(fake, fake.info(bytes(20_000), fti(5, 1000, 30_000, 10)))
        reasons |= {event.reason for event in events if isinstance(event, ObjectLost)}
        fake.object_id += 1
    assert reasons == {LossReason.NO_MEMORY}
    assert victim.engine.memory_bytes <= 1 << 20


def test_pieces_of_an_object_are_bounded(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fjm2.norm.core.receive.incoming_object.FRAGMENTS_MAX", 50)
    victim = Victim()
    content = Random(1).randbytes(400)
    ext = fti(5, 400, 2, 200)
    for symbol in range(0, 200, 2):
        victim.take(fake, fake.data(0, symbol, content[2 * symbol :][:2], fti=ext))
    assert victim.drops(Drop.OUT_OF_WINDOW) == 50
    events = victim.take(fake, *(fake.data(0, at, content[2 * at :][:2], fti=ext) for at in range(200)))
    assert [bytes(event.data or b"") for event in events if isinstance(event, ObjectCompleted)] == [content]


def test_requests_overheard_are_bounded(fake: Fake) -> None:
    victim = Victim()
    fake.grtt_q, fake.backoff_gsize = 255, 0xF2
    ext = fti(129, 1 << 20, 1, 100, 100)
    victim.take(fake, *(fake.data(at, 1, b"x", fti=ext, fec_id=129) for at in range(2)))
    for start in range(0, 5000, 1000):
        items = b"".join(item(0, block, 100, 129) + item(0, block, 65_535, 129) for block in range(start, start + 1000))
        victim.take(fake, feedback(4, 99, fake.node_id, 7, request(2, 1, items)))
    assert 10_000 < count_elements(victim.engine)[0] < 2048 * 102 + 20_000


def test_the_sender_that_hoards_memory_loses_it() -> None:
    """Memory is taken from the sender that holds most, not from the one heard least recently."""
    victim = Victim(ReceiverConfig(total_bytes_max=4 << 20))
    hoarder, modest = fakes(2)
    for fake in (hoarder, modest):
        victim.take(fake, fake.data(0, 0, b"tiny", fti=fti(5, 4, 1000, 64)))
        fake.object_id += 1
    victim.take(modest, modest.data(0, 0, bytes(1000), fti=fti(5, 100_000, 1000, 64)))
    victim.now += 1.0
    events = []
    for at in range(4000):
        events += victim.take(hoarder, hoarder.data(at, 1, b"x", fti=fti(5, 1 << 22, 1000, 1, 1)))
    losses = [event for event in events if isinstance(event, ObjectLost)]
    assert [(event.sender_id, event.reason) for event in losses] == [(hoarder.node_id, LossReason.NO_MEMORY)]


def test_auto_parity_leaves_nothing_behind() -> None:
    sender = SenderConfig(
        segment_bytes=64,
        block_segments=2,
        fec=Fec.RS,
        parity_segments=1,
        auto_parity=1,
        stream_bytes=1 << 16,
        rate_bps=None,
    )
    victim = Victim(sender=sender)
    stream = victim.engine.open_stream(None, victim.now)
    counts = []
    for _ in range(20):
        victim.engine.write(stream, memoryview(bytes(30_000)))
        victim.pass_time(0.01)
        counts.append(count_elements(victim.engine)[0])
    assert victim.engine.stats.parity_segments_sent > 4000
    assert counts[-1] <= counts[4]


# Time and number.


def timed(action: Iterator[object]) -> float:
    started = time.thread_time()
    for _ in action:
        pass
    return time.thread_time() - started


@pytest.mark.alone
def test_endless_blocks_are_asked_for_little_by_little(fake: Fake) -> None:
    victim = Victim()
    ext = fti(129, 1 << 26, 1, 1, 1)
    victim.take(fake, fake.data(0, 0, b"x", fti=ext, fec_id=129), fake.flush((1 << 26) - 1, 0, fec_id=129))
    assert timed(victim.pass_time(0.2) for _ in range(1)) < 0.5


def test_squelch_of_a_quarter_of_all_objects_is_one_event(fake: Fake) -> None:
    victim = Victim()
    victim.take(fake, fake.data(0, 0, bytes(100), fti=fti(5, 5000, 100, 10)), fake.flush(0, 9))
    fake.object_id = 0x3FFF
    events = victim.take(fake, fake.flush(0, 0, flavor=3))
    victim.pass_time(0.5)  # it asks again
    events += victim.take(fake, fake.flush(0, 0, flavor=3))
    assert [type(event) for event in events] == [ObjectLost, ObjectsMissed]
    assert isinstance(events[1], ObjectsMissed)
    assert (events[1].first_object_id, events[1].count) == (1, 0x3FFE)


def test_short_segments_that_waited_are_one_run(fake: Fake) -> None:
    victim = Victim()
    ext = fti(5, 1 << 20, 10, 200)

    def segment(at: int) -> bytes:
        return fake.data(0, at, b"\0\1\0\0" + at.to_bytes(4, "big") + bytes((at,)) + bytes(9), fti=ext, flags=0x20)

    victim.take(fake, segment(0))
    victim.take(fake, *(segment(at) for at in range(2, 100)))
    events = victim.take(fake, segment(1))
    runs = [event.data for event in events if isinstance(event, StreamReceived)]
    assert b"".join(runs) == bytes(range(1, 100))
    assert len(runs) == 2


def test_run_longer_than_the_ring_is_all_received(fake: Fake) -> None:
    victim = Victim(ReceiverConfig(sync=Sync.STREAM))
    ext = fti(5, 1, 10, 2, 1)
    rows = [
        fake.data(at // 2, at % 2, b"\0\x0a\0\0" + bytes(4) + bytes((at,)) * 10, fti=ext, flags=0x20)
        for at in range(40)
    ]
    events = victim.take(fake, *rows, segment_bytes=len(rows[0]))
    assert b"".join(event.data for event in events if isinstance(event, StreamReceived)) == b"".join(
        bytes((at,)) * 10 for at in range(40)
    )
    assert not [event for event in events if isinstance(event, StreamLost)]


@pytest.mark.alone
def test_nack_about_everything_many_times_is_cut_short() -> None:
    victim = Victim(sender=SenderConfig(cache_objects=256))
    ids = [victim.engine.enqueue(MemorySource(bytes(10)), None, False, victim.now) for _ in range(256)]
    victim.pass_time(1.0)
    pair = item(ids[0]) + item(ids[-1])
    nack = feedback(4, 9, TARGET, sender_of(victim.engine).instance_id, request(2, 8, pair * 4000))
    (fake,) = fakes(1)
    assert timed(victim.take(fake, nack) for _ in range(1)) < 0.1
    assert victim.drops(Drop.RATE_LIMITED) == 1
    victim.pass_time(1.0)
    assert victim.engine.stats.repair_segments_sent == 256


# Bytes out.


@pytest.mark.parametrize("is_unicast", [True, False], ids=["unicast", "group"])
def test_silent_sender_is_not_asked_on_and_on(is_unicast: bool) -> None:
    """The first datagrams of the sender claim a round trip of a microsecond, and leave many segments missing."""
    victim = Victim(ReceiverConfig(unicast_nack=is_unicast))
    (fake,) = fakes(1, grtt_q=0, backoff_gsize=0)
    ext = fti(5, 1 << 20, 1000, 2)
    victim.take(fake, *(fake.data(at, 0, bytes(1000), fti=ext) for at in range(500)))
    victim.pass_time(0.5)
    victim.sent.clear()
    victim.take(fake, fake.flush(500, 0))
    victim.pass_time(29.0)
    assert 0 < len(victim.sent_of(Nack)) <= 22
    assert max(map(len, victim.sent_of(Nack))) <= 128 + 36


def test_answers_that_wait_are_bounded() -> None:
    victim = Victim(ReceiverConfig(senders_max=2000))
    for fake in fakes(1500):
        probe = fake.probe(ME + b"\x01\x01\x40\x05")
        victim.engine.receive_train(Train(np.frombuffer(probe, np.uint8), len(probe), fake.address), victim.now)
        victim.now += 0.065  # so many new senders are admitted
    victim.engine.handle_timeout(victim.now)
    victim.settle()
    assert len(victim.sent) == 1024
    assert victim.drops(Drop.RATE_LIMITED) == 476


def test_new_data_go_out_however_often_the_old_are_asked_for() -> None:
    victim = Victim(sender=SenderConfig(segment_bytes=100, rate_bps=1e6, grtt_min_s=1e-3, grtt_s=1e-3))
    engine = victim.engine
    old = engine.enqueue(MemorySource(bytes(100_000)), None, False, victim.now)
    victim.pass_time(3.0)
    new = engine.enqueue(MemorySource(bytes(10_000)), None, False, victim.now)
    (fake,) = fakes(1)
    for _ in range(400):
        victim.take(fake, feedback(4, 9, TARGET, sender_of(engine).instance_id, request(2, 8, item(old) + item(old))))
        victim.pass_time(0.005)
    sent = [decode(data) for data in victim.sent_of(Data)]
    assert sum(1 for data in sent if isinstance(data, Data) and data.object_id == new) == 100


def test_overwritten_stream_data_is_not_repaired_with_newer_data() -> None:
    """The requested data is overwritten before the sender sends the repair."""
    victim = Victim(sender=SenderConfig(segment_bytes=64, block_segments=4, stream_bytes=1 << 16, rate_bps=1e6))
    engine = victim.engine
    content = Random(1).randbytes(96_000)
    stream = engine.open_stream(None, victim.now)
    written = 0
    while written < 64_000:
        written += engine.write(stream, memoryview(content)[written:64_000])
        engine.flush(stream)
        victim.pass_time(0.5)
    (fake,) = fakes(1)
    nack = feedback(4, 9, TARGET, sender_of(engine).instance_id, request(2, 8, item(stream) + item(stream)))
    engine.receive_train(Train(np.frombuffer(nack, np.uint8), len(nack), fake.address), victim.now)
    assert engine.write(stream, memoryview(content)[written:]) == 32_000
    victim.pass_time(5.0)
    assert engine.stats.repair_segments_sent > 400
    for data in victim.sent_of(Data):
        message = decode(data)
        assert isinstance(message, Data)
        at = 64 * ((message.payload_id >> 8) * 4 + (message.payload_id & 255))
        assert message.payload[8:] == content[at : at + 64]


# Strangers.


def test_fake_senders_push_out_neither_the_honest_nor_keep_out_new_ones() -> None:
    victim = Victim(ReceiverConfig(senders_max=20, inactivity_s=30.0))
    honest, *others = fakes(2000)
    ext = fti(5, 1 << 20, 100, 10)
    victim.take(honest, honest.data(0, 0, b"\0\1\0\1\0\0\0\0a" + bytes(99), fti=ext, flags=0x20))
    for number, fake in enumerate(others):
        content = fake.data(0, 0, b"tiny", fti=fti(5, 4, 1000, 64)) if number & 1 else fake.probe()
        victim.take(fake, content)
        victim.now += 1e-4
        if number % 100 == 0:
            victim.take(honest, honest.data(0, 1, bytes(108), fti=ext, flags=0x20))
    assert honest.node_id in victim.engine.remote_senders
    assert victim.drops(Drop.TOO_MANY_SENDERS)
    victim.now += 10.0
    late = next(islice(fakes(3000), 2999, None))
    events = victim.take(late, late.data(0, 0, b"late", fti=fti(5, 4, 1000, 64)))
    assert isinstance(events[0], SenderVanished)
    assert late.node_id in victim.engine.remote_senders


def test_restarts_without_end_leave_little_behind(fake: Fake) -> None:
    victim = Victim()
    for number in range(5000):
        fake.instance_id = number
        victim.take(fake, fake.info(b"", fti(5, 1000, 100, 10)))
    assert count_elements(victim.engine)[0] < 10_000
    assert not victim.sent_of(Info)
    assert not victim.sent_of(RepairAdv)
