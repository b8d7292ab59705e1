"""Subscribe to quotes with a selector, and print them until the publisher ends.

python examples/jms_subscribe.py --selector "symbol = 'ABC'"
"""

import click

import fjm2
from fjm2.jms import ConnectionFactory, MapMessage, Topic

URI = "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0"


@click.command()
@click.option("--uri", default=URI, envvar="FJM2_URI", show_default=True, show_envvar=True, help="The bus.")
@click.option("--topic", default="quotes", show_default=True, help="Topic to subscribe to.")
@click.option("--selector", default="symbol = 'ABC'", show_default=True, help="Selector of the messages to receive.")
def main(uri: str, topic: str, selector: str) -> None:
    """Print quotes."""
    try:
        fjm2.run(subscribe(ConnectionFactory(uri), Topic(topic), selector))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def subscribe(factory: ConnectionFactory, topic: Topic, selector: str) -> None:
    count = 0
    async with factory.create_context() as context:
        context.exception_listener = lambda error: print(f"error: {error}", flush=True)
        consumer = context.create_consumer(topic, f"({selector}) OR JMSType = 'end'")
        await consumer.ready()
        print("listening", flush=True)
        async for message in consumer:
            if message.type == "end":
                break
            if isinstance(message, MapMessage):
                count += 1
                number, symbol = message.get_int_property("number"), message.get_string_property("symbol")
                print(f"{number}: {symbol} costs {message.get_double('price')}", flush=True)
    print(f"{count} messages", flush=True)


if __name__ == "__main__":
    main()
