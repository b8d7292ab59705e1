"""Checks of what programs pass: functions to be called, bytes to be sent, types of what is to be returned, and names of
attributes."""

from difflib import get_close_matches
from inspect import iscoroutinefunction
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from .quantities import repr_of, shortened

_SHOWN_CHARACTERS_MAX: Final = 60
"""Length to which an error shows what is no function."""
_NO_BODY: Final[Any] = None
"""Object to try `isinstance` with."""
_THREADS_AWAIT_NOTHING: Final = "as threads await nothing; fjm2.jms takes coroutine functions"


def function_name(function: object) -> str:
    """Return the name of a function for sentences: its qualified name or, for any other callable object, its repr."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else shortened(repr_of(function), _SHOWN_CHARACTERS_MAX)


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
        raise TypeError(f"{name}={function_name(value)}: expected a plain function, {reason}")


def check_methods(name: str, value: object, methods: tuple[str, ...], kind: str) -> None:
    """Raise TypeError unless an object has all of these methods."""
    if not all(callable(getattr(value, method, None)) for method in methods):
        shown = shortened(repr_of(value), _SHOWN_CHARACTERS_MAX)
        raise TypeError(f"{name}={shown}: expected a {kind}, an object with the methods {' and '.join(methods)}")


def classes_of(kind: Any) -> tuple[type, ...]:
    """Return the classes of a type: a class, one with parameters such as `dict[str, int]`, which stands for `dict`, or
    a union of these. Raise TypeError if it is anything else."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    classes = tuple(get_origin(one) or one for one in parts)
    try:
        if all(isinstance(one, type) for one in classes):
            isinstance(_NO_BODY, classes)  # raises TypeError for classes without instances, such as Any
            return classes
    except TypeError:
        pass
    raise TypeError(
        f"type={shortened(repr_of(kind), _SHOWN_CHARACTERS_MAX)}: expected a class of messages, such as TextMessage, "
        "or of bodies, such as str, dict[str, int] or str | bytes"
    )


def check_type(kind: Any) -> None:
    """Raise TypeError unless a type is one that `classes_of` knows."""
    try:
        isinstance(_NO_BODY, kind)  # enough for nearly all, and fast
    except TypeError:
        classes_of(kind)


def type_text(kind: Any) -> str:
    """Return a type as it stands in sentences: `a str`, `an int`, `bytes`, `a dict[str, int]` or `a str | bytes`."""
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    if name == "bytes":
        return name
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


class FixedAttributes:
    """Base of objects on which a misspelt option raises AttributeError instead of being ignored.

    Each class lists its own attributes in `__slots__`. A class of an application that derives from one of them may have
    any. Setting an attribute takes ten times as long as usual: what changes for each message belongs into an object of
    its own.
    """

    __slots__ = ("__weakref__",)

    def __setattr__(self, name: str, value: object) -> None:
        try:
            object.__setattr__(self, name, value)
        except AttributeError:
            if hasattr(type(self), name):  # its setter raised, or it has none
                raise
            known = [one for one in dir(type(self)) if getattr(getattr(type(self), one), "fset", None) is not None]
            meant = get_close_matches(name, known, 1)
            advice = f": did you mean {meant[0]}?" if meant else ""
            raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}{advice}") from None
