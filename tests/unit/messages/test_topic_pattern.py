"""Tests of patterns of topics: which names match, which patterns are refused, and tables of many patterns."""

import copy
import pickle
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.logs import Log
from fjm2.jms import InvalidDestinationError, Message, Queue, TemporaryTopic, Topic, TopicPattern
from fjm2.messages import destination
from fjm2.messages.destination import PatternTable, destination_from, is_pattern_hash

MATCHING = [
    ("prices.*", "prices.eur"),
    ("prices.*", "prices."),
    ("prices.>", "prices.eur"),
    ("prices.>", "prices.eur.spot"),
    ("prices.>", "prices.eur/spot"),
    ("*.eur.>", "prices.eur.spot.1"),
    ("*", "prices"),
    (">", "prices.eur/spot"),
    (">", "*"),
    ("sensors/*/temperature", "sensors/7/temperature"),
    ("sensors/>", "sensors/7/temperature"),
    ("/site/*", "/site/a"),
    ("*/site", "/site"),
    ("prices.eur", "prices.eur"),
    ("prices.*", "prices.*"),
    ("prices.>", "prices.>"),
    ("*.*", "é.\n"),
    ("FJM2.>", "FJM2.REFRESH"),
    (">", "fjm2.demo"),
]
OTHERS = [
    ("prices.*", "prices"),
    ("prices.*", "prices.eur.spot"),
    ("prices.*", "prices/eur"),
    ("prices.*", "prices.eur/spot"),
    ("prices.>", "prices"),
    ("prices.>", "prices/eur"),
    ("prices.>", "pricesX.eur"),
    ("*", "prices.eur"),
    ("*.eur", "prices.usd"),
    ("sensors/*/temperature", "sensors/7/8/temperature"),
    ("prices.eur", "prices.usd"),
    (">", "FJM2.REFRESH"),
    ("*.>", "FJM2.REFRESH"),
    ("*.REFRESH", "FJM2.REFRESH"),
]


@pytest.mark.parametrize(("pattern", "name"), MATCHING)
def test_these_names_match(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name)


@pytest.mark.parametrize(("pattern", "name"), OTHERS)
def test_these_names_do_not_match(pattern: str, name: str) -> None:
    assert not TopicPattern(pattern).matches(name)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("prices*", "the level 'prices*' has more than a wildcard: expected '*' or '>' alone"),
        ("a.b>", "the level 'b>' has more than a wildcard"),
        ("a.**", "the level '**' has more than a wildcard"),
        ("a.>.b", "expected '>' at the end only"),
        (">/", "expected '>' at the end only"),
        ("", "not a destination name"),
    ],
)
def test_patterns_that_make_no_sense_are_refused(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidDestinationError, match=re.escape(reason)):
        TopicPattern(pattern)


def test_a_pattern_matches_topics_that_are_not_temporary() -> None:
    assert TopicPattern("a.*").matches(Topic("a.b"))
    assert not TopicPattern("a.*").matches(TemporaryTopic("a.b"))


def test_a_pattern_is_another_destination_than_a_topic_of_its_name() -> None:
    pattern = TopicPattern("prices")
    assert pattern != Topic("prices")
    assert pattern == TopicPattern("prices")
    assert len({pattern, TopicPattern("prices"), Topic("prices"), Queue("prices")}) == 3
    assert is_pattern_hash(pattern.frame_hash)
    assert not is_pattern_hash(Topic("prices").frame_hash)
    assert (str(pattern), repr(pattern)) == ("topic://prices", "TopicPattern('prices')")
    assert copy.deepcopy(pattern) == pickle.loads(pickle.dumps(pattern)) == pattern


