"""Products of a matrix over GF(2^m) and many symbols, by the method of four Russians.

The coefficients are split into bits. For each bit, the result is a sum of some of the sources. All sums of a small
group of sources are computed once, and each output picks one sum of each group. The sums for the bits are joined by
Horner's rule, in which multiplying by two is a shift. So numpy copies and XORs whole rows, and no byte is looked up in
a table.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .code import Symbols
from .field import Field
from .lagrange import Coefficients
from .workspace import borrowed, padded, shaped

BlockIndex: TypeAlias = slice | NDArray[np.intp]

# Sums, picked rows and bit planes: together they must stay in a second-level cache of 1 or 2 MiB.
_SUMS_BYTES = 1 << 20
_PICKED_BYTES = 1 << 19
_PLANES_BYTES = 1 << 19
_NARROWEST_BYTES = 512
"""Bytes of the shortest part of a row that is handled by itself. Finding a shorter part costs as much as copying it."""

# For each octet, a word of eight octets, each of which holds one of its bits, the lowest first.
_SPREAD = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").view("<u8")[:, 0]


@dataclass(frozen=True, slots=True, eq=False)
class Picks:
    """A matrix, or one matrix for each block, in the form of the sums to pick."""

    group: int
    """Number of sources in a group. Group j has the sources j, j + groups, j + 2 * groups and so on."""
    columns: int
    """Number of columns of the matrix, which is the number of sources of a block."""
    sums: NDArray[np.intp]
    """Numbers of sums, `[blocks, groups, bits * rows]`. Bit i tells if source i of the group is part of the sum."""

    @classmethod
    def of(cls, field: Field, coefficients: Coefficients) -> "Picks":
        """Return the picks of coefficients `[blocks, rows, columns]`. If there is one block, all share its picks."""
        blocks, rows, columns = coefficients.shape
        group = min(_group_for(rows * field.bits), columns)
        groups = -(-columns // group)
        whole = np.zeros((blocks, rows, groups * group), field.exp.dtype)
        whole[:, :, :columns] = coefficients
        bits = _SPREAD[whole.view(np.uint8).reshape(blocks, rows, group, groups * field.octets)]
        bits <<= np.arange(group, dtype=np.uint64)[:, None]
        sums = np.bitwise_or.reduce(bits, axis=2).view(np.uint8).reshape(blocks, rows, groups, field.bits)
        return cls(group, columns, sums.transpose(0, 2, 3, 1).astype(np.intp).reshape(blocks, groups, -1))

    def rows_of(self, blocks: slice) -> NDArray[np.intp]:
        """Return the picks of some blocks as row numbers in their sums, `[sums, blocks, groups]` flattened."""
        sums = self.sums[blocks] if len(self.sums) > 1 else self.sums
        count, groups = blocks.stop - blocks.start, self.sums.shape[1]
        own = np.arange(count * groups).reshape(count, groups, 1)
        rows: NDArray[np.intp] = sums * (count * groups) + own
        return rows


def _group_for(picks: int) -> int:
    """Return the number of sources in a group. The sums of a large group cost more, and pay only if picked often."""
    return min(max(picks.bit_length() - 2, 3), 6)


def multiply(field: Field, picks: Picks, symbols: Symbols, blocks: BlockIndex, first: int, product: Symbols) -> None:
    """XOR into `product` the matrix times the symbols of some blocks, beginning with the symbol `first`."""
    count, rows, width = product.shape
    for columns in _column_parts(picks, width):
        part_width = columns.stop - columns.start
        size = _Sizes.of(picks, rows, padded(part_width), count)
        with borrowed(size.sums, size.picked, size.planes, size.total, size.total) as memory:
            for_sums, for_picked, for_planes, for_total, for_carry = memory
            for batch in _parts(0, count, size.batch):
                planes = shaped(for_planes, batch.stop - batch.start, size.picks, size.width)
                for some in _parts(batch.start, batch.stop, size.step):
                    sources = symbols[_some_of(blocks, some), :, columns]
                    sums = _sums_of_groups(picks, sources, first, size.width, for_sums)
                    own = planes[some.start - batch.start : some.stop - batch.start]
                    _pick(sums, picks.rows_of(some), for_picked, own)
                product[batch, :, columns] ^= _join_bits(field, planes, for_total, for_carry)[..., :part_width]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Amounts of work to do at once, and the bytes of memory that each needs."""

    picks: int
    width: int
    step: int
    """Number of blocks whose sums are computed at once."""
    batch: int
    """Number of blocks whose bits are joined at once: many, because joining takes many calls that do little each."""
    sums: int
    picked: int
    planes: int
    total: int

    @classmethod
    def of(cls, picks: Picks, rows: int, width: int, blocks: int) -> "_Sizes":
        _, groups, count = picks.sums.shape
        sums, planes = (groups << picks.group) * width, count * width
        step = max(1, min(blocks, _SUMS_BYTES // sums))
        batch = max(step, min(blocks, _PLANES_BYTES // planes))
        picked = max(_PICKED_BYTES, step * groups * width)
        return cls(count, width, step, batch, step * sums, picked, batch * planes, batch * rows * width)


def _column_parts(picks: Picks, width: int) -> list[slice]:
    """Return parts of the columns, equal in width, so that sums and planes of a block stay within their bounds."""
    _, groups, count = picks.sums.shape
    limit = max(_NARROWEST_BYTES, min(_SUMS_BYTES // (groups << picks.group), _PLANES_BYTES // count))
    parts = -(-width // limit)
    return _parts(0, width, padded(-(-width // parts)))


def _parts(first: int, last: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, last)) for start in range(first, last, step)]


def _some_of(blocks: BlockIndex, some: slice) -> BlockIndex:
    if isinstance(blocks, slice):
        return slice(blocks.start + some.start, blocks.start + some.stop)
    return blocks[some]


def _sums_of_groups(picks: Picks, sources: Symbols, first: int, width: int, memory: Symbols) -> Symbols:
    """Return all sums, `[1 << group, blocks, groups, width]`. Padding, and sums without a source, may hold anything."""
    groups = picks.sums.shape[1]
    last = first + picks.columns
    sums = shaped(memory, 1 << picks.group, len(sources), groups, width)
    sums[0] = 0
    for bit in range(picks.group):
        one = 1 << bit
        begin = first + bit * groups
        some = sources[:, begin : min(begin + groups, last)]
        sums[one, :, : some.shape[1], : some.shape[2]] = some
        np.bitwise_xor(sums[1:one], sums[one], out=sums[one + 1 : 2 * one])
    return sums


def _pick(sums: Symbols, rows: NDArray[np.intp], memory: Symbols, planes: Symbols) -> None:
    """Write the XOR of the sums picked in all groups to `planes`, `[blocks, picks, width]`, for each block and pick."""
    blocks, groups, picks = rows.shape
    width = sums.shape[-1]
    flat = sums.reshape(-1, width)
    step = memory.size // (blocks * groups * width)
    for start in range(0, picks, step):
        some = rows[:, :, start : start + step]
        picked = shaped(memory, *some.shape, width)
        # Any mode but "raise" writes to `out` directly.
        np.take(flat, some, axis=0, out=picked, mode="clip")
        np.bitwise_xor.reduce(picked, axis=1, out=planes[:, start : start + step])


def _join_bits(field: Field, planes: Symbols, total: Symbols, carry: Symbols) -> Symbols:
    """Join the bit planes `[blocks, bits * rows, width]` by Horner's rule, highest bit first."""
    blocks, picks, width = planes.shape
    rows, width = picks // field.bits, width // field.octets
    words = planes.view(field.signed).reshape(blocks, field.bits, rows, width)
    sums = shaped(total.view(field.signed), blocks, rows, width)
    high = shaped(carry.view(field.signed), blocks, rows, width)
    # Arrays, because numpy would convert a scalar in each call.
    highest, reduction = np.array(field.bits - 1, field.signed), np.array(field.reduction, field.signed)
    sums[...] = words[:, -1]
    for bit in reversed(range(field.bits - 1)):
        np.right_shift(sums, highest, out=high)
        np.bitwise_and(high, reduction, out=high)
        np.add(sums, sums, out=sums)
        np.bitwise_xor(sums, high, out=sums)
        np.bitwise_xor(sums, words[:, bit], out=sums)
    return sums.view(np.uint8)
