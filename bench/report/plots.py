"""The plots of a report, and the choice of the runs for each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from .panels import SIZE_LABEL, by_fanout, by_loss, by_size, grouped, link_of
from .plot_data import Panel, Plot, Series, lines_of
from .warehouse import Result

ETHERNET_BPS = 1e8
"""Rate of the link in the thesis's experiments."""
_WAYS = ("fjm2d", "plain-relay", "direct")
_KNOWN = ("lan", "loopback", "wan")

Choice = Callable[[Result], bool]


def of_results(results: Sequence[Result]) -> list[Plot]:
    """Return all plots of benchmarks that have data."""
    makers = (
        _sizes,
        _fanout,
        _latency,
        _loopback,
        _ethernet,
        _ethernet_fanout,
        _loss,
        _cpu,
        _wan,
        _wan_loss,
        _raw,
        _fec,
        _others,
    )
    plots = [plot for make in makers for plot in make(results)]
    return [plot for plot in plots if plot.panels]


def _plot(key: str, title: str, text: str, panels: Sequence[Panel], thesis: str = "") -> Plot:
    return Plot(key=key, title=title, text=text, panels=tuple(p for p in panels if p.series), thesis=thesis)


def _chosen(
    results: Sequence[Result],
    scenario: str | None,
    *,
    fanout: int | None = 1,
    rate_bps: float | None = None,
    loss: float | None = 0.0,
    layer: Choice = lambda result: result.layer not in ("udp", "fec"),
) -> list[Result]:
    """Select results. None as fan-out or loss selects all."""
    return [
        result
        for result in results
        if result.scenario == scenario
        and result.rate_bps == rate_bps
        and (fanout is None or result.fanout == fanout)
        and (loss is None or result.loss == loss)
        and layer(result)
    ]


def _is_raw(result: Result) -> bool:
    return result.layer == "udp"


def _sizes(results: Sequence[Result]) -> Iterator[Plot]:
    chosen = _chosen(results, "lan")
    rate = Panel(
        title="Messages a second",
        x_label=SIZE_LABEL,
        y_label="messages/s",
        series=lines_of(chosen, lambda result: result.size, "msgs_per_s"),
        x_scale="bytes",
        y_scale="log",
    )
    yield _plot(
        "throughput-by-size",
        "Throughput by message size: a LAN without limits, one subscriber",
        "Measured from the first message until the subscriber has confirmed the last. The network is as fast as this "
        "machine, so processors are the limit. Every message is checked; a system that loses one has no point.",
        [rate, by_size(chosen, "Data")],
    )


def _fanout(results: Sequence[Result]) -> Iterator[Plot]:
    groups = grouped(_chosen(results, "lan", fanout=None), lambda result: result.size or 0)
    panels = [by_fanout(same, size, "msgs_per_s", "messages/s at each") for _, size, same in groups]
    yield _plot(
        "throughput-by-fanout",
        "Throughput by number of subscribers: a LAN without limits",
        "Each message counts once, however many subscribers receive it. Multicast is sent once; unicast is sent to "
        "each subscriber. All processes share this machine's processors, so throughput falls for every system.",
        panels,
    )


def _latency(results: Sequence[Result]) -> Iterator[Plot]:
    chosen = [result for result in _chosen(results, "lan") if "p50_us" in result.r]
    panels = []
    for size in sorted({result.size or 0 for result in chosen}):
        trips = [result for result in chosen if result.size == size]
        series = [
            Series(line.system, line.points, name=figure.removesuffix("_us"))
            for figure in ("p50_us", "p99_us")
            for line in lines_of(trips, lambda _: 0.0, figure)
        ]
        panels.append(
            Panel(
                title=f"{size} B there and back",
                x_label="round-trip time (µs), p50 and p99",
                y_label="",
                series=tuple(series),
                x_scale="rows",
            )
        )
    yield _plot(
        "latency",
        "Round trips: p50 and p99 by system",
        "One message at a time: it is sent, and the other end sends it back. The filled mark is the median, the open "
        "one the 99th percentile.",
        panels,
    )


