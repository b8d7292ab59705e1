"""Sockets of the service, which take IPv4 as well if they listen on ::. Other modules see no mapped IPv4 addresses."""

import ipaddress
import socket

from ..errors import AdminError

_BACKLOG = 2048
"""Connections that may wait to be accepted, as when all gateways come back at once."""
_MAPPED = "::ffff:"


def listen(host: str, port: int) -> socket.socket:
    """Return a TCP socket that listens at an address. Raise AdminError if it cannot."""
    made = _bound(host, port, socket.SOCK_STREAM)
    made.listen(_BACKLOG)
    return made


def datagrams(host: str, port: int) -> socket.socket:
    """Return a UDP socket that is bound to an address. Raise AdminError if it cannot be."""
    return _bound(host, port, socket.SOCK_DGRAM)


def _bound(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, kind)
    try:
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        made.setblocking(False)
        made.bind((host, port))
    except OSError as error:
        made.close()
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        what = "TCP" if kind == socket.SOCK_STREAM else "UDP"
        raise AdminError(f"cannot listen on {what} {shown}: {error.strerror}") from error
    return made


def is_address(text: str) -> bool:
    """Return True if a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def plain_address(text: str) -> str:
    """Return an address from a setting or header in the form in which `plain_host` returns addresses."""
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def plain_host(host: str) -> str:
    """Return the host of a connection as people write it: an IPv4 address even if it came through an IPv6 socket."""
    return host.removeprefix(_MAPPED) if host.startswith(_MAPPED) and "." in host else host


def as_peer(through: socket.socket, address: tuple[str, int]) -> tuple[str, int]:
    """Return an address in the form that this socket needs."""
    host, port = address
    is_mapped = through.family == socket.AF_INET6 and ipaddress.ip_address(host).version == 4
    return (_MAPPED + host if is_mapped else host, port)
