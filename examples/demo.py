"""Demonstration of FJM2 on this host: one publisher and three subscribers over a network that loses datagrams.

Each of them runs in its own process. All traffic stays on the loopback interface.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

PARTS = Path(__file__).parent / "demo_parts"
ON_THIS_HOST = "fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0"
SELECTOR = "symbol = 'ABC'"
SYMBOLS = 4
RATE_S = 1.0
"""Time over which rates are measured. A lost datagram holds up what follows it: messages arrive in bursts then."""
READY_S, ENDING_S = 20.0, 30.0
"""Timeouts: for a process to start, and for all messages to arrive at the end. They allow for a busy machine."""
console = Console(highlight=False, soft_wrap=True)


class DemoError(Exception):
    """Failure of one of the demo's processes."""


class Part:
    """A process of the demo, and the latest figures that it reported."""

    def __init__(self, name: str, selector: str = "") -> None:
        self.name = name
        self.selector = selector
        self.figures: dict[str, Any] = {"messages": 0, "lost": 0, "repairs": 0, "requests": 0}
        self.samples: list[str] = []
        self.is_ready, self.has_ended = asyncio.Event(), asyncio.Event()
        self._counts: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        """Times of the latest reports, and the messages so far; oldest first."""

    async def start(self, script: str, *arguments: object) -> None:
        pipe = asyncio.subprocess.PIPE
        # The process gets its own process group, so that only this program handles Ctrl-C.
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(PARTS / script), *map(str, arguments), stdin=pipe, stdout=pipe, process_group=0
        )
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            report = json.loads(line)
            if "sample" in report:
                self.samples.append(report["sample"])
                continue
            if "messages" in report:
                self._counts.append((time.monotonic(), report["messages"]))
                while len(self._counts) > 2 and self._counts[1][0] <= self._counts[-1][0] - RATE_S:
                    self._counts.popleft()
            self.figures |= report
            if "ready" in report:
                self.is_ready.set()
        self.has_ended.set()
        self.is_ready.set()

    @property
    def rate(self) -> float:
        """Messages per second, over the last second."""
        (began, before), (ended, after) = self._counts[0], self._counts[-1]
        return (after - before) / (ended - began) if ended > began else 0.0

    async def ready(self) -> None:
        await within(READY_S, self.is_ready, f"the {self.name} did not start")
        if "ready" not in self.figures:
            raise DemoError(f"the {self.name} ended at once")

    def order(self, text: object) -> None:
        assert self.process.stdin is not None
        if not self.process.stdin.is_closing():
            self.process.stdin.write(f"{text}\n".encode())

    async def stop(self) -> None:
        if not self.has_ended.is_set():
            self.process.kill()
        await self.process.wait()
        await self.reading


async def within(seconds: float, event: asyncio.Event, otherwise: str) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        raise DemoError(otherwise) from None