def test_a_pattern_is_no_place_for_replies() -> None:
    with pytest.raises(InvalidDestinationError, match="is a pattern, to consume from: expected one topic to send to"):
        Message().reply_to = TopicPattern("prices.>")


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what was told before."""
    monkeypatch.setattr(destination, "_told", set())
    monkeypatch.setattr(destination, "log", Log("fjm2.jms"))


@pytest.mark.parametrize(
    ("name", "hint"), [("prices.*", '"prices.*"'), ("a.>", '"a.>"'), ("a*", '"prices.>"'), ("a>b", '"prices.>"')]
)
@pytest.mark.usefixtures("untold")
def test_a_topic_with_wildcards_is_told_once(caplog: pytest.LogCaptureFixture, name: str, hint: str) -> None:
    for _ in range(3):
        Topic(name)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        f'wildcard_in_topic: Topic("{name}") is one topic, of this very name: to consume from all topics that match a '
        f"pattern, use TopicPattern({hint})"
    )


@pytest.mark.parametrize(
    ("name", "meant"), [("prices.#", "prices.>"), ("a/+/b", "a/*/b"), ("#", ">"), ("+.+.#", "*.*.>")]
)
@pytest.mark.usefixtures("untold")
def test_wildcards_of_mqtt_and_amqp_are_told_with_their_translation(
    caplog: pytest.LogCaptureFixture, name: str, meant: str
) -> None:
    Topic(name)
    assert f'wildcard_in_topic: Topic("{name}") is one topic' in caplog.text
    assert f'use TopicPattern("{meant}")' in caplog.text
    caplog.clear()
    destination._told.clear()
    TopicPattern(name)
    (record,) = caplog.records
    assert record.getMessage() == (
        f'wildcard_unknown: TopicPattern("{name}"): # and + are ordinary levels, as of topics: '
        f'use TopicPattern("{meant}")'
    )


@pytest.mark.parametrize("scheme", ["topic", "temp-topic"])
@pytest.mark.usefixtures("untold")
def test_a_topic_with_a_scheme_is_told(caplog: pytest.LogCaptureFixture, scheme: str) -> None:
    Topic(f"{scheme}://prices.eu")
    (record,) = caplog.records
    assert record.getMessage() == (
        f'scheme_in_topic: Topic("{scheme}://prices.eu") is another topic than Topic("prices.eu"): use that, '
        f"without {scheme}://"
    )


@pytest.mark.usefixtures("untold")
def test_a_topic_that_was_meant_as_a_queue_is_told(caplog: pytest.LogCaptureFixture) -> None:
    Topic("queue://orders")
    (record,) = caplog.records
    assert record.getMessage() == (
        'scheme_in_topic: Topic("queue://orders") is a topic: of queues, there are only temporary ones; or use '
        'Topic("orders")'
    )


@pytest.mark.usefixtures("untold")
def test_names_with_these_characters_inside_a_level_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("lang.C#", "c++", "a.#.b", "http://host/path"):
        Topic(name)
        TopicPattern(name)
    assert not caplog.records


@pytest.mark.usefixtures("untold")
def test_names_that_others_chose_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    made = destination_from(0, b"prices.*")
    assert (type(made), made.name) == (Topic, "prices.*")
    TemporaryTopic("a.*")
    Queue("a.*")
    TopicPattern("a.*")
    assert not caplog.records


@pytest.mark.usefixtures("untold")
def test_a_program_with_many_such_names_hears_of_some() -> None:
    for number in range(2000):
        Topic(f"{number}.*")
    assert len(destination._told) == 1024


def levels_of(name: str) -> tuple[list[str], list[str]]:
    """Return the levels of a name, and the separators between them."""
    return re.split(r"[./]", name), re.findall(r"[./]", name)


def is_match(pattern: str, name: str) -> bool:
    """Return True if a name matches, by the definition of the documentation."""
    (wanted, wanted_separators), (levels, separators) = levels_of(pattern), levels_of(name)
    if levels[0] == "FJM2" and wanted[0] != "FJM2":
        return False
    if wanted[-1] == ">":
        count = len(wanted) - 1
        if len(levels) <= count or wanted_separators != separators[:count]:
            return False
        wanted, levels = wanted[:-1], levels[:count]
    elif wanted_separators != separators:
        return False
    return all(one in ("*", other) for one, other in zip(wanted, levels, strict=True))


def joined(levels: list[str], separators: list[str]) -> str:
    return "".join(level + separator for level, separator in zip(levels, [*separators, ""], strict=True))


def names(words: list[str]) -> st.SearchStrategy[str]:
    made = st.lists(st.sampled_from(words), min_size=1, max_size=5).flatmap(
        lambda levels: st.lists(st.sampled_from("./"), min_size=len(levels) - 1, max_size=len(levels) - 1).map(
            lambda separators: joined(levels, separators)
        )
    )
    return made.filter(bool)


TOPICS = names(["a", "b", "", "*", ">", "FJM2"])
PATTERNS = st.one_of(names(["a", "b", "", "*", "FJM2"]), names(["a", "*"]).map(lambda name: f"{name}.>"), st.just(">"))


@given(PATTERNS, TOPICS)
def test_a_pattern_matches_as_the_model_says(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) == is_match(pattern, name)


@given(st.lists(PATTERNS, max_size=12), st.data())
def test_a_table_finds_what_each_pattern_matches(patterns: list[str], data: st.DataObject) -> None:
    table: PatternTable[int] = PatternTable()
    held = {number: TopicPattern(pattern) for number, pattern in enumerate(patterns)}
    for number, pattern in held.items():
        table.add(pattern, number)
    for number in data.draw(st.lists(st.sampled_from(sorted(held)), unique=True) if held else st.just([])):
        pattern = held.pop(number)
        table.remove(pattern, number)
        table.remove(pattern, number)
    name = data.draw(TOPICS)
    assert sorted(table.find(name)) == [number for number, one in held.items() if is_match(one.name, name)]
    assert bool(table) == bool(held)


def test_the_work_does_not_grow_with_the_number_of_patterns() -> None:
    """Hostile names cost the same with many patterns as with few: nodes of other levels are not looked at."""
    looks = []
    for count in (10, 100, 1000):
        table: PatternTable[int] = PatternTable()
        for number in range(count):
            table.add(TopicPattern(f"prices.{number}.*"), number)
        looked = CountingDict.count
        make_counting(table)
        assert table.find("prices.5.x" + ".y" * 10_000) == []
        assert table.find("prices.5.x") == [5]
        looks.append(CountingDict.count - looked)
    assert all(before == after for before, after in pairwise(looks))


class CountingDict(dict[str, object]):
    """A dictionary that counts how often it is searched."""

    count = 0

    def __contains__(self, key: object) -> bool:
        CountingDict.count += 1
        return super().__contains__(key)


def make_counting(table: PatternTable[int]) -> None:
    nodes = [table._root]
    for node in nodes:
        nodes += node.children.values()
        node.children = CountingDict(node.children)  # type: ignore[assignment]
