"""Tests of samples of packet captures: they agree with the wire for every format, even if a capture is damaged."""

import io
import json
import struct
import tracemalloc
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import captures
import pcap
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from fjm2.errors import CaptureError, ConfigError
from fjm2.norm import SenderConfig, SessionConfig
from fjm2.norm.core.engine import Engine
from fjm2.norm.core.wire import Ack, AckType, Data, Fti, Nack, ObjectFlag
from fjm2.record import Labels
from fjm2.traces.capture import IDLE_MAX_S, SENDERS_MAX, CaptureSampler, samples_of
from fjm2.traces.frames import Datagram, NoDatagram, datagram_of
from fjm2.traces.pcap import PcapReader
from fjm2.traces.sequences import Sequences

VECTORS = Path(__file__).parents[2] / "vectors"
GOLDEN = sorted(path.stem for path in VECTORS.glob("*.pcap") if path.stem != "crafted")
LABELS = Labels(run="r", node="n")
FTI = Fti(fec_id=5, object_bytes=1 << 20, segment_bytes=100, block_segments=10, parity_segments=4)


def samples(data: bytes, interval_s: float = 0.1, **options: Any) -> list[dict[str, Any]]:
    return list(samples_of(io.BytesIO(data), LABELS, interval_s, **options))


def totals(data: bytes, **options: Any) -> dict[str, Counter[str]]:
    """Return the sums of the counters and drops of each source in a capture."""
    found: dict[str, Counter[str]] = {}
    for line in samples(data, **options):
        found.setdefault(line["source"], Counter()).update(line["c"])
        found[line["source"]].update({f"drop_{name}": count for name, count in line.get("drops", {}).items()})
    return found


def data(sequence: int, symbol: int, block: int = 0, **changes: Any) -> bytes:
    """Return a DATA datagram with one segment of an object."""
    fields: dict[str, Any] = {
        "source_id": 7,
        "instance_id": 1,
        "grtt_q": 100,
        "backoff": 4,
        "gsize_q": 2,
        "flags": 0,
        "fec_id": 5,
        "object_id": 3,
        "payload": bytes(100),
        "extensions": (FTI,),
    }
    return Data(**fields | {"sequence": sequence & 0xFFFF, "payload_id": block << 8 | symbol} | changes).encode()


def capture_of(*payloads: bytes) -> bytes:
    """Return a capture of these datagrams, sent 10 ms apart."""
    frames = [
        (1e9 + number / 100, captures.ethernet(captures.ipv4(captures.udp(one)))) for number, one in enumerate(payloads)
    ]
    return captures.pcap(frames)


# Golden captures.


@cache
def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return found


@pytest.mark.parametrize("name", GOLDEN)
def test_messages_are_counted_by_kind(name: str) -> None:
    kinds = golden(name)["packet_kinds"]
    found = totals((VECTORS / f"{name}.pcap").read_bytes())
    assert found.keys() == {"capture", "sender:00000001"}
    counts = found["sender:00000001"]
    for kind in ("DATA", "INFO", "NACK"):
        assert counts[f"{kind.lower()}_datagrams"] == kinds.get(kind, 0), kind
    for kind in ("CMD", "ACK"):
        assert counts[f"{kind.lower()}_datagrams"] == sum(n for one, n in kinds.items() if one.startswith(kind)), kind
    commands = {"FLUSH": "flushes_sent", "CC": "probes_sent", "SQUELCH": "squelches_sent"}
    for flavor, counter in commands.items():
        assert counts[counter] == kinds.get(f"CMD({flavor})", 0)
    assert found["capture"]["packets"] == sum(kinds.values())
    sizes = [len(bytes.fromhex(packet["hex"])) for packet in golden(name)["packets"]]
    assert counts["bytes_sent"] + counts["bytes_received"] == sum(sizes)
    assert not counts["datagrams_twice"]


