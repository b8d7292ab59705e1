"""A delay line: a TUN device that returns each packet unaltered after a fixed time.

    python delayline.py DEVICE DELAY_S [--reorder PART] [--duplicate PART]

Packets routed into the device come back out of it. Trains of UDP_SEGMENT pass whole. The program prints a line of JSON
when the device is ready. When its stdin ends, the program prints a report and exits.
"""

import argparse
import contextlib
import fcntl
import gc
import heapq
import json
import os
import select
import struct
import sys
import time
from random import Random

QUEUE_BYTES_MAX = 64 << 20
"""Maximum number of bytes queued. Packets beyond this are dropped and counted."""
_REORDER_S = 0.002
"""Extra delay of a packet that is to be overtaken by later packets."""
_SEED = 57
_READS_PER_TURN = 64
_PACKET_BYTES_MAX = (64 << 10) + 64
_PRIORITY = -15
"""Nice value of the program. It uses little processor time, but must be punctual."""

# Constants from linux/if_tun.h.
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_OFFLOADS = 0x01 | 0x02 | 0x04 | 0x20 | 0x40
"""Flags for checksums, TCP trains over IPv4 and over IPv6, and UDP trains over both. Linux 6.2 added the last flag."""


def open_tun(name: str) -> int:
    """Open a new TUN device that accepts whole trains. A header of 10 bytes before each packet describes its train."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR))
    fcntl.ioctl(file, _TUNSETOFFLOAD, _OFFLOADS)
    return file


class DelayLine:
    """A queue of delayed packets, ordered by the time at which they are due."""

    def __init__(self, file: int, delay_s: float, reorder: float, duplicate: float) -> None:
        self._file = file
        self._delay_s = delay_s
        self._reorder = reorder
        self._duplicate = duplicate
        self._random = Random(_SEED)
        self._waiting: list[tuple[float, int, bytes]] = []
        self._bytes = 0
        self.packets = 0
        self.dropped = 0
        self.late_s_max = 0.0
        self.late_s_sum = 0.0

    def receive_arrived(self) -> None:
        """Read and queue the packets that have arrived, at most `_READS_PER_TURN`."""
        for _ in range(_READS_PER_TURN):
            try:
                packet = os.read(self._file, _PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            self._enqueue(packet, time.monotonic() + self._delay_s)

    def _enqueue(self, packet: bytes, due: float) -> None:
        if self._bytes + len(packet) > QUEUE_BYTES_MAX:
            self.dropped += 1
            return
        self.packets += 1
        if self._reorder and self._random.random() < self._reorder:
            due += _REORDER_S
        self._push(packet, due)
        if self._duplicate and self._random.random() < self._duplicate:
            self._push(packet, due)

    def _push(self, packet: bytes, due: float) -> None:
        self._bytes += len(packet)
        heapq.heappush(self._waiting, (due, self.packets, packet))

    def send_due(self) -> None:
        """Send all packets that are due."""
        while self._waiting and (late_s := time.monotonic() - self._waiting[0][0]) >= 0:
            packet = heapq.heappop(self._waiting)[2]
            self._bytes -= len(packet)
            try:
                os.write(self._file, packet)
            except OSError:
                self.dropped += 1
            self.late_s_max = max(self.late_s_max, late_s)
            self.late_s_sum += late_s

    def wait_s(self) -> float | None:
        """Return the seconds until the next packet is due, or None if the queue is empty."""
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None

    def run(self) -> None:
        """Forward packets until stdin ends."""
        stdin = sys.stdin.fileno()
        while True:
            readable, _, _ = select.select((self._file, stdin), (), (), self.wait_s())
            if stdin in readable and not os.read(stdin, 1):
                return
            if self._file in readable:
                self.receive_arrived()
            self.send_due()

    def report(self) -> dict[str, float]:
        mean_s = self.late_s_sum / self.packets if self.packets else 0.0
        return {
            "packets": self.packets,
            "dropped": self.dropped,
            "late_us_mean": round(1e6 * mean_s, 1),
            "late_us_max": round(1e6 * self.late_s_max, 1),
            "cpu_s": round(time.process_time(), 3),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("delay_s", type=float)
    parser.add_argument("--reorder", type=float, default=0.0)
    parser.add_argument("--duplicate", type=float, default=0.0)
    options = parser.parse_args()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    gc.disable()
    line = DelayLine(open_tun(options.device), options.delay_s, options.reorder, options.duplicate)
    print(json.dumps({"ready": True}), flush=True)
    line.run()
    print(json.dumps({"result": line.report()}), flush=True)


if __name__ == "__main__":
    main()
