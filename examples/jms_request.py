"""Ask a question on a topic and print the replies; with --serve, reply to questions.

python examples/jms_request.py --serve 1
python examples/jms_request.py "how are you?"
"""

import contextlib

import click

import fjm2
from fjm2.jms import ConnectionFactory, InvalidDestinationError, JMSContext, TextMessage, Topic

URI = "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0"
TOPIC = Topic("questions")


@click.command()
@click.option("--uri", default=URI, envvar="FJM2_URI", show_default=True, show_envvar=True, help="The bus.")
@click.option("--serve", type=click.IntRange(min=1), help="Reply to this many questions, then exit.")
@click.option("--replies", default=1, show_default=True, type=click.IntRange(min=1), help="Replies to wait for.")
@click.option("--timeout", default=5.0, show_default=True, help="Seconds to wait for replies.")
@click.argument("question", default="is anybody there?")
def main(uri: str, serve: int | None, replies: int, timeout: float, question: str) -> None:
    """Ask QUESTION, or reply to questions."""
    try:
        fjm2.run(run(ConnectionFactory(uri), serve, replies, timeout, question))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def run(factory: ConnectionFactory, serve: int | None, replies: int, timeout: float, question: str) -> None:  # noqa: ASYNC109
    async with factory.create_context() as context:
        if serve is not None:
            await reply(context, serve)
            return
        for message in await context.request_many(TOPIC, question, timeout, replies):
            print(message.get_body(str))


async def reply(context: JMSContext, count: int) -> None:
    consumer = context.create_consumer(TOPIC)
    await consumer.ready()
    print("listening", flush=True)
    for _ in range(count):
        request = await consumer.receive(TextMessage)
        if request is not None:
            with contextlib.suppress(InvalidDestinationError):  # who asked has enough replies, and is gone
                await context.reply(request, f"you asked: {request.text}")


if __name__ == "__main__":
    main()
