"""Fixtures that run each test twice: with asyncio, and with blocking calls in threads.

Each run has its own bus on the loopback interface.
"""

import asyncio
import inspect

import pytest
from adapter import Api, Asyncio, Blocking


@pytest.fixture(params=[Asyncio, Blocking], ids=["asyncio", "blocking"])
def api(request: pytest.FixtureRequest, port: int) -> Api:
    made: Api = request.param(port)
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in its own event loop. Then close everything that the API opened."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def run() -> None:
        try:
            await pyfuncitem.obj(**arguments)
        finally:
            for value in arguments.values():
                if isinstance(value, Api):
                    await value.close()

    asyncio.run(run())
    return True
