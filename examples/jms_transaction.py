"""Move orders from one topic to two others in transactions, so that a failed order leaves no trace. Blocking API.

python examples/jms_transaction.py
"""

import click

from fjm2.jms import SessionMode, TextMessage, Topic
from fjm2.jms.blocking import Connection, ConnectionFactory, Session

URI = "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0"
ORDERS, BILLS, PARCELS = Topic("orders"), Topic("bills"), Topic("parcels")


@click.command()
@click.option("--uri", default=URI, envvar="FJM2_URI", show_default=True, show_envvar=True, help="The bus.")
@click.option("--order", "orders", multiple=True, default=("tea", "bad coffee", "cake"), help="May be repeated.")
def main(uri: str, orders: tuple[str, ...]) -> None:
    """Process some orders."""
    with ConnectionFactory(uri).create_connection() as connection:
        connection.start()
        handle(connection, orders)


def handle(connection: Connection, orders: tuple[str, ...]) -> None:
    with connection.create_session(SessionMode.SESSION_TRANSACTED) as session, connection.create_session() as plain:
        incoming = session.create_consumer(ORDERS)
        outcome = {topic: plain.create_consumer(topic) for topic in (BILLS, PARCELS)}
        for order in orders:
            plain.create_producer(ORDERS).send(TextMessage(order))
        for _ in orders:
            message = incoming.receive(5)
            while isinstance(message, TextMessage) and not move(session, message):
                message = incoming.receive(5)
                if message is not None and message.redelivered:
                    print(f"here again, delivery {message.delivery_count}: {message.get_body(str)}")
        for topic, consumer in outcome.items():
            while (message := consumer.receive(0.2)) is not None:
                print(f"{topic}: {message.get_body(str)}")


def move(session: Session, order: TextMessage) -> bool:
    """Send the bill, then the parcel. Return True if the transaction was committed."""
    try:
        with session.transaction():
            session.create_producer(BILLS).send(TextMessage(f"bill for {order.text}"))
            if str(order.text).startswith("bad") and not order.redelivered:
                raise ValueError(order.text)
            session.create_producer(PARCELS).send(TextMessage(f"parcel with {order.text}"))
    except ValueError as error:
        print(f"rolled back: {error}")
        return False
    return True


if __name__ == "__main__":
    main()
