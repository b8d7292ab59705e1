"""Durable subscriptions of real keepers, as a client sees them that speaks the formats of the wire."""

import asyncio
import json
import signal

import pytest
from keepers import KeeperProcess, Keepers, run_command, start_three, uri_of
from raw_subscribers import RawSubscriber, subscribing

from fjm2.cell.service.reasons import Reason
from fjm2.messages.destination import Topic

pytestmark = pytest.mark.calm

NEWS = Topic("news")
MESSAGES = 10_000


async def publish(subscriber: RawSubscriber, numbers: range, topic: Topic = NEWS) -> int:
    """Publish numbers, and wait until all are stored. Return the sequence of the last one."""
    writer = subscriber.writer
    for at in range(0, len(numbers), 500):
        futures = [writer.send(b"%d" % number, topic) for number in numbers[at : at + 500]]
        await writer.stored(futures[-1])
    return writer.gate.newest(writer.ledger.lane).sequence


def values(found: dict[int, bytes]) -> list[int]:
    return [int(found[sequence]) for sequence in sorted(found)]


def test_a_durable_subscriber_catches_up_page_by_page(cell_of_one: Keepers) -> None:
    async def serve(port: int) -> None:
        async with subscribing(port) as subscriber:
            consumer = await subscriber.subscribe(NEWS)
            last = await publish(subscriber, range(MESSAGES))
            assert values(await subscriber.catch_up(consumer, last)) == list(range(MESSAGES))
            ledger = subscriber.writer.ledger
            assert await subscriber.acknowledge(consumer, ledger, 1, last) is Reason.GRANTED
            page = await subscriber.page(subscriber.nodes[0], consumer, ledger, 1, is_exact=True)
            assert not page.spans
            assert page.acknowledged == last

    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")
    asyncio.run(serve(cell_of_one.port))


def live_bytes(port: int) -> list[int]:
    """Return the bytes of the messages that each keeper keeps."""
    found = run_command("status", "--json", "--duration", "300ms", FJM2_URI=uri_of(port))
    return [each["live_bytes"] for each in json.loads(found.stdout)["keepers"]]


def restart(keepers: Keepers, ended: list[KeeperProcess]) -> None:
    """Kill keepers, start them again, and wait until the cell serves."""
    for each in ended:
        each.end(signal.SIGKILL)
    back = [keepers.start(each.directory.name) for each in ended]
    keepers.until(lambda: keepers.serving and all(each.state in ("serving", "follower") for each in back))


def test_nothing_comes_again_that_was_acknowledged(cell_of_three: Keepers) -> None:
    keepers, port = cell_of_three, cell_of_three.port

    async def serve() -> None:
        async with subscribing(port) as subscriber:
            consumer = await subscriber.subscribe(NEWS)
            ledger = subscriber.writer.ledger
            last = await publish(subscriber, range(MESSAGES))
            found = await subscriber.catch_up(consumer, last, subscriber.nodes[1])
            assert values(found) == list(range(MESSAGES))
            middle = sorted(found)[MESSAGES // 2]
            assert await subscriber.acknowledge(consumer, ledger, 1, middle - 1) is Reason.GRANTED
            follower = next(each for each in keepers.running if each.state == "follower")
            await asyncio.to_thread(restart, keepers, [*keepers.serving, follower])
            await subscriber.until(lambda: len(subscriber.nodes) == 3)
            for node in subscriber.nodes:
                found = await subscriber.catch_up(consumer, last, node)
                assert values(found) == list(range(MESSAGES // 2, MESSAGES))
            three = [each for each in keepers.running if each.popen.poll() is None]
            await asyncio.to_thread(restart, keepers, three)
            last = await publish(subscriber, range(MESSAGES, MESSAGES + 100))
            await subscriber.until(lambda: len(subscriber.nodes) == 3)
            for node in subscriber.nodes:
                found = await subscriber.catch_up(consumer, last, node)
                assert values(found) == list(range(MESSAGES // 2, MESSAGES + 100))
            before = await asyncio.to_thread(live_bytes, port)
            assert min(before) > 50 * MESSAGES // 2
            assert await subscriber.acknowledge(consumer, ledger, 1, last) is Reason.GRANTED
            await asyncio.sleep(0.5)
            after = await asyncio.to_thread(live_bytes, port)
            assert max(after) < min(before) / 5

    start_three(keepers)
    asyncio.run(serve())


def test_all_keepers_keep_what_is_published_while_a_subscription_is_created(cell_of_three: Keepers) -> None:
    async def serve(port: int) -> None:
        async with subscribing(port) as subscriber:
            sent = 0
            is_over = False

            async def publish_on() -> int:
                nonlocal sent
                last = 0
                while not is_over:
                    last = await publish(subscriber, range(sent, sent + 20))
                    sent += 20
                return last

            publishing = asyncio.ensure_future(publish_on())
            await asyncio.sleep(0.3)
            consumer = await subscriber.subscribe(NEWS)
            created = sent
            await asyncio.sleep(0.3)
            is_over = True
            last = await publishing
            for node in subscriber.nodes:
                found = values(await subscriber.catch_up(consumer, last, node))
                assert found[0] <= created + 20
                assert found == list(range(found[0], sent))

    start_three(cell_of_three)
    asyncio.run(serve(cell_of_three.port))
