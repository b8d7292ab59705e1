"""A worker with a pool of threads: it does jobs and sends the results back. Blocking API.

python examples/jms_worker.py --threads 4
python examples/jms_worker.py --submit 8
"""

import contextlib
import time
from functools import partial

import click

from fjm2.jms import InvalidDestinationError, Message, Topic
from fjm2.jms.blocking import ConnectionFactory, JMSContext

URI, JOBS = "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0", Topic("jobs")


@click.command()
@click.option("--uri", default=URI, envvar="FJM2_URI", show_default=True, show_envvar=True, help="The bus.")
@click.option("--threads", default=4, show_default=True, type=click.IntRange(min=1), help="Jobs done at a time.")
@click.option("--submit", type=click.IntRange(min=1), help="Submit this many jobs instead, and wait for the results.")
def main(uri: str, threads: int, submit: int | None) -> None:
    """Do jobs until Ctrl-C, or submit jobs."""
    try:
        with ConnectionFactory(uri).create_context() as context:
            serve(context, threads) if submit is None else ask(context, submit)
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


def serve(context: JMSContext, threads: int) -> None:
    queue, arriving = context.create_temporary_queue(), context.create_consumer(JOBS)
    with contextlib.ExitStack() as pool:
        for number in range(1, threads + 1):  # each context has a thread; a queue's message goes to one of them
            own = pool.enter_context(context.create_context())
            own.create_consumer(queue).message_listener = partial(work, own, number)
        arriving.ready()
        print("listening", flush=True)
        for job in arriving:
            context.send(queue, job, correlation_id=job.message_id)


def work(context: JMSContext, number: int, job: Message) -> None:
    time.sleep(0.2)  # stands for a database, a file, a computation
    with contextlib.suppress(InvalidDestinationError):  # who asked is gone
        context.reply(job, f"{job.get_body(str)}: done by thread {number}", correlation_id=job.correlation_id)


def ask(context: JMSContext, count: int) -> None:
    consumer = context.create_consumer(results := context.create_temporary_topic())
    for number in range(count):
        context.send(JOBS, f"job {number}", reply_to=results)
    for _ in range(count):
        print(consumer.receive_body(str, 10) or "no result in 10 seconds: is a worker running?", flush=True)


if __name__ == "__main__":
    main()
