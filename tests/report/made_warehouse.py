"""A small made-up warehouse in the pipeline's format: every experiment of the full plan, with some faults."""

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DAYS = (datetime.date(2026, 3, 1), datetime.date(2026, 3, 2))
SIZES = (64, 1024, 8192, 65536)
MESSAGES = ("fjm2-jms", "fjm2", "libnorm", "pyzmq", "zenoh", "cyclonedds", "nats", "mosquitto", "jgroups", "activemq")
BROKERS = ("fjm2-jms", "activemq", "activemq-stomp", "nats", "mosquitto", "zenoh")
RAW = ("udp-unicast", "udp-multicast", "udp-trains", "udp-c")
WAYS = ("fjm2d", "plain-relay", "direct")
LAYERS = {"fjm2-jms": "jms", "fjm2": "norm", **dict.fromkeys(RAW, "udp")}
_MACHINE = {"cpu": "Made-Up 3000", "cores": "2", "kernel": "Linux 6.1", "python": "CPython 3.11", "load": "0.50"}
RESULTS = pa.schema(
    [
        ("t", pa.timestamp("us", "UTC")),
        *((name, pa.string()) for name in ("run", "node", "system", "layer", "role", "scenario")),
        ("size", pa.int64()),
        ("fanout", pa.int64()),
        ("loss", pa.float64()),
        ("rate_bps", pa.float64()),
        ("link", pa.string()),
        ("source", pa.string()),
        ("r", pa.map_(pa.string(), pa.float64())),
        ("labels", pa.map_(pa.string(), pa.string())),
        ("file", pa.string()),
        ("offset", pa.int64()),
    ]
)


