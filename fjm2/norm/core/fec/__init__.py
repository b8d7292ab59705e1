"""Forward error correction of NORM: blocks of symbols in, parity or the missing symbols out.

`NoCode` and `ReedSolomon` are both a `Code`. They work on arrays `[blocks, symbols, bytes]` and know neither
packets nor block numbers. Ids 5, 129 (instance 0) and 2 of FEC Encoding are `ReedSolomon` here, with 8 or 16 bits.
"""

from .code import Code
from .nocode import NoCode
from .reed_solomon import ReedSolomon

__all__ = ["Code", "NoCode", "ReedSolomon"]
