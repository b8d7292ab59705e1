"""Run a program as on another system: hide the features of Python and the kernel that the other system lacks.

    python elsewhere.py SYSTEM (-c CODE | MODULE) [ARGUMENT ...]

SYSTEM is `darwin`, `win32`, `linux-without-uvloop`, or `linux-without-gso`, which is a kernel before 4.18. Libraries
are imported first, as they must work on the real system. `os.name` stays as it is: pathlib needs it.
"""

import array
import asyncio
import ctypes
import errno
import mmap
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from typing import Any, NoReturn

import click.testing
import numpy
import rich.console
import rich.live
import rich.table

LOADED = (
    array,
    ctypes,
    mmap,
    numpy,
    subprocess,
    tempfile,
    urllib.request,
    click.testing,
    rich.console,
    rich.live,
    rich.table,
)

LINUX_SOCKET = ("AF_NETLINK", "NETLINK_ROUTE", "AF_PACKET", "SO_BINDTODEVICE", "SO_PRIORITY", "SO_MARK", "IP_RECVTOS")
POSIX_SOCKET = ("CMSG_LEN", "CMSG_SPACE", "SO_REUSEPORT", "MSG_DONTWAIT")
POSIX_METHODS = ("recvmsg", "recvmsg_into", "sendmsg")
POSIX_MODULES = ("fcntl", "grp", "pwd", "pty", "resource", "termios", "tty", "uvloop")
POSIX_OS = ("O_CLOEXEC", "O_NONBLOCK", "fork", "geteuid", "getuid", "getpgid", "killpg", "setsid", "uname")
POSIX_SIGNALS = ("SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGWINCH")
LINUX_OS = ("sched_getaffinity", "memfd_create")
GSO_OPTIONS = {
    (socket.IPPROTO_UDP, 103),  # UDP_SEGMENT
    (socket.IPPROTO_UDP, 104),  # UDP_GRO
}
LINUX_OPTIONS = {
    (socket.SOL_SOCKET, 26),  # SO_ATTACH_FILTER
    (socket.SOL_SOCKET, 32),  # SO_SNDBUFFORCE
    (socket.SOL_SOCKET, 33),  # SO_RCVBUFFORCE
    (socket.SOL_SOCKET, 55),  # SO_MEMINFO
    (socket.IPPROTO_IP, 49),  # IP_MULTICAST_ALL
}
refused: set[tuple[int, int]] = set()


class Missing:
    """A descriptor for attributes that do not exist on the other system."""

    def __get__(self, _: object, __: object = None) -> NoReturn:
        raise AttributeError("not on this system")


class ForeignSocket(socket.socket):
    """A socket that refuses the options that only Linux has."""

    def setsockopt(self, level: int, option: int, *value: Any) -> None:  # type: ignore[override]
        refuse(level, option)
        super().setsockopt(level, option, *value)

    def getsockopt(self, level: int, option: int, *size: int) -> Any:  # type: ignore[override]
        refuse(level, option)
        return super().getsockopt(level, option, *size)


def refuse(level: int, option: int) -> None:
    if (level, option) in refused:
        raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))


class ProactorLike(asyncio.SelectorEventLoop):
    """An event loop without the methods that the default loop of Windows lacks."""

    def _cannot(self, *_: object) -> NoReturn:
        raise NotImplementedError

    add_reader = add_writer = remove_reader = remove_writer = add_signal_handler = remove_signal_handler = _cannot


class ProactorPolicy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = ProactorLike


def hide_proc(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and str(arguments[0]).startswith("/proc/"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])


def without(module: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


def become(system: str) -> None:
    """Hide what the other system lacks, for the rest of this process."""
    system, _, lack = system.partition("-without-")
    if lack == "gso":
        refused.update(GSO_OPTIONS)
        socket.socket = ForeignSocket  # type: ignore[misc]
    elif lack:
        sys.modules[lack] = None  # type: ignore[assignment]
    if system == "linux":
        return
    sys.platform = system
    refused.update(LINUX_OPTIONS | GSO_OPTIONS)
    sys.addaudithook(hide_proc)
    without(socket, LINUX_SOCKET)
    without(os, LINUX_OS)
    without(select, ("epoll",))
    socket.socket = ForeignSocket  # type: ignore[misc]
    if system == "win32":
        without(socket, POSIX_SOCKET)
        for name in POSIX_METHODS:
            setattr(ForeignSocket, name, Missing())
        without(os, POSIX_OS)
        without(signal, POSIX_SIGNALS)
        without(select, ("poll",))
        sys.modules.update(dict.fromkeys(POSIX_MODULES))  # type: ignore[arg-type]
        asyncio.set_event_loop_policy(ProactorPolicy())


def main() -> None:
    system, module, *arguments = sys.argv[1:]
    become(system)
    if module == "-c":
        sys.argv = ["-c", *arguments[1:]]
        exec(compile(arguments[0], "<code>", "exec"), {"__name__": "__main__", "__file__": __file__})
    else:
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
