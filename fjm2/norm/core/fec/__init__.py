"""Forward error correction of NORM: codes that make parity for blocks of symbols, and restore missing symbols.

A `Code` is either `NoCode` or `ReedSolomon`. It works on arrays `[blocks, symbols, bytes]`, and knows neither packets
nor block numbers. FEC Encoding IDs 5, 129 (instance 0) and 2 are `ReedSolomon` here, with 8 or 16 bits.
"""

from .code import Code
from .nocode import NoCode
from .reed_solomon import ReedSolomon

__all__ = ["Code", "NoCode", "ReedSolomon"]
