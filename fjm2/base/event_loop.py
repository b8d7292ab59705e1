"""The event loop that programs run on: uvloop where it is installed, otherwise asyncio's own."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

_T = TypeVar("_T")


def uvloop_class() -> "type[asyncio.AbstractEventLoop] | None":
    """Return the class of uvloop's event loops, or None if uvloop is not installed or does not run here."""
    try:
        import uvloop
    except ImportError:
        return None
    loop_class: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop_class


def run(main: Coroutine[Any, Any, _T], *, debug: bool | None = None) -> _T:
    """Run a program's coroutine, and return its result. Does what `asyncio.run` does, on uvloop where it is installed.

    Ctrl-C cancels the coroutine, which can clean up, and then raises KeyboardInterrupt. Raise RuntimeError in a program
    that runs an event loop already: await the coroutine there.
    """
    given: object = main  # whatever its type is said to be
    if not isinstance(given, Coroutine):
        if callable(given):
            name = getattr(given, "__name__", "main")
            raise ValueError(f"fjm2.run({name}): a coroutine was expected, not a function; call it: fjm2.run({name}())")
        raise ValueError(f"fjm2.run({given!r}): a coroutine was expected, as in fjm2.run(main())")
    import asyncio  # here, as every program imports `fjm2` first, before it can handle Ctrl-C

    if _is_running():
        main.close()
        raise RuntimeError("fjm2.run: an event loop is running: await the coroutine instead")
    with asyncio.Runner(debug=debug, loop_factory=uvloop_class()) as runner:
        return runner.run(main)


def _is_running() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
