"""Tests of the commands by which consumers learn last values."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.ledger import Ledger
from fjm2.cell.wire.last_values import (
    NAME_BYTES_MAX,
    NO_IDENTITY,
    PAGE_VALUES_MAX,
    QUERY_RANGES_MAX,
    Asked,
    ListedValue,
    Order,
    ValuesPage,
    ValuesQuery,
    decode_page,
    decode_query,
)
from fjm2.cell.wire.ranges import Range

DATAGRAM_BYTES = 1400
u32, u64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
ledgers = st.builds(Ledger, u64, u32, st.integers(0, 2))
identities = st.binary(min_size=16, max_size=16)
values = st.builds(
    ListedValue,
    identities.filter(lambda one: one != NO_IDENTITY),
    st.builds(Order, u64, ledgers, st.integers(1, 1 << 63)),
    u32,
    st.booleans(),
)
queries = st.builds(
    ValuesQuery,
    asked=st.sampled_from(Asked),
    reply_to=u32,
    keeper_node=u32,
    number=u32,
    cell_id=u64,
    after=identities,
    name=st.text(max_size=50),
    ranges=st.lists(st.builds(Range, ledgers, st.integers(1, 1 << 60), st.integers(1, 99)), max_size=5).map(tuple),
)


@st.composite
def pages(draw: st.DrawFn) -> ValuesPage:
    listed = sorted(draw(st.lists(values, max_size=PAGE_VALUES_MAX, unique_by=lambda one: one.identity)))
    return ValuesPage(
        reply_to=draw(u32),
        number=draw(u32),
        cell_id=draw(u64),
        keeper_id=draw(identities),
        has_more=bool(listed) and draw(st.booleans()),
        values_left=draw(u32),
        kib_left=draw(u32),
        values=tuple(listed),
    )


@given(queries)
def test_queries_come_back(query: ValuesQuery) -> None:
    assert decode_query(query.encode()) == query


@given(pages())
def test_pages_come_back(page: ValuesPage) -> None:
    assert decode_page(page.encode()) == page


def full_page() -> ValuesPage:
    order = Order(1, Ledger(1, 2, 0), 3)
    listed = tuple(ListedValue(number.to_bytes(16), order, 5) for number in range(1, PAGE_VALUES_MAX + 1))
    return ValuesPage(
        reply_to=1, number=2, cell_id=3, keeper_id=b"k" * 16, values_left=4, kib_left=5, has_more=True, values=listed
    )


def full_query() -> ValuesQuery:
    ranges = tuple(Range(Ledger(1, 2, 0), sequence, 1) for sequence in range(1, QUERY_RANGES_MAX + 1))
    return ValuesQuery(asked=Asked.MESSAGES, reply_to=1, keeper_node=2, number=3, cell_id=4, ranges=ranges)


def test_the_longest_commands_fit_into_a_datagram() -> None:
    name = ValuesQuery(asked=Asked.TOPIC, reply_to=1, keeper_node=2, number=3, cell_id=4, name="x" * NAME_BYTES_MAX)
    assert max(len(each.encode()) for each in (full_page(), full_query(), name)) <= DATAGRAM_BYTES


@pytest.mark.parametrize("content", [full_page().encode(), full_query().encode()], ids=["page", "query"])
def test_prefixes_and_tails_are_refused(content: bytes) -> None:
    decode = decode_page if content[0] == 16 else decode_query
    assert decode(content) is not None
    assert all(decode(content[:size]) is None for size in range(1, len(content)))
    assert decode(content + b"x") is None


@pytest.mark.parametrize("seed", range(10))
def test_broken_commands_raise_nothing(seed: int) -> None:
    rng = random.Random(seed)
    for content in (full_page().encode(), full_query().encode()):
        for _ in range(300):
            broken = bytearray(content)
            for _ in range(rng.randrange(1, 4)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            decode_page(bytes(broken))
            decode_query(bytes(broken))


def test_values_that_do_not_ascend_are_refused() -> None:
    """A consumer that asks for what is behind the last one would ask for ever."""
    values = full_page().values
    first, second, *rest = values
    for listed, after in (
        ((second, first, *rest), NO_IDENTITY),
        ((first, first, *rest), NO_IDENTITY),
        (values, first.identity),
    ):
        wrong = ValuesPage(
            reply_to=1,
            number=2,
            cell_id=3,
            keeper_id=b"k" * 16,
            values_left=4,
            kib_left=5,
            values=tuple(listed),
            after=after,
        )
        assert decode_page(wrong.encode()) is None


def test_long_names_are_refused() -> None:
    query = ValuesQuery(asked=Asked.TOPIC, reply_to=1, keeper_node=2, number=3, cell_id=4, name="x" * 1025)
    assert decode_query(query.encode()) is None
