"""A gateway without trains and without keys: multicast in, unicast out, and back, one datagram at a time.

    python -m fjm2bench.networks.plain_relay asyncio|threads GROUP PORT LAN_ADDRESS WAN_ADDRESS PEER_ADDRESS

The relay serves for comparison with fjm2d, in the two simplest forms: asyncio's datagram protocols, or a thread for
each direction that calls `recv` and `sendto`. Its socket buffers are as large as fjm2d's. It accepts datagrams from
anyone. It prints a line of JSON when it is ready, and runs until SIGTERM.
"""

import asyncio
import contextlib
import json
import socket
import sys
import threading

_WAN_PORT = 5741
_BUFFER_BYTES = 8 << 20
_SO_RCVBUFFORCE = 33
_DATAGRAM_BYTES_MAX = 65_507

Address = tuple[str, int]


class OneWay(asyncio.DatagramProtocol):
    """Protocol that forwards each datagram that it receives."""

    def __init__(self, out: asyncio.DatagramTransport, destination: Address) -> None:
        self._send = out.sendto
        self._destination = destination

    def datagram_received(self, data: bytes, addr: Address) -> None:  # noqa: ARG002
        self._send(data, self._destination)


def open_group(group: Address, lan: str) -> socket.socket:
    """Open a socket that receives the datagrams that are sent to the group on the LAN."""
    opened = open_udp(group)
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + socket.inet_aton(lan))
    return opened


def open_out(lan: str) -> socket.socket:
    """Open a socket that sends to the group. Its datagrams do not come back to this host."""
    opened = open_udp((lan, 0))
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(lan))
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    return opened


def open_udp(address: Address) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(PermissionError):
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    opened.bind(address)
    return opened


def say_ready() -> None:
    print(json.dumps({"ready": True}), flush=True)


async def relay_by_asyncio(group: Address, lan: str, wan: Address, peer: Address) -> None:
    """Forward datagrams in both directions until cancelled."""
    loop = asyncio.get_running_loop()
    out, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=open_out(lan))
    tunnel, _ = await loop.create_datagram_endpoint(lambda: OneWay(out, group), sock=open_udp(wan))
    await loop.create_datagram_endpoint(lambda: OneWay(tunnel, peer), sock=open_group(group, lan))
    say_ready()
    await asyncio.Event().wait()


def relay_by_threads(group: Address, lan: str, wan: Address, peer: Address) -> None:
    """Forward datagrams in both directions until the process ends."""
    inside, out, tunnel = open_group(group, lan), open_out(lan), open_udp(wan)
    back = threading.Thread(target=pump, args=(tunnel, out, group), daemon=True)
    back.start()
    say_ready()
    pump(inside, tunnel, peer)


def pump(source: socket.socket, out: socket.socket, destination: Address) -> None:
    """Forward datagrams in one direction, without end."""
    while True:
        out.sendto(source.recv(_DATAGRAM_BYTES_MAX), destination)


def main(way: str, group: str, port: str, lan: str, wan: str, peer: str) -> None:
    places = (group, int(port)), lan, (wan, _WAN_PORT), (peer, _WAN_PORT)
    if way == "asyncio":
        asyncio.run(relay_by_asyncio(*places))
    else:
        relay_by_threads(*places)


if __name__ == "__main__":
    main(*sys.argv[1:])
