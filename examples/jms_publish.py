"""Publish quotes on a topic, with properties that subscribers can select by.

Start `jms_subscribe.py` first, in another terminal:

    python examples/jms_publish.py --messages 20
"""

import asyncio
import random

import click

import fjm2
from fjm2.jms import ConnectionFactory, DeliveryMode, Topic

URI = "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0"


@click.command()
@click.option("--uri", default=URI, envvar="FJM2_URI", show_default=True, show_envvar=True, help="The bus.")
@click.option("--topic", default="quotes", show_default=True, help="Topic to publish on.")
@click.option("--messages", default=20, show_default=True, type=click.IntRange(min=1), help="Number of messages.")
@click.option("--interval", default=0.1, show_default=True, help="Seconds between messages.")
def main(uri: str, topic: str, messages: int, interval: float) -> None:
    """Publish some quotes."""
    try:
        fjm2.run(publish(ConnectionFactory(uri), Topic(topic), messages, interval))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def publish(factory: ConnectionFactory, topic: Topic, messages: int, interval: float) -> None:
    async with factory.create_context() as context:
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        for number in range(messages):
            producer.set_property("symbol", ("ABC", "XYZ")[number % 2]).set_property("number", number)
            await producer.send(topic, {"price": round(random.uniform(90, 110), 2)})
            await asyncio.sleep(interval)
        # The last message marks the end. It is persistent, so that closing waits until the subscribers have confirmed
        # it.
        await producer.set_delivery_mode(DeliveryMode.PERSISTENT).set_type("end").send(topic)
    print(f"{messages} messages sent")


if __name__ == "__main__":
    main()
