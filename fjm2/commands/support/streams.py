"""Standard input and output without blocking the event loop.

A subscriber whose reader is slow continues to answer its senders, and Ctrl-C works at any time.
"""

import asyncio
import os
import select
import sys
from collections.abc import AsyncIterator, Callable

_READ_BYTES = 1 << 16  # the size of a pipe on Linux
_WRITE_BYTES = 4096
"""A write of this size never blocks once a pipe is writable (PIPE_BUF)."""


def _is_ready(descriptor: int, event: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(0))


async def _until(descriptor: int, event: int, watch: Callable[..., None], forget: Callable[[int], object]) -> None:
    """Wait until a descriptor is ready. Return at once for files, which are always ready and cannot be watched."""
    if _is_ready(descriptor, event):
        return
    happened, is_blocking = asyncio.Event(), os.get_blocking(descriptor)
    watch(descriptor, happened.set)
    try:
        await happened.wait()
    finally:
        forget(descriptor)
        os.set_blocking(descriptor, is_blocking)  # uvloop changed it, for all processes with the same open file


async def write(data: bytes) -> None:
    """Write to standard output. Raise BrokenPipeError if nobody reads the output any more."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdout.fileno()
    view = memoryview(data)
    while view:
        await _until(descriptor, select.POLLOUT, loop.add_writer, loop.remove_writer)
        view = view[os.write(descriptor, view[:_WRITE_BYTES]) :]


async def read() -> AsyncIterator[bytes]:
    """Yield standard input in pieces, as they arrive."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    while True:
        await _until(descriptor, select.POLLIN, loop.add_reader, loop.remove_reader)
        piece = os.read(descriptor, _READ_BYTES)
        if not piece:
            return
        yield piece
        await asyncio.sleep(0)  # so that a long file does not block other tasks


async def read_all() -> bytes:
    """Read standard input to its end."""
    return b"".join([piece async for piece in read()])


async def read_lines() -> AsyncIterator[bytes]:
    """Yield the lines of standard input, without line ends."""
    rest: list[bytes] = []
    async for piece in read():
        first, *lines = piece.split(b"\n")
        rest.append(first)
        for line in lines:
            yield b"".join(rest)
            rest = [line]
    if last := b"".join(rest):
        yield last
