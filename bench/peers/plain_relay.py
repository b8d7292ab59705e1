"""What a gateway would be without trains and without keys: multicast in, unicast out, and back, datagram by datagram.

    python -m fjm2bench.peers.plain_relay GROUP PORT LAN_ADDRESS WAN_ADDRESS PEER_ADDRESS

Written for `fjm2-bench wan`, the plain way: asyncio's datagram protocols, one call for each datagram. Nothing keeps
strangers out. It says that it is ready in a line of JSON, and runs until SIGTERM.
"""

import asyncio
import contextlib
import json
import socket
import sys

_WAN_PORT = 5741
_BUFFER_BYTES = 8 << 20
_SO_RCVBUFFORCE = 33

Address = tuple[str, int]


class OneWay(asyncio.DatagramProtocol):
    """Sends on what it receives."""

    def __init__(self, out: asyncio.DatagramTransport, destination: Address) -> None:
        self._send = out.sendto
        self._destination = destination

    def datagram_received(self, data: bytes, addr: Address) -> None:  # noqa: ARG002
        self._send(data, self._destination)


def open_group(group: str, port: int, lan: str) -> socket.socket:
    """Receives what is sent to the group on the LAN."""
    opened = _udp((group, port))
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(lan))
    return opened


def open_out(lan: str) -> socket.socket:
    """Sends to the group; what it sends does not come back to this host."""
    opened = _udp((lan, 0))
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(lan))
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    return opened


def _udp(address: Address) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(PermissionError):
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    opened.bind(address)
    opened.setblocking(False)
    return opened


async def relay(group: Address, lan: str, wan: Address, peer: Address) -> None:
    """Until it is cancelled."""
    loop = asyncio.get_running_loop()
    out, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=open_out(lan))
    tunnel, _ = await loop.create_datagram_endpoint(lambda: OneWay(out, group), sock=_udp(wan))
    await loop.create_datagram_endpoint(lambda: OneWay(tunnel, peer), sock=open_group(*group, lan))
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.Event().wait()


def main(group: str, port: str, lan: str, wan: str, peer: str) -> None:
    asyncio.run(relay((group, int(port)), lan, (wan, _WAN_PORT), (peer, _WAN_PORT)))


if __name__ == "__main__":
    main(*sys.argv[1:])
