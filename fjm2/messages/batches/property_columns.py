"""Encoding of the properties of many messages: values that all messages share, and columns of one value for each."""

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fjm2.base.quantities import counted

from ..errors import MessageFormatError
from ..properties import PropertyColumn, checked_property, encode_properties
from ..types import Byte, Float, Long, PropertyValue, Short
from ..values import Tag

Cells: TypeAlias = tuple[int, NDArray[Any]]
"""Values of one column as they are sent, and their place in the encoded properties."""

_STORED: Final[dict[str, tuple[Callable[[Any], PropertyValue], Tag]]] = {
    "b1": (bool, Tag.FALSE),
    "i1": (Byte, Tag.BYTE),
    "i2": (Short, Tag.SHORT),
    "i4": (int, Tag.INT),
    "i8": (Long, Tag.LONG),
    "f4": (Float, Tag.FLOAT),
    "f8": (float, Tag.DOUBLE),
}
"""Types of values whose size is fixed, and their tags, by numpy's name of the type."""
_NUMPY_NAMES: Final[dict[type, str]] = {
    bool: "b1",
    Byte: "i1",
    Short: "i2",
    int: "i4",
    Long: "i8",
    Float: "f4",
    float: "f8",
}


class PropertyColumns:
    """Encoded properties of the messages of a batch."""

    def __init__(self, properties: Mapping[str, PropertyColumn], count: int) -> None:
        """Raise MessageFormatError or ValueError if `properties` are not those of `count` messages."""
        self.shared = b""
        """Encoded properties of each message, with blanks where the cells of columns belong."""
        self.cells: list[Cells] = []
        self.rows: list[bytes] | None = None
        """Encoded properties of each message that follow the shared ones; None if there are none."""
        rows = []
        for name, value in properties.items():
            if not is_column(value):
                self.shared += encode_properties({name: checked_property(name, value)})
                continue
            column, stored = _column_of(name, checked_column(name, value, count))
            if column is None:
                rows.append([encode_properties({name: one}) for one in stored])
            elif count:
                self._add(name, column)
        if rows:
            self.rows = [b"".join(row) for row in zip(*rows, strict=True)]

    def _add(self, name: str, column: NDArray[Any]) -> None:
        make, tag = _STORED[column.dtype.str[1:]]
        entry = encode_properties({name: checked_property(name, make(column[0].item()))})
        if tag is Tag.FALSE:
            cells = column.astype(np.uint8) + np.uint8(Tag.FALSE)
        else:
            cells = column.astype(column.dtype.newbyteorder(">"))
        self.cells.append((len(self.shared) + len(entry) - cells.itemsize, cells))
        self.shared += entry


def is_column(value: object) -> bool:
    """Return True if `value` has one value for each message, and not one for all."""
    return isinstance(value, list | tuple | np.ndarray)


def checked_column(name: str, value: Any, count: int) -> Any:
    """Return a list or array of values. Raise MessageFormatError if there is not one for each message."""
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise MessageFormatError(f"property {name!r}: an array of {counted(value.ndim, 'dimension')}: expected 1")
    if len(value) != count:
        raise MessageFormatError(
            f"property {name!r}: {counted(len(value), 'value')} for {counted(count, 'message')}: expected one value, "
            "or a list or array with one for each message"
        )
    return value


def rows_of(properties: Mapping[str, PropertyColumn], count: int) -> list[dict[str, PropertyValue]]:
    """Return the properties of each message."""
    rows: list[dict[str, PropertyValue]] = [{} for _ in range(count)]
    for name, value in properties.items():
        values = _values_of(checked_column(name, value, count)) if is_column(value) else repeat(value)
        for row, one in zip(rows, values, strict=False):
            row[name] = cast(PropertyValue, one)
    return rows


def _values_of(column: Any) -> list[PropertyValue]:
    """Return the values of a column, with the types of an array's values."""
    if not isinstance(column, np.ndarray):
        return list(column)
    make, _ = _STORED.get(column.dtype.str[1:], (None, None))
    values = column.tolist()
    return values if make is None else [make(value) for value in values]


def _column_of(
    name: str, values: Sequence[PropertyValue] | NDArray[Any]
) -> tuple[NDArray[Any] | None, list[PropertyValue]]:
    """Return the values as an array if they are of one type of a fixed size. Otherwise return None, and the values as
    properties store them."""
    if isinstance(values, np.ndarray):
        if values.dtype.str[1:] in _STORED:
            return values, []
        values = values.tolist()
    if set(map(type, values)) == {float}:
        return np.array(values, np.float64), []
    stored = [checked_property(name, value) for value in values]
    kinds = set(map(type, stored))
    known = _NUMPY_NAMES.get(kinds.pop()) if len(kinds) == 1 else None
    return (None, stored) if known is None else (np.array(stored, known), [])
