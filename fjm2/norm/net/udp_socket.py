"""UDP sockets that send and receive whole trains.

Nothing here waits or knows of asyncio. A full kernel is a False, an empty one a None, and whoever waits uses the file
number. Nothing that the network or the interface does is raised: it is counted.
"""

import socket
import struct
import sys
from typing import Final, Protocol

from fjm2.base.errors import ConfigError
from fjm2.norm.core.train import Address, Train

from .kernel_addresses import KernelAddresses
from .udp_receiver import CAN_OPEN, TrainReceiver
from .udp_sender import TrainSender
from .udp_stats import UdpStats

_SO_MEMINFO: Final = 55
"""Socket option of Linux (asm-generic/socket.h) that the socket module lacks."""
_MEMINFO = struct.Struct("=9I")
"""Its value; the last field is sk_drops."""


def check_platform() -> None:
    """Raise ConfigError, with advice, on a system that FJM2 cannot run on."""
    if not CAN_OPEN:
        raise ConfigError(
            f"platform={sys.platform}: expected Linux or macOS, as Python's sockets lack recvmsg_into here; "
            "on Windows, run it in WSL 2 or in a Linux container"
        )


class TrainSocket(Protocol):
    """A way out and a way in for trains. Neither ever waits."""

    @property
    def address(self) -> Address:
        """Address of this socket, as peers see it."""

    def fileno(self) -> int:
        """Return the file number to wait for."""

    def send(self, train: Train) -> bool:
        """Return True if the train is sent, False if the kernel is full: call again once it is writable."""

    def receive(self) -> Train | None:
        """Return the next train, borrowed until the next call, or None if there is none."""

    def close(self) -> None:
        """Close the socket. Harmless if it is closed already."""


class UdpSocket(TrainSender, TrainReceiver):
    """A TrainSocket over one UDP socket of the kernel, which can be replaced by another."""

    def __init__(self, kernel: socket.socket, stats: UdpStats, *, offload: bool) -> None:
        TrainSender.__init__(self, stats)
        TrainReceiver.__init__(self, stats)
        self._offload = offload
        self.replace(kernel)

    def replace(self, kernel: socket.socket) -> None:
        """Go on with another socket of the kernel. The one before is not closed."""
        kernel.setblocking(False)
        self.kernel = kernel
        addresses = KernelAddresses(kernel.family)
        self._bind_sender(kernel, addresses, self._offload)
        self._bind_receiver(kernel, addresses, self._offload)
        self.address = addresses.from_kernel(kernel.getsockname())

    def fileno(self) -> int:
        """Return the file number to wait for. It changes with `replace`, and is -1 after `close`."""
        return self.kernel.fileno()

    def close(self) -> None:
        """Close the socket. Harmless if it is closed already."""
        self.kernel.close()

    def kernel_drops(self) -> int:
        """Return the datagrams that found the receive buffer full. 0 where the kernel does not tell."""
        try:
            memory = self.kernel.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        except OSError:
            return 0
        drops: int = _MEMINFO.unpack(memory)[-1]
        return drops
