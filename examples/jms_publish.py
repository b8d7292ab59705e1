"""Publishes prices on a topic, with properties to select by.

Start `jms_subscribe.py` first, in another terminal:

    python examples/jms_publish.py --messages 20
"""

import asyncio
import random

import click

from fjm2.jms import ConnectionFactory, DeliveryMode, Topic

URI = "fjm2://239.192.57.40:5743?interface=127.0.0.1&ttl=0"


@click.command()
@click.option("--uri", default=URI, show_default=True, help="The bus.")
@click.option("--topic", default="prices", show_default=True, help="Where to.")
@click.option("--messages", default=20, show_default=True, type=click.IntRange(min=1), help="How many.")
def main(uri: str, topic: str, messages: int) -> None:
    """Publish some prices."""
    asyncio.run(publish(ConnectionFactory(uri), Topic(topic), messages))


async def publish(factory: ConnectionFactory, topic: Topic, messages: int) -> None:
    async with factory.create_context() as context:
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        for number in range(messages):
            producer.set_property("symbol", ("ABC", "XYZ")[number % 2]).set_property("number", number)
            await producer.send(topic, {"price": round(random.uniform(90, 110), 2)})
            await asyncio.sleep(0.01)
        # The last message says that there are no more. It is persistent: closing waits until subscribers confirm it.
        await producer.set_delivery_mode(DeliveryMode.PERSISTENT).set_type("end").send(topic)
    print(f"{messages} messages sent")


if __name__ == "__main__":
    main()