class Maker:
    """A maker of rows of results. The seed determines all random values."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._number = 0

    def row(self, system: str, figures: dict[str, float], **more: Any) -> dict[str, Any]:
        self._number += 1
        labels = {"plan": "made", "version": "1.2", "settings": f"{system} as fast as it goes", "cell": "x", **_MACHINE}
        labels |= more.pop("labels", {})
        at = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC) + datetime.timedelta(seconds=self._number)
        return {
            "t": at,
            "run": f"r{self._number}.{system}",
            "node": "bench",
            "system": system,
            "layer": LAYERS.get(system, "messages"),
            "role": "run",
            "scenario": "lan",
            "size": 1024,
            "fanout": 1,
            "loss": 0.0,
            "rate_bps": None,
            "link": None,
            "source": "bench",
            "r": list(figures.items()),
            "labels": list({**labels, **({} if "experiment" in labels else {"experiment": "made"})}.items()),
            "file": "made.jsonl",
            "offset": self._number,
            **{name: value for name, value in more.items() if name != "labels"},
        }

    def throughput(self, system: str, size: int, **more: Any) -> Iterator[dict[str, Any]]:
        """Yield results of three runs. Each comes with a result of its publishing process, which must not count."""
        limit = (more.get("rate_bps") or 2e10) * 0.94
        speed = 1.0 / (1 + sum(map(ord, system)) % 9)
        for _ in range(3):
            bps = min(limit, size * 8 * 4e5 * speed) * self._random.uniform(0.8, 1.0)
            figures = {
                "msgs_per_s": bps / 8 / size,
                "gbit_per_s": bps / 1e9,
                "cpu_s_per_gb": 40 / size**0.5 / speed,
                "messages": 1e5,
            }
            run = self.row(system, figures, size=size, **more)
            yield run
            yield run | {"role": "pub", "node": "pub", "r": [("msgs_per_s", 1e12), ("gbit_per_s", 1e12)]}

    def rows(self) -> Iterator[dict[str, Any]]:
        for size in SIZES:
            for system in MESSAGES:
                yield from self.throughput(system, size)
            for system in BROKERS:
                yield from self.throughput(system, size, scenario="loopback")
                yield from self.throughput(system, size, rate_bps=1e8)
                yield from self.throughput(system, size, rate_bps=1e8, fanout=2)
            for system in RAW:
                yield from self.throughput(system, size, scenario="loopback")
                yield from self.throughput(system, size, rate_bps=1e8)
            for way in WAYS:
                yield from self.throughput(way, size, scenario="wan", rate_bps=1e8, layer="jms")
        yield from self._by_fanout_and_loss()
        yield from self._latency_and_codes()
        yield from self._trouble()

    def _by_fanout_and_loss(self) -> Iterator[dict[str, Any]]:
        for fanout in (2, 4, 8):
            for system in MESSAGES[:6]:
                yield from self.throughput(system, 8192, fanout=fanout)
        for fanout in (4, 8):
            for system in BROKERS:
                yield from self.throughput(system, 8192, fanout=fanout, rate_bps=1e8)
        for loss in (0.001, 0.01, 0.1):
            for system in ("fjm2-jms", "fjm2", "libnorm"):
                yield from self.throughput(system, 1024, rate_bps=1e8, loss=loss)
            for way in WAYS:
                yield from self.throughput(way, 8192, scenario="wan", rate_bps=1e8, layer="jms", loss=loss)

    def _latency_and_codes(self) -> Iterator[dict[str, Any]]:
        for number, system in enumerate(MESSAGES):
            for size in (64, 1024):
                p50 = 50.0 + 20 * number + size / 100
                figures = {"p50_us": p50, "p99_us": p50 * 3, "p999_us": p50 * 9, "max_us": p50 * 20}
                yield self.row(system, figures, size=size)
        for coder in ("fjm2", "zfec"):
            for symbol in (512, 1024, 1440):
                for size in (1024, 16384, 65536):
                    figures = {"encode_s": size / symbol * (1e-6 if coder == "fjm2" else 3e-6)}
                    labels = {"symbol_bytes": str(symbol)}
                    more = {"fanout": None, "loss": None, "scenario": f"symbols-{symbol}", "labels": labels}
                    yield self.row(coder, figures, size=size, layer="fec", **more)

    def _trouble(self) -> Iterator[dict[str, Any]]:
        """Yield a failed run, which has figures all the same, and a system that is not installed."""
        yield self.row("nats", {"msgs_per_s": 1e9, "gbit_per_s": 1e9}, labels={"fault": "12 lost <b>&"})
        missing = {"missing": "java is not installed", "fault": "missing: java is not installed"}
        row = self.row("activemq-stomp", {}, size=None, fanout=None, loss=None, scenario=None, labels=missing)
        row["labels"] = [pair for pair in row["labels"] if pair[0] != "cell"]
        yield row


LABELS = ("system", "layer", "scenario", "role", "size", "fanout", "loss", "rate_bps", "node", "source", "link")
COUNTERS = ("segments_sent", "nacks_sent", "nacks_suppressed", "repair_segments_sent", "parity_segments_sent")
MOVED = ("bytes", "bytes_sent")


TRIAL = datetime.datetime(2026, 3, 2, 23, 59, 0, tzinfo=datetime.UTC)
TRIAL_SAMPLES = 1000
"""Number of samples of each series of the run `trial`, which lasts beyond midnight."""
SAMPLED = (
    *(f"{kind}_{way}" for kind in ("payload_bytes", "bytes", "nacks") for way in ("sent", "received")),
    *("messages_lost", "bytes_lost", "repair_segments_sent", "parity_segments_sent", "window_waits", "queue_bytes"),
)


class Samples:
    """A maker of rows of aggregates. The seed determines all random values."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def runs(self) -> Iterator[dict[str, Any]]:
        """Yield FJM2's series at several losses, and a series of a network without loss.

        The report must not show the latter beside the others.
        """
        for loss in (0.0, 0.001, 0.01, 0.1):
            for fanout in (1, 4):
                for turn in range(2):
                    yield self._run(f"loss{loss}x{fanout}.{turn}", loss, fanout)
        yield self._run("alone", 0.0, 8)
        end = TRIAL + datetime.timedelta(seconds=TRIAL_SAMPLES / 10)
        nothing = dict.fromkeys(self._run("", 0.0, 1))
        yield nothing | {"run": "trial", "start": TRIAL, "end": end, "lines": 3 * TRIAL_SAMPLES}

    def _run(self, run: str, loss: float, fanout: int) -> dict[str, Any]:
        sent = self._random.randrange(50_000, 90_000)
        lost = int(sent * loss * fanout)
        counts = (sent, lost // 7, lost // 7 * (fanout - 1) // 3, lost, lost // 11)
        label = {"system": "fjm2", "layer": "norm", "scenario": "lan", "size": 1024, "fanout": fanout, "loss": loss}
        times = {"start": TRIAL - datetime.timedelta(days=1), "end": TRIAL, "lines": 100}
        return {"run": run, **label, "rate_bps": 1e8, **times, **dict(zip(COUNTERS, counts, strict=True))}

    def trial(self) -> Iterator[dict[str, Any]]:
        """Yield the samples of a short run of a program's own: two subscribers and a publisher, ten times a second."""
        for node, way in (("desk-1", "received"), ("desk-2", "received"), ("feed", "sent")):
            label = {"run": "trial", "node": node, "source": "lane0", "link": None, "layer": "jms"}
            for seq in range(TRIAL_SAMPLES):
                is_bad = 300 <= seq < 305
                counters = dict.fromkeys(SAMPLED) | {f"payload_bytes_{way}": self._random.randrange(10**5, 10**6)}
                if is_bad:
                    counters |= {f"nacks_{'sent' if way == 'received' else 'received'}": 7, "window_waits": 2}
                    counters |= {"messages_lost": 3} if node == "desk-1" else {}
                    counters |= {"repair_segments_sent": 11} if way == "sent" else {}
                at = TRIAL + datetime.timedelta(seconds=(seq + 1) / 10)
                role = "pub" if way == "sent" else "sub"
                yield {"t": at, "dt": 0.1, **label, "role": role, "seq": seq, **counters}

    def minutes(self) -> Iterator[dict[str, Any]]:
        """Yield traffic of two gateways and a program in a production network, and of a program of the bench.

        The report shows the bench's program elsewhere.
        """
        nothing = dict.fromkeys(LABELS)
        for minute in range(30):
            at = datetime.datetime(2026, 3, 2, 9, minute, tzinfo=datetime.UTC)
            shared = {"minute": at, "seconds": 59.5}
            for node, peer in (("paris", "lyon"), ("lyon", "paris"), ("paris", "oslo")):
                moved = self._random.randrange(10**6, 10**9)
                link = {
                    "system": "fjm2d",
                    "layer": "gateway",
                    "role": "gateway",
                    "source": f"link:{peer}",
                    "link": peer,
                }
                names = {"run": "production", "node": node}
                yield {**nothing, **names, **link, **shared, "bytes": 2 * moved, "bytes_sent": moved}
            program = {"system": "fjm2-jms", "layer": "jms", "role": "node", "source": "lane0"}
            for run, node in (("production", "feed"), ("r1.fjm2-jms", "pub")):
                moved = self._random.randrange(10**6, 10**8)
                names = {"run": run, "node": node}
                yield {**nothing, **names, **program, **shared, "bytes": moved, "bytes_sent": moved}


TYPES = {
    "size": pa.int64(),
    "fanout": pa.int64(),
    "loss": pa.float64(),
    "rate_bps": pa.float64(),
    "seconds": pa.float64(),
    "dt": pa.float64(),
    "seq": pa.int64(),
    "lines": pa.int64(),
    **dict.fromkeys(("minute", "t", "start", "end"), pa.timestamp("us", "UTC")),
    **dict.fromkeys(SAMPLED, pa.int64()),
    **dict.fromkeys((*COUNTERS, *MOVED), pa.int64()),
}
ANOMALY = {
    "run": "20260302T091000.thesis-5-12-at-loss.fjm2-jms.jms.1024B.x1.loss0.01.100mbit.4",
    "node": "feed",
    "source": "session",
    "kind": "nack_storm",
    "start": datetime.datetime(2026, 3, 2, 9, 11, tzinfo=datetime.UTC),
    "seconds": 4,
    "value": 123.456789,
    "usual": 0.25,
}
COLLAPSE = ANOMALY | {
    "kind": "throughput_collapse",
    "start": datetime.datetime(2026, 3, 2, 9, 10, 5, tzinfo=datetime.UTC),
    "value": 1_200_000.0,
    "usual": 4.26e9,
}


def schema_of(row: dict[str, Any]) -> pa.Schema:
    return pa.schema([(column, TYPES.get(column, pa.string())) for column in row])


def write(folder: Path, name: str, rows: Sequence[dict[str, Any]], schema: pa.Schema | None = None) -> None:
    """Write rows to a Parquet file in a subfolder."""
    place = folder / name
    place.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema), place / "part-0.parquet")


def make(folder: Path, seed: int = 1) -> list[dict[str, Any]]:
    """Write a warehouse whose results are of two days. Return the rows of its results."""
    rows = list(Maker(seed).rows())
    for number, day in enumerate(DAYS):
        write(folder, f"results/day={day}", rows[number::2], RESULTS)
    samples = Samples(seed)
    tables = {"aggregates/by_run": list(samples.runs()), "aggregates/by_minute": list(samples.minutes())}
    trial = list(samples.trial())
    for day in DAYS[1], DAYS[1] + datetime.timedelta(days=1):
        tables[f"rows/day={day}"] = [row for row in trial if row["t"].date() == day]
    for name, made in tables.items():
        write(folder, name, made, schema_of(made[0]))
    write(folder, "aggregates/anomalies", [ANOMALY, COLLAPSE])
    return rows
