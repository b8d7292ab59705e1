"""Kinds of the commands of keepers: byte 0 of each."""

from enum import IntEnum
from typing import Final

KEEPER_STATUS: Final = 10
"""Kind of the command by which a keeper tells its status. No cell takes it."""


class Kind(IntEnum):
    """Kinds of the commands of a cell. 1 and 7 are those of the bus, 15 and 16 those of last values."""

    HEARTBEAT = 2
    VOTE_REQUEST = 3
    VOTE_ANSWER = 4
    FETCH = 5
    FOUNDING = 6
    TABLE_HASHES = 8
    TABLE_QUERY = 9
    COUNTED = 11
    CATCH_UP_QUERY = 12
    CATCH_UP_PAGE = 13
    CELL_QUESTION = 14
    REPLACEMENT = 17
