"""Temperatures of many rooms, each on a topic of its own, and watchers that subscribe to patterns of topics.

python examples/jms_patterns.py "sensors/*/temperature"
python examples/jms_patterns.py --measure 10
"""

import random

import click

import fjm2
from fjm2.jms import ConnectionFactory, Message, Topic, TopicPattern

URI = "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0"
ROOMS = ("kitchen", "cellar", "attic")


@click.command()
@click.option("--uri", default=URI, envvar="FJM2_URI", show_default=True, show_envvar=True, help="The bus.")
@click.option("--measure", type=click.IntRange(min=1), help="Measure this many times in each room instead.")
@click.option("--count", type=click.IntRange(min=1), help="End after this many messages.  [default: at Ctrl-C]")
@click.argument("pattern", default="sensors/>")
def main(uri: str, measure: int | None, count: int | None, pattern: str) -> None:
    """Print what the sensors measure that match PATTERN."""
    factory = ConnectionFactory(uri)
    try:
        fjm2.run(watch(factory, TopicPattern(pattern), count) if measure is None else send(factory, measure))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def watch(factory: ConnectionFactory, pattern: TopicPattern, count: int | None) -> None:
    async with factory.create_context() as context:
        consumer = context.create_consumer(pattern)
        await consumer.ready()
        print("listening", flush=True)
        async for message in consumer:
            print(line_of(message), flush=True)
            count = count and count - 1
            if count == 0:
                break


def line_of(message: Message) -> str:
    topic = message.destination  # the topic that the message was sent to, not the pattern
    return f"{topic.name if topic else '?'}: {message.get_body(str)}"


async def send(factory: ConnectionFactory, times: int) -> None:
    async with factory.create_context() as context:
        for _ in range(times):
            for room in ROOMS:
                await context.send(Topic(f"sensors/{room}/temperature"), f"{random.uniform(5, 25):.1f}")
                await context.send(Topic(f"sensors/{room}/humidity"), f"{random.uniform(40, 70):.0f}")
    print(f"{times * len(ROOMS) * 2} messages sent")


if __name__ == "__main__":
    main()
