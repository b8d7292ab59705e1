"""Functions that the demo's processes share.

A process reads orders from standard input, and prints its figures as lines of JSON.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from fjm2.errors import FJM2Error

INTERVAL_S = 0.2


def say(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


async def orders() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def report(figures: Callable[[], dict[str, Any]]) -> None:
    while True:
        say(**figures())
        await asyncio.sleep(INTERVAL_S)


def run(main: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(main)
    except FJM2Error as error:
        sys.exit(f"{error}")
