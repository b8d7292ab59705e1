"""Fixtures that run each test twice: with asyncio, and with blocking calls in threads.

Each run has its own bus on the loopback interface. In `make test`, half of the tests run in one way, half in the other.
"""

import asyncio
import inspect
from pathlib import Path
from zlib import crc32

import pytest
from adapter import Api, Asyncio, Blocking

_HERE = f"{Path(__file__).parent}/"


@pytest.fixture(params=[Asyncio, Blocking], ids=["asyncio", "blocking"])
def api(request: pytest.FixtureRequest, port: int) -> Api:
    made: Api = request.param(port)
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one of the two runs of each test to `make nightly`. The name of the test says which one."""
    runs: dict[tuple[Path, str], dict[type[Api], list[pytest.Item]]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and str(item.path).startswith(_HERE) and hasattr(item, "callspec"):
            api = item.callspec.params.get("api")
            runs.setdefault((item.path, item.originalname), {}).setdefault(api, []).append(item)
    for (_, name), of_api in runs.items():
        if set(of_api) == {Asyncio, Blocking}:
            for item in of_api[(Asyncio, Blocking)[crc32(name.encode()) % 2]]:
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
