"""A relay between two network devices that delays and duplicates packets: they arrive late, in disorder, and twice.

    python relay.py DEVICE DEVICE SEED DELAY DUPLICATE

The last two arguments are probabilities of each packet from the first device to the second and back. The program prints
`ready`, and runs until it is ended. UDP over IPv4 only: it clears checksums, which virtual devices leave to hardware
that is not there.
"""

import heapq
import select
import socket
import sys
import time
from random import Random

_PACKET_BYTES_MAX = 1 << 16
_DELAY_S = 0.02
"""Longest delay: some round-trip times, so that a delayed packet comes after many later ones."""
_WAITING_MAX = 10_000
_PACKETS_PER_TURN = 64
_ETH_P_ALL = 3
_IPV4, _UDP = b"\x08\x00", 17
_HEADER_BYTES = 14


def open_device(name: str) -> socket.socket:
    """Open a device for raw packets."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    made.bind((name, 0))
    made.setblocking(False)
    return made


def without_checksum(packet: bytes) -> bytes:
    """Return a packet with its UDP checksum cleared, which means that there is none."""
    if packet[12:14] != _IPV4 or packet[23] != _UDP:
        return packet
    at = _HEADER_BYTES + 4 * (packet[14] & 15) + 6
    return packet[:at] + b"\0\0" + packet[at + 2 :]


def main(first: str, second: str, seed: str, delay: str, duplicate: str) -> None:
    random, devices = Random(int(seed)), [open_device(first), open_device(second)]
    other = {devices[0]: devices[1], devices[1]: devices[0]}
    waiting: list[tuple[float, int, bytes, socket.socket]] = []
    number = 0
    print("ready", flush=True)
    while True:
        wait_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for device in select.select(devices, (), (), wait_s)[0]:
            for _ in range(_PACKETS_PER_TURN):
                try:
                    packet, source = device.recvfrom(_PACKET_BYTES_MAX)
                except BlockingIOError:
                    break
                if source[2] == socket.PACKET_OUTGOING:
                    continue
                packet = without_checksum(packet)
                for _ in range(1 + (random.random() < float(duplicate))):
                    is_late = random.random() < float(delay) and len(waiting) < _WAITING_MAX
                    number += 1
                    late_s = random.uniform(0.0, _DELAY_S) if is_late else 0.0
                    heapq.heappush(waiting, (time.monotonic() + late_s, number, packet, other[device]))
        while waiting and waiting[0][0] <= time.monotonic():
            *_, packet, target = heapq.heappop(waiting)
            try:
                target.send(packet)
            except OSError:  # no room in the queue, or the device is gone: packets may get lost
                continue


if __name__ == "__main__":
    main(*sys.argv[1:])