def _loopback(results: Sequence[Result]) -> Iterator[Plot]:
    yield _plot(
        "thesis-5-6",
        "One to one on one host",
        "Publisher and subscriber meet on the loopback interface.",
        [by_size(_chosen(results, "loopback"), "Loopback, 1 to 1")],
        "figure 5-6",
    )


def _ethernet(results: Sequence[Result]) -> Iterator[Plot]:
    for fanout, figure in ((1, "5-8"), (2, "5-10")):
        yield _plot(
            f"thesis-{figure}",
            f"One to {'one' if fanout == 1 else 'two'} over a link of 100 Mbit/s",
            "The rate of the publisher's link is limited. The difference between a line and the link's rate is "
            "headers, acknowledgements and idle time. A system that sends to each subscriber separately shares the "
            "rate among them.",
            [by_size(_chosen(results, "lan", fanout=fanout, rate_bps=ETHERNET_BPS), f"1 to {fanout}", ETHERNET_BPS)],
            f"figure {figure}",
        )


def _ethernet_fanout(results: Sequence[Result]) -> Iterator[Plot]:
    groups = grouped(_chosen(results, "lan", fanout=None, rate_bps=ETHERNET_BPS), lambda result: result.size or 0)
    panels = [
        by_fanout(same, size, "gbit_per_s", "throughput at each (Mbit/s)", ETHERNET_BPS)
        for _, size, same in groups
        if any((result.fanout or 0) > 2 for result in same)
    ]
    yield _plot(
        "ethernet-by-fanout",
        "Throughput by number of subscribers over a link of 100 Mbit/s",
        "Here the network is the limit and not the processors. This is where multicast helps most.",
        panels,
    )


def _loss(results: Sequence[Result]) -> Iterator[Plot]:
    lan = [result for result in results if result.scenario == "lan" and result.layer != "udp"]
    lossy = {result.system for result in lan if result.loss}
    groups = grouped([result for result in lan if result.system in lossy], lambda it: (it.fanout or 0, it.size or 0))
    panels = [
        by_loss(
            same,
            f"{size} B to {fanout}, {link_of(rate_bps)}",
            "packets lost at each subscriber (%), log scale",
            rate_bps,
        )
        for rate_bps, (fanout, size), same in groups
    ]
    yield _plot(
        "throughput-by-loss",
        "Throughput by loss",
        "Packets are dropped at random on arrival, independently at each subscriber, in one direction. All losses are "
        "repaired: every message arrives in the end.",
        panels,
    )


def _cpu(results: Sequence[Result]) -> Iterator[Plot]:
    panel = Panel(
        title="All processes together",
        x_label=SIZE_LABEL,
        y_label="CPU time (s/GB)",
        series=lines_of(_chosen(results, "lan"), lambda result: result.size, "cpu_s_per_gb"),
        x_scale="bytes",
        y_scale="log",
    )
    yield _plot(
        "cpu-by-size",
        "Processor time for each gigabyte published: a LAN without limits, one subscriber",
        "CPU time of the publisher, the subscriber and the broker, if there is one. Less is better. Time that the "
        "kernel spends in softirqs for other processes is not counted.",
        [panel],
    )


def _wan(results: Sequence[Result]) -> Iterator[Plot]:
    chosen = [result for result in results if result.scenario == "wan" and not result.loss and result.system in _WAYS]
    panels = [
        by_size(same, f"{_API.get(layer, layer)}, {link_of(rate_bps)}", rate_bps)
        for rate_bps, layer, same in grouped(chosen, lambda it: it.layer)
    ]
    yield _plot(
        "thesis-5-12",
        "From LAN to LAN through gateways",
        "One publisher, one subscriber, a gateway in each LAN, and a line between the gateways. fjm2d encrypts every "
        "datagram and paces what it sends; the plain relay does neither. Without gateways, a cable connects the hosts.",
        panels,
        "figure 5-12",
    )