@pytest.mark.parametrize("name", GOLDEN)
def test_segments_repairs_and_parity_are_told_apart(name: str) -> None:
    """A model that remembers everything gives the expected counts.

    It takes block lengths from the formula in RFC 5052.
    """
    seen: set[tuple[int, int, int]] = set()
    expected: Counter[str] = Counter()
    ftis: dict[int, dict[str, Any]] = {}
    for packet in golden(name)["packets"]:
        decoded = packet["decoded"]
        fti = next((one for one in decoded.get("extensions", ()) if one["name"] == "EXT_FTI"), None)
        if fti is not None:
            ftis[decoded["object_id"]] = fti
        if packet["kind"] != "DATA":
            continue
        place = decoded["object_id"], decoded["source_block_number"], decoded["encoding_symbol_id"]
        if place[2] >= block_length(decoded, ftis[place[0]]):
            expected["parity_segments_sent"] += 1
        elif place in seen:
            expected["repair_segments_sent"] += 1
        else:
            expected["segments_sent"] += 1
            expected["payload_bytes_sent"] += decoded.get("stream_payload_len", decoded["payload_len"])
        seen.add(place)
    counts = totals((VECTORS / f"{name}.pcap").read_bytes())["sender:00000001"]
    assert {counter: counts[counter] for counter in expected} == dict(expected)
    application = golden(name)["application"]
    content = application.get("stream_bytes") or sum(application.get("object_sizes", ()))
    assert counts["payload_bytes_sent"] == content


