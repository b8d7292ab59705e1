"""Fixtures that run each test twice: with asyncio, and with blocking calls in threads.

Each run has its own bus on the loopback interface. Of tests that take seconds, `make test` does one of the two runs.
"""

import asyncio
import inspect
from pathlib import Path
from zlib import crc32

import pytest
from adapter import Api, Asyncio, Blocking

_HERE = Path(__file__).parent
_TAKES_SECONDS = ("delays", "files", "keepers", "test_jms_closing.py", "test_jms_typed.py", "test_jms_waiting.py")


@pytest.fixture(params=[Asyncio, Blocking], ids=["asyncio", "blocking"])
def api(request: pytest.FixtureRequest, port: int) -> Api:
    made: Api = request.param(port)
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one of the two runs of a test that takes seconds to `make nightly`. The name of the test says which one."""
    for item in items:
        if not isinstance(item, pytest.Function) or _HERE not in item.path.parents or not hasattr(item, "callspec"):
            continue
        run = item.callspec.params.get("api")
        by_day = (Asyncio, Blocking)[crc32(item.originalname.encode()) % 2]
        if run not in (None, by_day) and item.path.relative_to(_HERE).parts[0] in _TAKES_SECONDS:
            item.add_marker(pytest.mark.nightly)


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
