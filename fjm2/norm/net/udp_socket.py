"""UDP sockets that send and receive whole trains.

Nothing here waits or knows of asyncio. `send` returns False if the kernel's buffer is full, and `receive` returns None
if it is empty; to wait, use the file descriptor. Errors of the network or the interface are counted, and never raised.
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
"""Format of the value of `_SO_MEMINFO`. The last field is sk_drops, the number of datagrams dropped."""


def check_platform() -> None:
    """Raise ConfigError, with advice, on a system that FJM2 cannot run on."""
    if not CAN_OPEN:
        raise ConfigError(
            f"platform={sys.platform}: expected Linux or macOS, as Python's sockets lack recvmsg_into here; "
            "on Windows, run it in WSL 2 or in a Linux container"
        )


class TrainSocket(Protocol):
    """A socket that sends and receives trains. Neither `send` nor `receive` ever waits."""

    @property
    def address(self) -> Address:
        """Address of this socket, as peers see it."""

    def fileno(self) -> int:
        """Return the file descriptor by which to wait until the socket is readable or writable."""

    def send(self, train: Train) -> bool:
        """Send a train. Return False if the kernel's buffer is full: call again once the socket is writable."""

    def receive(self) -> Train | None:
        """Return the next train, or None if there is none. The train is borrowed until the next call."""

    def close(self) -> None:
        """Close the socket. Harmless if it is closed already."""


class UdpSocket(TrainSender, TrainReceiver):
    """A TrainSocket over one UDP socket of the kernel. `replace` exchanges the kernel's socket."""

    def __init__(self, kernel: socket.socket, stats: UdpStats, *, offload: bool) -> None:
        TrainSender.__init__(self, stats)
        TrainReceiver.__init__(self, stats)
        self._offload = offload
        self.replace(kernel)

    def replace(self, kernel: socket.socket) -> None:
        """Continue with another socket of the kernel. The previous socket is not closed."""
        kernel.setblocking(False)
        self.kernel = kernel
        addresses = KernelAddresses(kernel.family)
        self._bind_sender(kernel, addresses, self._offload)
        self._bind_receiver(kernel, addresses, self._offload)
        self.address = addresses.from_kernel(kernel.getsockname())

    def fileno(self) -> int:
        """Return the file descriptor of the kernel's socket. It changes with `replace`, and is -1 after `close`."""
        return self.kernel.fileno()

    def close(self) -> None:
        """Close the socket. Harmless if it is closed already."""
        self.kernel.close()

    def kernel_drops(self) -> int:
        """Return the number of datagrams that found the receive buffer full; 0 where the kernel does not tell."""
        try:
            memory = self.kernel.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        except OSError:
            return 0
        drops: int = _MEMINFO.unpack(memory)[-1]
        return drops