def block_length(decoded: dict[str, Any], fti: dict[str, Any]) -> int:
    if "STREAM" in decoded["flags"]:
        return int(fti["max_source_block_len"])
    segments = -(-fti["object_size"] // fti["segment_size"])
    blocks = -(-segments // fti["max_source_block_len"])
    return segments // blocks + (decoded["source_block_number"] < segments % blocks)


@pytest.mark.parametrize("interval_s", [0.01, 0.1, 5.0])
def test_samples_cover_the_time_without_gap_or_overlap(interval_s: float) -> None:
    raw = (VECTORS / "loss-burst.pcap").read_bytes()
    lines = samples(raw, interval_s)
    whole = totals(raw)
    for source in whole:
        own = [line for line in lines if line["source"] == source]
        assert [line["seq"] for line in own] == list(range(len(own)))
        assert all(abs(own[at]["t"] - own[at]["dt"] - own[at - 1]["t"]) < 1e-5 for at in range(1, len(own)))
        assert sum((Counter(line["c"]) for line in own), Counter[str]()) == +whole[source]
        assert all(line["dt"] <= max(interval_s, 1.0) + 1e-9 for line in own)
    assert all(line["role"] == "capture" and line["kind"] == "sample" and line["v"] == 1 for line in lines)
    advertised = {round(packet["decoded"].get("grtt", 0), 6) for packet in golden("loss-burst")["packets"]}
    assert {round(line["g"]["grtt_s"], 6) for line in lines if line["g"]} <= advertised


# Captures as other programs write them.


def traffic(wrap: Any = captures.ipv4) -> list[tuple[float, bytes]]:
    return [(1.7e9 + number / 64, wrap(captures.udp(data(number, number % 10, number // 10)))) for number in range(40)]


EXPECTED = {"segments_sent": 40, "payload_bytes_sent": 4000, "datagrams_sent": 40, "data_datagrams": 40}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("is_nano", [False, True])
@pytest.mark.parametrize("link", captures.LINKS)
@pytest.mark.parametrize("wrap", [captures.ipv4, captures.ipv6])
def test_pcap_of_every_kind(order: str, is_nano: bool, link: int, wrap: Any) -> None:
    frames = [(time_s, captures.LINKS[link](ip)) for time_s, ip in traffic(wrap)]
    file = captures.pcap(frames, link, order, is_nano)
    counts = totals(file)["sender:00000007"]
    assert {name: counts[name] for name in EXPECTED} == EXPECTED
    assert samples(file, 0.25)[0]["t"] == 1.7e9 + 0.25


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("resolution", [None, 6, 9, 128 + 20])
def test_pcapng_of_every_kind(order: str, resolution: int | None) -> None:
    frames = [(time_s, captures.ethernet(ip)) for time_s, ip in traffic()]
    one = captures.pcapng(frames, order=order, resolution=resolution)
    assert samples(one) == samples(captures.pcap(frames))
    # Sections follow each other, each with its own interfaces.
    later = [(time_s + 1, captures.raw(ip)) for time_s, ip in traffic()]
    assert totals(one + captures.pcapng(later, captures.RAW, ">"))["capture"]["packets"] == 80


@pytest.mark.parametrize("link", [captures.ETHERNET, captures.SLL, captures.SLL2])
@pytest.mark.parametrize("tags", [(0x8100,), (0x88A8, 0x8100)])
def test_vlan_tags_are_skipped(link: int, tags: tuple[int, ...]) -> None:
    frame = captures.LINKS[link](captures.ipv4(captures.udp(b"content")), *tags)
    found = datagram_of(link, frame, len(frame))
    assert isinstance(found, Datagram)
    assert (found.payload, found.source_port) == (b"content", captures.PORT)


def test_rare_headers_are_parsed() -> None:
    hop_by_hop = struct.pack(">BB6x", 60, 0) + struct.pack(">BB14x", 17, 1)
    good = [
        captures.ipv4(captures.udp(b"content"), options=bytes(8)),
        captures.ipv4(captures.udp(b"content", length=0)),
        captures.ipv4(captures.udp(b"content"), total=0),
        captures.ipv4(captures.udp(b"content")) + bytes(18),  # padding of short frames
        captures.ipv6(captures.udp(b"content"), 0, hop_by_hop),
    ]
    for ip in good:
        found = datagram_of(captures.RAW, ip, len(ip))
        assert isinstance(found, Datagram)
        assert found.payload == b"content"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (captures.ipv4(captures.udp(b"x" * 40), fragment=0x2000), NoDatagram.FRAGMENT),
        (captures.ipv4(b"x" * 40, fragment=185), NoDatagram.FRAGMENT),
        (captures.ipv6(struct.pack(">BBHI", 17, 0, 1, 9) + captures.udp(b"x"), 44), NoDatagram.FRAGMENT),
        (captures.ipv4(b"x" * 40, protocol=6), NoDatagram.NOT_UDP),
        (captures.ipv6(b"x" * 40, 58), NoDatagram.NOT_UDP),
        (b"\x50" + bytes(60), NoDatagram.NOT_UDP),
        (captures.ipv4(captures.udp(b"x"))[:24], NoDatagram.CUT_SHORT),
        (captures.ipv4(b"")[:12], NoDatagram.CUT_SHORT),
        (captures.ipv6(b"")[:30], NoDatagram.CUT_SHORT),
    ],
)
def test_frames_without_a_datagram_have_a_reason(frame: bytes, reason: NoDatagram) -> None:
    assert datagram_of(captures.RAW, frame, len(frame)) is reason
    assert datagram_of(999, frame, len(frame)) is NoDatagram.LINK_TYPE


def test_left_out_packets_are_counted() -> None:
    payloads = [data(0, 0), b"no NORM at all", b"", b"\x12" + bytes(30), data(1, 1)]
    frames = [(1e9, captures.ethernet(captures.ipv4(captures.udp(one)))) for one in payloads]
    frames.append((1e9, captures.ethernet(captures.ipv4(captures.udp(data(2, 2), port=9)))))
    frames.append((1e9, captures.ethernet(captures.ipv4(b"x" * 40, protocol=6))))
    found = totals(captures.pcap(frames), ports=[captures.PORT])
    drops = {name: count for name, count in found["capture"].items() if name.startswith("drop_")}
    assert drops == {"drop_not_norm": 2, "drop_malformed": 1, "drop_other_port": 1, "drop_not_udp": 1}
    assert found["sender:00000007"]["segments_sent"] == 2
    assert totals(captures.pcap(frames))["sender:00000007"]["segments_sent"] == 3


def test_a_capture_that_breaks_off_is_read_as_far_as_it_goes() -> None:
    frames = [(time_s, captures.ethernet(ip)) for time_s, ip in traffic()[:6]]
    for file in (captures.pcap(frames), captures.pcapng(frames)):
        counts = []
        for end in range(24, len(file)):
            reader = PcapReader(io.BytesIO(file[:end]))
            counts.append(len(list(reader)))
            assert not reader.problem or f"byte {end}" in reader.problem
        assert counts == sorted(counts)
        assert {0, 5} <= set(counts) <= set(range(7))
        sampler = CaptureSampler(io.BytesIO(file[:-1]), LABELS)
        assert sum(line.get("drops", {}).get("torn", 0) for line in sampler.samples()) == 1
        assert sampler.problem


@pytest.mark.parametrize("content", [b"", b"\xd4\xc3", b"#!/bin/sh\n" * 9, b"PK\x03\x04" + bytes(50)])
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(CaptureError, match="not a packet capture"):
        samples_of(io.BytesIO(content), LABELS)


def test_an_invalid_interval_is_refused() -> None:
    with pytest.raises(ConfigError, match="interval_s=0"):
        samples_of(io.BytesIO(captures.pcap([])), LABELS, 0)


# Traffic on the wire.


def test_repairs_gaps_and_copies() -> None:
    sent = [(0, 0), (1, 1), (2, 2), (4, 4), (5, 1), (5, 1), (3, 3), (6, 5), (7, 12), (8, 5)]
    counts = totals(capture_of(*(data(65_533 + sequence, symbol) for sequence, symbol in sent)))["sender:00000007"]
    assert counts["datagrams_twice"] == 1  # a datagram that was captured twice
    assert (counts["sequence_missed"], counts["sequence_late"]) == (1, 1)
    assert counts["parity_segments_sent"] == 1
    # A segment that arrived late looks like a repair. A capture does not show the difference.
    assert (counts["segments_sent"], counts["repair_segments_sent"]) == (5, 3)


def test_segments_marked_as_repair_count_as_repairs() -> None:
    counts = totals(capture_of(data(0, 0), data(1, 5, flags=int(ObjectFlag.REPAIR))))["sender:00000007"]
    assert (counts["segments_sent"], counts["repair_segments_sent"]) == (1, 1)


def test_a_restarted_sender_begins_anew() -> None:
    counts = totals(capture_of(data(500, 0), data(501, 1), data(9, 0, instance_id=2)))["sender:00000007"]
    assert (counts["restarts"], counts["segments_sent"], counts["sequence_missed"]) == (1, 3, 0)


def test_answers_count_at_the_sender_they_are_for() -> None:
    common: dict[str, Any] = {"source_id": 99, "sender_id": 7, "instance_id": 1}
    nack = Nack(**common, requests=()).encode()
    ack = Ack(**common, ack_type=int(AckType.CC)).encode()
    found = totals(capture_of(nack, ack, ack))
    assert found.keys() == {"capture", "sender:00000007"}
    counts = found["sender:00000007"]
    assert (counts["nacks_received"], counts["acks_received"], counts["datagrams_received"]) == (1, 2, 3)
    assert (counts["nack_bytes"], counts["ack_bytes"]) == (len(nack), 2 * len(ack))


@pytest.mark.parametrize("cut", [0, 42 + 60])
def test_offloaded_trains_are_counted_as_datagrams(cut: int) -> None:
    """A packet in a capture of a host's own traffic may contain many datagrams.

    Only its first bytes may be captured.
    """
    singles = [data(number, number % 10, number // 10) for number in range(30)]
    singles[-1] = singles[-1][:-60]
    lone = totals(capture_of(*singles))["sender:00000007"]
    trains = [b"".join(singles[start : start + 10]) for start in range(0, 30, 10)]
    frames = [(1e9, captures.ethernet(captures.ipv4(captures.udp(train)))) for train in trains]
    assert totals(captures.pcap(frames, snap=cut))["sender:00000007"] == lone
    assert lone["segments_sent"] == 30


@pytest.mark.parametrize("cut", [0, 42 + 60])
def test_a_capture_of_our_engine_agrees_with_its_counters(cut: int) -> None:
    config = SessionConfig(node_id=5, sender=SenderConfig(rate_bps=None), receiver=None)
    engine = Engine(config, ("224.1.2.3", captures.PORT), random=Random(1))
    stream = engine.open_stream(None, 0.0)
    frames, now = [], 0.0
    for size in (10, 5000, 200_000, 1):
        engine.write(stream, memoryview(bytes(size)), (0,))
        engine.flush(stream)
        now += 0.01
        engine.handle_timeout(now)
        while (train := engine.poll_train(now)) is not None:
            frames.append((1e9 + now, captures.ethernet(captures.ipv4(captures.udp(train.data.tobytes())))))
    found = totals(captures.pcap(frames, snap=cut))
    counts, stats = found["sender:00000005"], engine.stats
    assert stats.payload_bytes_sent == 205_011
    cut_short = found["capture"]["drop_cut_short"]
    assert not (cut_short and not cut)
    for name in ("segments_sent", "payload_bytes_sent"):
        assert counts[name] == getattr(stats, name), name
    if not cut_short:
        assert counts["datagrams_sent"] == stats.datagrams_sent
        assert counts["bytes_sent"] == stats.bytes_sent


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans(), st.booleans()), max_size=200), st.integers(0, 65_535))
def test_sequences_find_missing_late_and_duplicate_numbers(runs: list[tuple[int, bool, bool]], first: int) -> None:
    """Some runs are lost, duplicated or late. A set of all numbers gives the expected counts."""
    sequences, number, seen, twice = Sequences(), first, set[int](), 0
    held: list[tuple[int, int]] = []
    sequences.note(first & 0xFFFF, 1)
    seen.add(first)
    number += 1
    for count, is_lost, is_late in runs:
        if is_late and len(held) < 3:
            held.append((number, count))
        elif not is_lost:
            for start, length in [(number, count), *held, (number, 1)]:
                expected = [at for at in range(length) if start + at in seen]
                assert sequences.note(start & 0xFFFF, length) == expected
                seen.update(range(start, start + length))
                twice += len(expected)
            held.clear()
        number += count
    last = max(seen)
    assert sequences.missed - sequences.late == last - first + 1 - len(seen)


def test_a_long_silence_is_left_out_and_a_short_one_has_samples() -> None:
    times = [1000.0, 1002.55, 1003.0 + IDLE_MAX_S * 3]
    frames = [(at, captures.ethernet(captures.ipv4(captures.udp(data(n, n))))) for n, at in enumerate(times)]
    own = [line for line in samples(captures.pcap(frames)) if line["source"] != "capture"]
    assert [(round(line["dt"], 6), line["c"].get("segments_sent", 0)) for line in own] == [
        *[(0.1, 1), (1.0, 0), (1.0, 0), (0.4, 0), (0.1, 1)],
        (0.1, 1),
    ]
    assert [line["seq"] for line in own] == list(range(6))


# Hostile captures.


@settings(max_examples=examples(300))
@given(
    st.binary(max_size=400), st.sampled_from([captures.pcap([]), captures.pcapng([]), captures.pcapng([], order=">")])
)
def test_any_bytes_after_a_valid_header_do_no_harm(junk: bytes, head: bytes) -> None:
    json.dumps(samples(head + junk), allow_nan=False)


@cache
def material() -> tuple[bytes, ...]:
    frames = [(time_s, captures.ethernet(ip)) for time_s, ip in traffic()[:20]]
    crafted = [
        (n / 10, captures.ethernet(captures.ipv4(captures.udp(one.payload))))
        for n, one in enumerate(pcap.read(VECTORS / "crafted.pcap"))
    ]
    return captures.pcap(frames), captures.pcapng(frames), captures.pcap(crafted), captures.pcap(frames, snap=90)


@settings(max_examples=examples(500))
@given(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=12))
def test_captures_with_flipped_bytes_do_no_harm(which: int, changes: list[tuple[int, int]]) -> None:
    file = bytearray(material()[which])
    for at, value in changes:
        file[at % len(file)] = value
    try:
        lines = samples(bytes(file))
    except CaptureError:
        return
    json.dumps(lines, allow_nan=False)
    assert all(line["dt"] > 0 and all(value >= 0 for value in line["c"].values()) for line in lines)


@pytest.mark.slow
def test_a_flood_of_senders_takes_bounded_memory() -> None:
    random = Random(5)
    many = 3 * SENDERS_MAX
    payloads = [data(0, 0, source_id=random.getrandbits(32), object_id=random.getrandbits(16)) for _ in range(many)]
    found = totals(capture_of(*payloads))
    assert len(found) == SENDERS_MAX + 2
    assert found["others"]["data_datagrams"] + found["others"]["datagrams_twice"] > SENDERS_MAX
    assert sum(counts["data_datagrams"] + counts["datagrams_twice"] for counts in found.values()) == many


@pytest.mark.slow
def test_memory_does_not_grow_with_the_capture() -> None:
    def peak(count: int) -> int:
        file = io.BytesIO(capture_of(*(data(n, n % 10, n // 10 % 1000) for n in range(count))))
        tracemalloc.start()
        for _ in samples_of(file, LABELS):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(100)
    assert peak(20_000) < peak(2000) + 200_000


@pytest.mark.slow
def test_a_stream_whose_blocks_run_away_does_not_overflow() -> None:
    """Each block number is ahead of the previous one by nearly half of the number space."""
    fti = Fti(fec_id=129, object_bytes=0, segment_bytes=100, block_segments=65_535)
    changes: dict[str, Any] = {"fec_id": 129, "flags": int(ObjectFlag.STREAM), "extensions": (fti,)}
    blocks = (n * ((1 << 31) - 1) & 0xFFFFFFFF for n in range(20_000))
    payloads = [data(n, 0, payload_id=block << 32 | 65_535 << 16, **changes) for n, block in enumerate(blocks)]
    counts = totals(capture_of(*payloads))["sender:00000007"]
    assert counts["segments_sent"] > 19_900
    assert counts["data_datagrams"] == 20_000
