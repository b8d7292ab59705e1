"""Tests of durations as options: every option of every command that takes a time reads `5s` and `500ms`."""

from collections.abc import Iterator

import click
import pytest
from fjm2bench.cli import main as bench_main

from fjm2.commands import main as fjm2_main
from fjm2.commands.support.common import Duration

TIMES = {"--timeout", "--interval", "--duration", "--watch", "--seconds", "--settle", "--every", "--time-to-live"}
TIMES |= {"--grtt"}


def commands(group: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for one in group.list_commands(context):
            command = group.get_command(context, one)
            assert command is not None
            yield from commands(command, f"{name} {one}")


def test_every_option_that_takes_a_time_takes_units() -> None:
    found = [
        (name, option.opts[0], option.type)
        for root, top in (("fjm2", fjm2_main), ("fjm2-bench", bench_main))
        for name, command in commands(top, root)
        for option in command.params
        if TIMES & set(option.opts)
    ]
    assert len(found) > 20
    assert [(name, option) for name, option, kind in found if not isinstance(kind, Duration)] == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("5s", 5.0), ("2min", 120.0), ("7", 7.0), ("0.25", 0.25)]
)
def test_a_duration_is_in_seconds_unless_it_has_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Duration(), "soon", "soon: expected seconds, or a number with a unit, as in 500ms, 5s, 2min or 1h"),
        (Duration(0.1, 3600), "50ms", "50ms: expected 100ms to 1h"),
        (Duration(is_low_open=True), "0", "0: expected more than 0s"),
        (Duration(2), "1", "1: expected 2s or more"),
    ],
)
def test_mistakes_are_told_with_the_rule(kind: Duration, text: str, message: str) -> None:
    with pytest.raises(click.BadParameter) as error:
        kind.convert(text, None, None)
    assert error.value.message == message
