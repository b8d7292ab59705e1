"""Tables of header fields. Both the Struct for one message and the numpy dtype for a train are made from them."""

import struct
from collections.abc import Sequence

import numpy as np

Field = tuple[str, str]
"""Name and struct code of a field. The code determines its length."""

COMMON: tuple[Field, ...] = (
    ("version_type", "B"),
    ("header_words", "B"),
    ("sequence", "H"),
    ("source_id", "I"),
)
FROM_SENDER: tuple[Field, ...] = (
    ("instance_id", "H"),
    ("grtt_q", "B"),
    ("backoff_gsize", "B"),
)
OBJECT: tuple[Field, ...] = (
    ("flags", "B"),
    ("fec_id", "B"),
    ("object_id", "H"),
)
FROM_RECEIVER: tuple[Field, ...] = (
    ("sender_id", "I"),
    ("instance_id", "H"),
    ("ack_type", "B"),
    ("ack_id", "B"),
    ("grtt_response_s", "I"),
    ("grtt_response_us", "I"),
)
STREAM: tuple[Field, ...] = (
    ("length", "H"),
    ("message_start", "H"),
    ("offset", "I"),
)

_DTYPE_OF_CODE = {"B": "u1", "H": ">u2", "I": ">u4", "Q": ">u8"}


def struct_of(fields: Sequence[Field]) -> struct.Struct:
    """Return a big-endian Struct of the fields, without padding."""
    return struct.Struct(">" + "".join(code for _, code in fields))


def dtype_of(fields: Sequence[Field]) -> np.dtype[np.void]:
    """Return a structured dtype of the fields, without padding."""
    return np.dtype([(name, _DTYPE_OF_CODE[code]) for name, code in fields])
