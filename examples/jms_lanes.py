"""Priority lanes: an urgent message overtakes the bulk messages that wait for a slow link.

python examples/jms_lanes.py --listen
python examples/jms_lanes.py
"""

import click

import fjm2
from fjm2.jms import ConnectionFactory, DeliveryMode, Topic

URI = "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0"
TOPIC, URGENT, BULK, EACH = Topic("telemetry"), 9, 0, 1000


@click.command()
@click.option("--uri", default=URI, envvar="FJM2_URI", show_default=True, show_envvar=True, help="The bus.")
@click.option("--listen", "is_listening", is_flag=True, help="Receive, and report how many messages an alarm overtook.")
@click.option("--messages", default=4000, show_default=True, type=click.IntRange(min=EACH), help="Bulk, 1 KB each.")
@click.option("--rate", default="20mbit", show_default=True, help="Rate of the slow link.")
def main(uri: str, is_listening: bool, messages: int, rate: str) -> None:
    """Send bulk messages, and an urgent message after each thousand of them."""
    factory = ConnectionFactory(uri, rate=rate)
    try:
        fjm2.run(listen(factory) if is_listening else send(factory, messages))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def send(factory: ConnectionFactory, messages: int) -> None:
    async with factory.create_context() as context:
        producers = [context.create_producer().set_priority(each) for each in (BULK, URGENT)]
        bulk, urgent = (each.set_delivery_mode(DeliveryMode.NON_PERSISTENT) for each in producers)  # wait for nobody
        for number in range(1, messages + 1):
            await bulk.send(TOPIC, bytes(1000))  # returns at once: the message waits in its lane
            if number % EACH == 0:
                await urgent.set_property("sent", number).send(TOPIC, f"alarm {number // EACH}")
        await bulk.set_delivery_mode(DeliveryMode.PERSISTENT).set_type("end").send(TOPIC)
        print(f"{messages} messages handed over, with {messages // EACH} alarms between them", flush=True)


async def listen(factory: ConnectionFactory) -> None:
    received = 0
    async with factory.create_context() as context:
        consumer = context.create_consumer(TOPIC)
        await consumer.ready()
        print("listening", flush=True)
        async for message in consumer:
            if message.type == "end":
                break
            received += message.priority == BULK
            if message.priority == URGENT:
                overtaken = message.get_int_property("sent") - received
                print(f"{message.get_body(str)} overtook {overtaken} messages", flush=True)
    print(f"{received} messages of bulk", flush=True)


if __name__ == "__main__":
    main()