def _wan_loss(results: Sequence[Result]) -> Iterator[Plot]:
    groups = grouped([it for it in results if it.scenario == "wan"], lambda it: (it.layer, it.size or 0))
    panels = [
        by_loss(same, f"{_API.get(layer, layer)}, {size} B", "packets lost on the line (%), log scale", rate_bps)
        for rate_bps, (layer, size), same in groups
    ]
    yield _plot(
        "wan-by-loss",
        "From LAN to LAN over a lossy line",
        "Packets are dropped at random on the line, in both directions. NORM repairs losses from end to end.",
        panels,
    )


def _raw(results: Sequence[Result]) -> Iterator[Plot]:
    yield _plot(
        "thesis-5-1",
        "Bare UDP on one host",
        "What arrived, divided by the time from the first datagram to the last. Nothing is repaired, and lost messages "
        "do not count. Trains are sent by one system call for up to 45 datagrams.",
        [by_size(_chosen(results, "loopback", layer=_is_raw), "Loopback, unicast and multicast")],
        "figures 5-1 and 5-2",
    )
    ethernet = _chosen(results, "lan", rate_bps=ETHERNET_BPS, layer=_is_raw)
    yield _plot(
        "thesis-5-4",
        "Bare UDP over a link of 100 Mbit/s",
        "The same, with the rate of the publisher's link limited.",
        [by_size(ethernet, "100 Mbit/s", ETHERNET_BPS)],
        "figures 5-4 and 5-5",
    )


def _fec(results: Sequence[Result]) -> Iterator[Plot]:
    chosen = [result for result in results if result.layer == "fec" and "symbol_bytes" in result.labels]
    panels = []
    for symbol in sorted({int(result.labels["symbol_bytes"]) for result in chosen}):
        same = [result for result in chosen if result.labels["symbol_bytes"] == str(symbol)]
        panels.append(
            Panel(
                title=f"Symbols of {symbol} B",
                x_label="data (bytes)",
                y_label="time to encode (ms)",
                series=_named(lines_of(same, lambda result: result.size, "encode_s", 1e3), _CODERS),
                x_scale="bytes",
                y_scale="log",
            )
        )
    yield _plot(
        "thesis-4-3-1",
        "Cost of a code: time to encode one block with Reed-Solomon",
        "One parity symbol for every four source symbols. The thesis measured 35, 11 and 7 ms for 64 KB in symbols of "
        "512, 1024 and 1440 bytes, and did not use a code.",
        panels,
        "table 4.3.1",
    )


def _others(results: Sequence[Result]) -> Iterator[Plot]:
    """Yield plots of scenarios with other names, and of links with other rates."""
    chosen = [result for result in results if result.layer != "fec" and _is_other(result)]
    places = {(result.scenario or "", result.rate_bps, result.fanout or 0, result.loss) for result in chosen}
    for scenario, rate_bps, fanout, loss in sorted(places, key=lambda it: (it[0], it[1] or 0, *it[2:])):
        same = [
            result
            for result in chosen
            if (result.scenario or "", result.rate_bps, result.fanout or 0, result.loss)
            == (scenario, rate_bps, fanout, loss)
        ]
        link = "" if rate_bps is None else f", {rate_bps / 1e6:g} Mbit/s"
        lost = f", {loss:.1%} lost" if loss else ""
        key = "-".join(filter(None, ("sizes", scenario, f"{rate_bps or 0:.0f}", str(fanout), f"{loss:g}")))
        yield _plot(
            key.replace(".", "_"),
            f"Throughput by message size: {scenario or 'unnamed'}{link}{lost}, to {fanout}",
            "An experiment of the plan.",
            [by_size(same, f"1 to {fanout}", rate_bps)],
        )


def _is_other(result: Result) -> bool:
    if result.scenario not in _KNOWN:
        return True
    is_shown = result.rate_bps in (None, ETHERNET_BPS) or bool(result.loss) or result.scenario == "wan"
    return not is_shown


def _named(lines: Sequence[Series], names: Mapping[str, str]) -> tuple[Series, ...]:
    return tuple(replace(line, name=names.get(line.system, "")) for line in lines)


_CODERS = {"fjm2": "FJM2 (numpy)", "zfec": "zfec (C)", "creedsolo": "reedsolo (C)"}
_API = {"jms": "JMS", "norm": "NORM"}
