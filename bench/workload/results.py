"""Result lines: one line of JSON for each process, the same for all systems."""

import json
import time
from dataclasses import asdict, dataclass, field

import click

from fjm2.base.quantities import counted
from fjm2.errors import FJM2Error


class TimedOutError(FJM2Error):
    """A step of a benchmark did not finish in time. The message names the step."""


class StopWatch:
    """Stop watch of elapsed time, and of this process's CPU time, since the watch was made."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self.start = time.perf_counter()

    def elapsed(self) -> tuple[float, float]:
        """Return elapsed time and CPU time in seconds."""
        return time.perf_counter() - self.start, time.process_time() - self._cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class PubResult:
    """A publisher's result, from its first message until all messages were acknowledged."""

    system: str
    object: str
    """"stream" or "data"."""
    size: int
    batch: int = 1
    """Messages in one write."""
    properties: int = 0
    """Number of properties of each message, for systems that have them."""
    receivers: int
    not_acked: list[str] = field(default_factory=list)
    """Receivers that did not confirm that they have all messages."""
    messages: int
    bytes: int
    seconds: float
    msgs_per_s: float
    gbit_per_s: float
    cpu_s: float
    nacks: int | None = None
    """NACKs received. This and the fields below are None if the system does not report them."""
    repairs: int | None = None
    window_waits: int | None = None

    def text(self) -> str:
        return (
            f"{counted(self.messages, 'message')} of {self.size} B to {self.receivers} in {self.seconds:.3f} s: "
            f"{self.msgs_per_s:,.0f}/s, {self.gbit_per_s:.3f} Gbit/s, {self.cpu_s:.2f} s of CPU, "
            f"{counted(self.nacks or 0, 'NACK')}, {counted(self.repairs or 0, 'repair')}, "
            f"{counted(self.window_waits or 0, 'window wait')}"
            + (f"; not confirmed by {', '.join(self.not_acked)}" if self.not_acked else "")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubResult:
    """A subscriber's result, from its first message to its last."""

    system: str
    size: int
    ended: bool
    """True if the publisher's end of the run was seen."""
    verified: bool
    messages: int
    bytes: int
    seconds: float
    msgs_per_s: float
    gbit_per_s: float
    lost: int
    duplicated: int
    out_of_order: int
    corrupt: int
    loss_reports: int | None = None
    """Losses that the system itself reported. None if it does not report them."""
    cpu_s: float

    @property
    def is_lossless(self) -> bool:
        faults = self.lost or self.duplicated or self.corrupt or self.loss_reports
        return self.ended and self.messages > 0 and not faults

    def text(self) -> str:
        return (
            f"{counted(self.messages, 'message')} of {self.size} B in {self.seconds:.3f} s: {self.msgs_per_s:,.0f}/s, "
            f"{self.gbit_per_s:.3f} Gbit/s, {self.cpu_s:.2f} s of CPU; {self.lost} lost, {self.duplicated} duplicated, "
            f"{self.out_of_order} out of order, {self.corrupt} corrupt"
            + ("" if self.verified else " (content not verified)")
            + ("" if self.ended else "; the publisher's end was not seen")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PingResult:
    """Round-trip times, in microseconds."""

    system: str
    size: int
    count: int
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float

    def text(self) -> str:
        return (
            f"{counted(self.count, 'round trip')} of {self.size} B: p50 {self.p50_us:.1f}, p99 {self.p99_us:.1f}, "
            f"p99.9 {self.p999_us:.1f}, longest {self.max_us:.1f} us"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoResult:
    """An echo's result."""

    system: str
    messages: int

    def text(self) -> str:
        return f"{counted(self.messages, 'message')} sent back"


def print_ready(as_json: bool) -> None:
    """Print that the process is ready: from now on it misses no message."""
    click.echo(json.dumps({"ready": True}) if as_json else "ready", err=not as_json)


def print_result(result: PubResult | SubResult | PingResult | EchoResult, as_json: bool) -> None:
    """Print the result line."""
    click.echo(json.dumps(asdict(result)) if as_json else result.text())


def pub_result(
    *, system: str, form: str, size: int, messages: int, watch: StopWatch, receivers: int, **more: object
) -> PubResult:
    """Return a publisher's result, with rates computed from the other values."""
    seconds, cpu_s = watch.elapsed()
    rate = messages / seconds if seconds else 0.0
    known = {
        "messages": messages,
        "bytes": messages * size,
        "seconds": round(seconds, 6),
        "msgs_per_s": round(rate, 1),
        "gbit_per_s": round(rate * size * 8e-9, 6),
        "cpu_s": round(cpu_s, 3),
    }
    return PubResult(system=system, object=form, size=size, receivers=receivers, **known, **more)  # type: ignore[arg-type]


def ping_result(system: str, size: int, times_ns: list[int]) -> PingResult:
    """Return a ping's result. Percentiles are measured values, not interpolated."""
    ordered = sorted(times_ns)

    def at(part: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))] / 1000 if ordered else 0.0

    return PingResult(
        system=system,
        size=size,
        count=len(ordered),
        p50_us=at(0.5),
        p99_us=at(0.99),
        p999_us=at(0.999),
        max_us=at(1.0),
    )
