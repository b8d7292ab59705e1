"""Lists of a gateway's instruments: for each link to a peer, for each group on the LAN, and for the gateway itself.

The fields are keys of the gateway's status. This module needs nothing from the rest of the gateway, because the Spark
pipeline reads it.
"""

from typing import Final

from fjm2.base.instruments import counter, gauge

LINK_COUNTERS: Final = (
    counter(
        "datagrams_sent",
        "datagrams",
        "Tunnel datagrams sent.",
        metric="fjm2d_peer_sent_datagrams_total",
        trace="datagrams_sent",
        is_column=True,
    ),
    counter(
        "bytes_sent",
        "bytes",
        "Bytes of tunnel datagrams sent.",
        metric="fjm2d_peer_sent_bytes_total",
        trace="bytes_sent",
        is_column=True,
    ),
    counter("trains_sent", "trains", "Trains of tunnel datagrams sent.", trace="trains_sent"),
    counter(
        "datagrams_received",
        "datagrams",
        "Authentic tunnel datagrams received.",
        metric="fjm2d_peer_received_datagrams_total",
        trace="datagrams_received",
        is_column=True,
    ),
    counter(
        "bytes_received",
        "bytes",
        "Bytes of authentic tunnel datagrams received.",
        metric="fjm2d_peer_received_bytes_total",
        trace="bytes_received",
        is_column=True,
    ),
    counter("trains_received", "trains", "Trains of authentic tunnel datagrams received.", trace="trains_received"),
    counter("handshakes_sent", "handshakes", "Handshakes begun.", trace="handshakes_sent"),
    counter("handshakes_answered", "handshakes", "Handshakes of the peer answered.", trace="handshakes_answered"),
    counter(
        "handshakes_completed",
        "handshakes",
        "Handshakes completed.",
        metric="fjm2d_peer_handshakes_total",
        trace="handshakes_completed",
    ),
    counter("probes_sent", "probes", "Probes of round-trip time and loss sent.", trace="probes_sent", is_column=True),
    counter("probes_answered", "probes", "Probes sent that the peer answered.", trace="probes_answered"),
    counter("split", "datagrams", "Datagrams sent in parts because they are too long for the path.", trace="split"),
    counter("moves", "times", "Times that the peer changed its address.", trace="moves"),
)
"""Counters of a link, in the order of the fields of `PeerStats`."""

LINK_INSTRUMENTS: Final = (
    *LINK_COUNTERS,
    counter(
        "drops",
        "datagrams",
        "Datagrams not sent to a peer, or received from it and not acted on, by reason.",
        metric="fjm2d_peer_drops_total",
        label="reason",
    ),
    gauge(
        "queue_bytes",
        "bytes",
        "Bytes waiting for the link.",
        metric="fjm2d_peer_queue_bytes",
        trace="queue_bytes",
        is_column=True,
    ),
    gauge(
        "rtt_ms",
        "ms",
        "Round-trip time, smoothed. Prometheus and traces have it in seconds.",
        metric="fjm2d_peer_rtt_seconds",
        trace="rtt_s",
        is_column=True,
    ),
    gauge(
        "loss_sent",
        "ratio",
        "Share of the datagrams sent that do not arrive, smoothed.",
        metric="fjm2d_peer_loss_sent_ratio",
        trace="loss_sent",
        is_column=True,
    ),
    gauge(
        "loss_received",
        "ratio",
        "Share of the datagrams sent by the peer that do not arrive, smoothed.",
        metric="fjm2d_peer_loss_received_ratio",
    ),
    gauge(
        "rate_bps",
        "bit/s",
        "Rate that the link is paced to; missing without a limit.",
        metric="fjm2d_peer_rate_bits_per_second",
        trace="paced_bps",
        is_column=True,
    ),
    gauge("mtu_bytes", "bytes", "Longest IP packet that is sent.", metric="fjm2d_peer_mtu_bytes"),
)
"""Counters and gauges of a link to a peer."""

LAN_INSTRUMENTS: Final = (
    counter(
        "datagrams_received",
        "datagrams",
        "Datagrams received from the LAN.",
        metric="fjm2d_lan_received_datagrams_total",
        trace="datagrams_received",
        is_column=True,
    ),
    counter(
        "bytes_received",
        "bytes",
        "Bytes received from the LAN.",
        metric="fjm2d_lan_received_bytes_total",
        trace="bytes_received",
        is_column=True,
    ),
    counter(
        "datagrams_sent",
        "datagrams",
        "Datagrams sent into the LAN.",
        metric="fjm2d_lan_sent_datagrams_total",
        trace="datagrams_sent",
        is_column=True,
    ),
    counter(
        "bytes_sent",
        "bytes",
        "Bytes sent into the LAN.",
        metric="fjm2d_lan_sent_bytes_total",
        trace="bytes_sent",
        is_column=True,
    ),
    counter(
        "nodes_refused",
        "times",
        "Times that the table had no room for a node.",
        metric="fjm2d_nodes_refused_total",
    ),
    counter(
        "drops",
        "datagrams",
        "Datagrams dropped on the LAN's side because a buffer was full, by reason.",
        metric="fjm2d_lan_drops_total",
        label="reason",
    ),
)
"""Counters of a group on the LAN."""

GATEWAY_INSTRUMENTS: Final = (
    counter(
        "kernel_sends_blocked",
        "times",
        "Times that the kernel's send buffer was full when datagrams were sent to peers.",
        metric="fjm2d_kernel_sends_blocked_total",
        trace="kernel_sends_blocked",
    ),
    counter(
        "drops",
        "datagrams",
        "Datagrams that were not forwarded, by side and reason.",
        metric="fjm2d_drops_total",
        label="reason",
    ),
)
"""Counters of the gateway as a whole."""
