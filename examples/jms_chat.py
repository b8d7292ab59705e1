"""A chat room on the bus: everyone sees what the others type, on all networks that gateways connect.

In two terminals, or on hosts of two networks with a gateway each (see docs/gateway.md):

    python examples/jms_chat.py Ann
    python examples/jms_chat.py Bob
"""

import sys

import click

from fjm2.jms import Message, TextMessage, Topic
from fjm2.jms.blocking import ConnectionFactory

URI = "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0"


@click.command()
@click.option("--uri", default=URI, envvar="FJM2_URI", show_default=True, show_envvar=True, help="The bus.")
@click.option("--room", default="lobby", show_default=True, help="Name of the chat room.")
@click.argument("name")
def main(uri: str, room: str, name: str) -> None:
    """Chat as NAME. Ctrl-D ends the program."""
    try:
        chat(ConnectionFactory(uri), Topic(f"chat/{room}"), name)
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


def chat(factory: ConnectionFactory, room: Topic, name: str) -> None:
    # Two contexts on one connection: one listens in a thread of its own, the other belongs to this thread.
    with factory.create_context() as speaking, speaking.create_context() as hearing:
        consumer = hearing.create_consumer(room, no_local=True)  # no messages of this connection itself
        consumer.message_listener = show
        consumer.ready()
        producer = speaking.create_producer().set_property("name", name)
        producer.set_type("came").send(room)
        print("listening; type a line to send it", flush=True)
        for line in sys.stdin:
            producer.set_type("said").send(room, line.rstrip("\n"))
        producer.set_type("left").send(room)


def show(message: Message) -> None:
    name = message.get_string_property("name")
    if isinstance(message, TextMessage):
        print(f"{name}: {message.text}", flush=True)
    else:
        print(f"* {name} {'is here' if message.type == 'came' else 'has left'}", flush=True)


if __name__ == "__main__":
    main()
