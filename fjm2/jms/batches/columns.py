"""Columns of a received batch: a property or a header of all messages as a numpy array."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from fjm2.bus.inbox import Delivery
from fjm2.messages.frame import look_up
from fjm2.messages.properties import DELIVERY_COUNT
from fjm2.messages.selector.names import HEADERS
from fjm2.messages.types import Byte, Float, Long, PropertyValue, Short

from ..deliveries import GAP, GAP_REASON, BatchItem, RunDelivery


def column_of(items: Sequence[BatchItem], name: str) -> NDArray[Any]:
    """Return a property or a header of all messages. See `Batch.column`."""
    columns: list[NDArray[Any]] = []
    for is_run, group in groupby(items, lambda item: isinstance(item, RunDelivery)):
        if is_run:
            columns += [_run_column(cast(RunDelivery, item), name) for item in group]
        else:
            columns.append(_array_of([_look_up(cast(Delivery, item), name) for item in group]))
    if len({column.dtype.kind for column in columns}) > 1:
        columns = [column.astype(object) for column in columns]
    return np.concatenate(columns) if columns else np.empty(0, object)


def _run_column(item: RunDelivery, name: str) -> NDArray[Any]:
    frames = item.run.frames
    if name == DELIVERY_COUNT:
        return np.ones(len(frames), np.int32)
    column = None if name in HEADERS else frames.column(name)
    if column is not None:
        return column
    return _array_of([look_up(buffer, start, header, name) for buffer, start, _, _, header in frames])


def _look_up(delivery: Delivery, name: str) -> PropertyValue:
    if name == DELIVERY_COUNT:
        return delivery.count
    if name == GAP:
        return None if delivery.gap is None else True
    if name == GAP_REASON:
        return None if delivery.gap is None else delivery.gap.word
    return look_up(delivery.received.head, 0, delivery.received.header, name)


_NUMPY_TYPES: Final[dict[type, type[np.generic]]] = {
    bool: np.bool_,
    Byte: np.int8,
    Short: np.int16,
    int: np.int32,
    Long: np.int64,
    Float: np.float32,
    float: np.float64,
}
_INT_END: Final = 1 << 31
"""Number past the greatest that has 32 bits."""


def _kind_of(value: PropertyValue) -> type[np.generic] | None:
    """Return the numpy type of a value; None if there is none. Headers such as JMSTimestamp are large plain ints."""
    if type(value) is int and not -_INT_END <= value < _INT_END:
        return np.int64
    return _NUMPY_TYPES.get(type(value))


def _array_of(values: list[PropertyValue]) -> NDArray[Any]:
    """Return values as an array of their type."""
    kinds = {_kind_of(value) for value in values}
    if len(kinds) > 1 and None not in kinds:
        joined = np.result_type(*cast(set[type[np.generic]], kinds))
        whole = {np.dtype(kind).kind for kind in kinds}
        if len(whole) == 1:
            return np.array(values, joined)
    kind = kinds.pop() if len(kinds) == 1 else None
    array = np.empty(len(values), object if kind is None else kind)
    array[:] = values
    return array
