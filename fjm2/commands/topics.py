"""`fjm2 topics`: shows who publishes and subscribes to each topic."""

import json
import sys

import click
from rich.console import Console

from fjm2.base.quantities import counted
from fjm2.jms import Topic

from .support.bus_link import say
from .support.common import run
from .support.live_view import duration_option, has_members, open_onlooker, topic_option, uri_option
from .support.screen import draw_topics

_COLUMNS = 160  # width of output to a file or a pipe, which have no width of their own


@click.command()
@uri_option
@topic_option
@duration_option("Time to listen. Rates refer to it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def topics(uri: str, known: tuple[Topic, ...], duration_s: float, as_json: bool) -> None:
    """Show the topics of a bus, with their publishers and subscribers.

    It listens for a while and sends nothing. Publishers are connections that published in this time. A topic with
    subscribers only is shown by its hash, unless --topic gives its name.

    The exit code is 1 if no member was heard.

    \b
    Example: fjm2 topics
             fjm2 topics --topic prices.eu --duration 30
             fjm2 topics --json | jq -r '.topics[].name'
    """
    run(_topics(uri, known, duration_s, as_json))


async def _topics(uri: str, known: tuple[Topic, ...], duration_s: float, as_json: bool) -> int:
    async with open_onlooker(uri, known) as onlooker:
        report = await onlooker.listen(duration_s, as_json)
    if as_json:
        told = report.as_dict()
        click.echo(json.dumps({name: told[name] for name in ("seconds", "topics", "overruns")}))
    elif report.topics:
        console = Console(width=None if sys.stdout.isatty() else _COLUMNS, highlight=False)
        console.print(draw_topics(report, console.width))
    if not has_members(report):
        say(f"no member was heard within {duration_s:g} s: run fjm2 doctor to find out why")
    elif not report.topics and not as_json:
        say(f"{counted(len(report.connections), 'connection')}, no topics")
    return 0 if has_members(report) else 1
