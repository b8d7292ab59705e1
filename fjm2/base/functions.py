"""Checks of the functions that programs pass to be called, and of the bytes that they pass to be sent."""

from inspect import iscoroutinefunction
from typing import Final

from .quantities import repr_of, shortened

_SHOWN_CHARACTERS_MAX: Final = 60
"""Length to which an error shows what is no function."""
_THREADS_AWAIT_NOTHING: Final = "as threads await nothing; fjm2.jms takes coroutine functions"


def check_bytes(name: str, value: object) -> None:
    """Raise TypeError unless a value is bytes, or a bytearray or memoryview whose items are bytes.

    Where every message passes, call it for values that are not exactly bytes.
    """
    if isinstance(value, memoryview):  # first, as programs pass views for speed
        if value.c_contiguous and value.itemsize == 1 and value.ndim == 1:
            return
    elif isinstance(value, bytes | bytearray):
        return
    shown = f"{name}={shortened(repr_of(value), _SHOWN_CHARACTERS_MAX)}"
    if isinstance(value, memoryview):
        raise TypeError(f"{shown}: expected a view of single bytes without gaps; convert it: bytes(...)")
    how = '"text".encode()' if isinstance(value, str) else "bytes(...)"
    raise TypeError(f"{shown}: expected bytes; convert {type(value).__name__} with {how}")


def check_callback(name: str, value: object, is_awaited: bool = True) -> None:
    """Raise TypeError unless a callback is None or can be called. Unless `is_awaited`, it must be no coroutine
    function."""
    if value is not None and not callable(value):
        raise TypeError(f"{name}={shortened(repr_of(value), _SHOWN_CHARACTERS_MAX)}: expected a function")
    if not is_awaited:
        _check_plain(name, value, _THREADS_AWAIT_NOTHING)


def check_progress_listener(value: object) -> None:
    """Raise TypeError unless the value of `on_progress` is None or a function that does not wait."""
    check_callback("on_progress", value)
    _check_plain("on_progress", value, "as nothing awaits it")


def _check_plain(name: str, value: object, reason: str) -> None:
    if iscoroutinefunction(value):
        shown = getattr(value, "__qualname__", repr(value))
        raise TypeError(f"{name}={shown}: expected a plain function, {reason}")


def check_methods(name: str, value: object, methods: tuple[str, ...], kind: str) -> None:
    """Raise TypeError unless an object has all of these methods."""
    if not all(callable(getattr(value, method, None)) for method in methods):
        shown = shortened(repr_of(value), _SHOWN_CHARACTERS_MAX)
        raise TypeError(f"{name}={shown}: expected a {kind}, an object with the methods {' and '.join(methods)}")
