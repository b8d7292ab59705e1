"""Functions that take segments out of trains, for links that treat some segments differently."""

from collections.abc import Sequence

import numpy as np

from fjm2.norm.core.train import Train


def segment_at(train: Train, place: int) -> Train:
    """Return the datagram at a place in a train, as a train of its own. The first place is 0."""
    start = place * train.segment_bytes
    data = train.data[start : start + train.segment_bytes]
    return Train(data, data.size, train.address)


def without_segments(train: Train, places: Sequence[int]) -> Train | None:
    """Return a train without the segments at `places`, or None if no segment is left."""
    is_kept = np.ones(train.count, np.bool_)
    is_kept[list(places)] = False
    if not is_kept.any():
        return None
    size = train.segment_bytes
    full = train.data.size // size
    data = train.data[: full * size].reshape(full, size)[is_kept[:full]].reshape(-1)
    if full < len(is_kept) and is_kept[full]:
        tail = train.data[full * size :]
        data = np.concatenate((data, tail))
        size = size if is_kept[:full].any() else tail.size
    return Train(data, size, train.address)
