"""Tests of the comparison of durable topics: turns, medians, ratios, and the check of what subscribers got."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fjm2bench.durable.comparison import as_rows, compare, print_table
from fjm2bench.durable.roles import ACKNOWLEDGE_EVERY, FLYING_MAX, Consumption, RoleOptions
from fjm2bench.durable.trial import LostError, check
from fjm2bench.peers.base import PeerTimeoutError
from fjm2bench.workload.messages import Maker

WELL = {"messages": 10, "lost": 0, "duplicated": 0, "out_of_order": 0, "corrupt": 0}


@dataclass(frozen=True)
class Result:
    msgs_per_s: float


def test_systems_take_turns_and_each_repeat_begins_with_another_one() -> None:
    order: list[str] = []
    rates = iter(range(1, 10))
    standings = compare(["a", "b", "c"], 3, lambda _: Result(float(next(rates))), order.append)
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert [standing.median("msgs_per_s") for standing in standings] == [6.0, 4.0, 5.0]


def test_a_failed_run_is_told_and_does_not_count() -> None:
    outcomes: Iterator[Result | Exception] = iter((Result(1.0), PeerTimeoutError("late"), LostError("1 lost")))

    def measure(_: str) -> Result:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    (row,) = as_rows(compare(["a"], 3, measure, lambda _: None), "msgs_per_s")
    assert (row["faults"], row["msgs_per_s"], row["runs"]) == (["late", "1 lost"], 1.0, [{"msgs_per_s": 1.0}])


def test_ratios_are_those_of_the_medians(capsys: pytest.CaptureFixture[str]) -> None:
    rates = {"fast": 30.0, "slow": 10.0}
    standings = compare(list(rates), 1, lambda system: Result(rates[system]), lambda _: None)
    assert [row["ratios"] for row in as_rows(standings, "msgs_per_s")] == [{"slow": 3.0}, {"fast": 1 / 3}]
    print_table(standings, "msgs_per_s", {"msgs_per_s": ("messages/s", ",.0f")}, "a title")
    line = next(line for line in capsys.readouterr().out.splitlines() if "slow" in line and "10" in line)
    assert "3.00" in line


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"lost": 2, "messages": 8}, "2 lost"),
        ({"duplicated": 1}, "1 duplicated"),
        ({"out_of_order": 3}, "3 out_of_order"),
        ({"corrupt": 1, "lost": 1, "messages": 9}, "1 lost, 1 corrupt"),
        ({"messages": 9}, "9 of 10 messages"),
    ],
)
def test_every_subscriber_must_get_everything_once(wrong: dict[str, int], text: str) -> None:
    check([WELL, WELL], 10)
    with pytest.raises(LostError) as caught:
        check([WELL, WELL | wrong], 10)
    assert str(caught.value) == text


def options(warm_up: int, count: int) -> RoleOptions:
    return RoleOptions(port=1, folder=Path(), size=64, warm_up=warm_up, count=count, number=0, timeout_s=1.0)


def consumed(bodies: list[bytes], task: RoleOptions) -> list[int]:
    """Consume messages, and return the numbers of them after which it was time to acknowledge."""

    async def run() -> list[int]:
        consumption = Consumption("any", task)
        due = []
        for number, body in enumerate(bodies, 1):
            if consumption.take(body):
                due.append(number)
                await consumption.acknowledge(asyncio.sleep(0))
        assert consumption.is_complete
        return due

    return asyncio.run(run())


def test_subscribers_acknowledge_at_every_256th_message_and_where_a_part_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    maker = Maker(64)
    bodies = [maker.batch(1) for _ in range(700)]
    assert consumed(bodies, options(100, 600)) == [100, 100 + ACKNOWLEDGE_EVERY, 100 + 2 * ACKNOWLEDGE_EVERY, 700]
    warm, result = capsys.readouterr().out.splitlines()
    assert warm == '{"warm": true}'
    assert '"messages": 700, "lost": 0, "duplicated": 0, "out_of_order": 0, "corrupt": 0' in result


def test_subscribers_go_on_while_a_few_acknowledgements_are_on_their_way(capsys: pytest.CaptureFixture[str]) -> None:
    """They are answered in whatever order. The result is told when all are."""
    maker = Maker(64)
    flying = FLYING_MAX + 1

    async def run() -> None:
        consumption = Consumption("any", options(0, ACKNOWLEDGE_EVERY * (flying + 1)))
        answers: list[asyncio.Future[None]] = []

        async def fill() -> asyncio.Task[None]:
            while not consumption.take(maker.batch(1)):
                pass
            answers.append(asyncio.get_running_loop().create_future())
            task = asyncio.create_task(consumption.acknowledge(answers[-1]))
            await asyncio.sleep(0)
            return task

        for _ in range(FLYING_MAX):
            assert (await fill()).done()
        waiting = await fill()
        answers[1].set_result(None)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        answers[0].set_result(None)
        await asyncio.wait_for(waiting, 5)
        last = await fill()
        for answer in reversed(answers[2:]):
            assert not consumption.is_complete
            answer.set_result(None)
        await asyncio.wait_for(last, 5)
        assert consumption.is_complete

    asyncio.run(run())
    assert f'"messages": {ACKNOWLEDGE_EVERY * (flying + 1)}, "lost": 0' in capsys.readouterr().out


def test_a_message_that_comes_twice_instead_of_another_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    maker = Maker(64)
    bodies = [maker.batch(1) for _ in range(10)]
    consumed([*bodies[:8], bodies[7], bodies[9]], options(0, 10))
    assert '"messages": 9, "lost": 1, "duplicated": 1' in capsys.readouterr().out
