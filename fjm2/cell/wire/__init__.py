"""Messages of the cell to bytes and back. All numbers are big-endian.

Encoding raises ValueError for values that a field cannot hold: a mistake of the caller. Decoding never raises: it
returns None for bytes that are no such message. Each message has exactly one encoding, so whatever decodes is encoded
as the same bytes again.
"""