class Demo:
    def __init__(self, uri: str, size: int) -> None:
        self.uri = uri
        self.size = size
        self.topic = f"demo-{os.getpid()}"
        self.publisher = Part("publisher")
        self.subscribers = [Part("subscriber 1"), Part("subscriber 2"), Part("subscriber 3", SELECTOR)]
        self.loss = 0.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        started: list[Part] = []
        try:
            for part in self.subscribers:
                step = SYMBOLS if part.selector else 1
                await part.start("subscriber.py", self.uri, self.topic, part.selector, step)
                started.append(part)
            for part in self.subscribers:
                await part.ready()
            await self.publisher.start("publisher.py", self.uri, self.topic, self.size)
            started.append(self.publisher)
            await self.publisher.ready()
            yield
        finally:
            for part in started:
                await part.stop()

    async def show_samples(self) -> None:
        self.publisher.order("show")
        await asyncio.sleep(0.3 * SYMBOLS + 0.3)
        for part in self.subscribers:
            chosen = f" ({part.selector})" if part.selector else ""
            console.print(f"  {part.name}{chosen} got: {', '.join(part.samples)}")

    async def watch(self, seconds: float) -> None:
        """Show rates for `seconds`: as a table on a terminal, otherwise as one line per second."""
        ends_at = time.monotonic() + seconds
        if console.is_terminal:
            with Live(self.table(), console=console, refresh_per_second=5) as live:
                while (left := ends_at - time.monotonic()) > 0:
                    await asyncio.sleep(min(0.2, left))
                    live.update(self.table())
            return
        while (left := ends_at - time.monotonic()) > 0:
            await asyncio.sleep(min(1.0, left))
            rates = ", ".join(f"{part.rate:,.0f}" for part in self.subscribers)
            lost = ", ".join(f"{part.figures['lost']:,}" for part in self.subscribers)
            console.print(f"  sent {self.publisher.rate:,.0f}/s; received {rates}/s; datagrams lost {lost}")

    def table(self) -> Table:
        table = Table("", "messages/s", "Mbit/s", "messages", "datagrams lost", box=None, padding=(0, 2))
        for part in (self.publisher, *self.subscribers):
            figures = part.figures
            name = f"{part.name}, selecting" if part.selector else part.name
            lost = "" if part is self.publisher else f"{figures['lost']:,}"
            table.add_row(
                name, f"{part.rate:,.0f}", f"{part.rate * self.size * 8e-6:,.0f}", f"{figures['messages']:,}", lost
            )
        for column in table.columns[1:]:
            column.justify = "right"
        return table

    def set_loss(self, probability: float) -> None:
        for part in self.subscribers:
            part.order(probability)

    async def end(self) -> None:
        self.publisher.order("end")
        for part in (*self.subscribers, self.publisher):
            await within(ENDING_S, part.has_ended, f"the {part.name} did not come to an end")

    def judge(self) -> bool:
        """Print how many messages each subscriber received.

        Return True if each received all of them, once and in order.
        """
        total = self.publisher.figures["messages"]
        is_right = True
        for part in self.subscribers:
            figures = part.figures
            expected = -(-total // SYMBOLS) if part.selector else total
            is_whole = figures["messages"] == expected and figures.get("total") == total
            is_good = is_whole and not figures["repeated"] and not figures["missed"] and not figures["troubles"]
            verdict = "all, once, in order" if is_good else f"NOT RIGHT: {json.dumps(figures)}"
            console.print(f"  {part.name}: {figures['messages']:,} of {expected:,} messages: {verdict}")
            is_right &= is_good
        lost = sum(part.figures["lost"] for part in self.subscribers)
        repairs, requests = self.publisher.figures["repairs"], self.publisher.figures["requests"]
        console.print(
            f"  {lost:,} datagrams were lost on the way to the subscribers; after {requests:,} requests for repair the "
            f"publisher repeated {repairs:,}, to all subscribers at once"
        )
        return is_right


def print_next_steps() -> None:
    fjm2 = os.path.relpath(Path(sys.executable).with_name("fjm2"))
    bus = ON_THIS_HOST.format(port=5740)
    console.print("\n[bold]Try it yourself[/bold], in two terminals; without the first line, over your network:")
    console.print(f"  export FJM2_URI='{bus}'\n  {fjm2} sub greetings", markup=False)
    console.print(f"\n  export FJM2_URI='{bus}'\n  {fjm2} pub greetings hello", markup=False)


async def run(uri: str, size: int, seconds: float, loss: float) -> bool:
    demo = Demo(uri, size)
    console.print("[bold]Starting[/bold] a publisher and three subscribers, the third with a selector")
    async with demo.running():
        await demo.show_samples()
        console.print(f"[bold]Full speed[/bold], messages of {size:,} bytes")
        demo.publisher.order("flood")
        await demo.watch(seconds)
        console.print(f"[bold]Losing[/bold] {loss:.0%} of the datagrams that each subscriber receives")
        demo.set_loss(loss)
        await demo.watch(seconds)
        demo.set_loss(0.0)
        await demo.end()
        console.print("[bold]What arrived[/bold]")
        return demo.judge()


@click.command(help=__doc__)
@click.option("--port", default=5741, show_default=True, help="UDP port of the demo's bus.")
@click.option("--size", default=1024, show_default=True, type=click.IntRange(1, 1 << 20), help="Bytes of a message.")
@click.option("--seconds", default=4.0, show_default=True, help="Duration without losses, and again with losses.")
@click.option("--loss", default=0.02, show_default=True, type=click.FloatRange(0, 0.5), help="Datagrams to lose.")
def main(port: int, size: int, seconds: float, loss: float) -> None:
    try:
        is_right = asyncio.run(run(ON_THIS_HOST.format(port=port), size, seconds, loss))
    except DemoError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        sys.exit(130)
    if is_right:
        print_next_steps()
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
