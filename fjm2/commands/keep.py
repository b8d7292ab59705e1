"""`fjm2 keep`: runs a keeper, and looks at keepers and their stores."""

import asyncio
import gc
import json
import os
import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import click

from fjm2.bus.config import DEFAULT_GROUP, DEFAULT_PORT
from fjm2.cell.outgoing import State
from fjm2.keeper.running_keeper import running_keeper
from fjm2.keeper.store_directory import OpenStore, config_of, open_store, wait_for_store
from fjm2.store.config import StoreConfig

from .support.bus_link import say
from .support.bus_options import BusUri
from .support.common import run
from .support.keeping import DEFAULT_STORE_BYTES, Size, store_errors
from .support.lazy_group import LazyCommands

_ID_DIGITS = re.compile("(?:[0-9a-f]{2}){4,16}")
_YOUNG_MAX: Final = 20_000
"""Objects that may be new before the garbage collector looks at them: some megabytes."""
_SUBCOMMANDS = ("status", "check", "export", "adopt", "bench")
_ALIKE = 0.7
"""Likeness from which on a word is taken for a typo, as difflib measures it."""


class KeepGroup(click.Group):
    """A command that is a group, too, if its first word names one of its commands."""

    allow_extra_args = False
    allow_interspersed_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.args = args
            return args
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        if not ctx.args:
            return click.Command.invoke(self, ctx)
        name, *rest = ctx.args
        # Its name has both words, as the directory is no part of it.
        with self.commands[name].make_context(f"{ctx.info_name} {name}", rest, parent=ctx.parent) as inner:
            return inner.command.invoke(inner)


def _directory(_: click.Context, __: click.Parameter, word: str) -> Path:
    if word in _SUBCOMMANDS:
        raise click.BadParameter(f"{word}: a command has that name; write ./{word} for the directory")
    if os.sep not in word and not os.path.lexists(word):  # a typo of a command would be a new store
        for name in get_close_matches(word, _SUBCOMMANDS, n=1, cutoff=_ALIKE):
            raise click.UsageError(
                f"no directory {word}; did you mean `fjm2 keep {name}`? For a new store of that name: "
                f"fjm2 keep ./{word}"
            )
    return Path(word)


def _keeper_id(_: click.Context, __: click.Parameter, value: str) -> bytes:
    is_id = _ID_DIGITS.fullmatch(value) is not None
    if value and not is_id:
        raise click.BadParameter(f"{value}: expected 8 to 32 hexadecimal digits, as under KEEPER in fjm2 keep status")
    return bytes.fromhex(value)


@click.command(
    cls=KeepGroup,
    invoke_without_command=True,
    subcommand_metavar="",
    commands=LazyCommands({name: f"fjm2.commands.keep_{name}" for name in _SUBCOMMANDS}),
)
@click.argument("directory", type=click.Path(file_okay=False), callback=_directory)
@click.option(
    "--uri",
    type=BusUri(),
    envvar="FJM2_URI",
    show_envvar=True,
    default="fjm2://",
    show_default=f"fjm2://{DEFAULT_GROUP}:{DEFAULT_PORT}",
    help="URI of the bus, as its members use it.",
)
@click.option(
    "--replicas",
    type=click.Choice(("1", "3", "5")),
    default="3",
    show_default=True,
    help="Keepers that a new cell has. All keepers of a bus have to say the same.",
)
@click.option(
    "--store-bytes",
    "store_bytes",
    type=Size(16 << 20),
    default=DEFAULT_STORE_BYTES,
    show_default=True,
    help="Bytes that the store may take on disk.",
)
@click.option(
    "--replaces",
    metavar="KEEPER",
    default="",
    callback=_keeper_id,
    help="Take the place of a lost member, as named by fjm2 keep status, without waiting for a minute of its absence.",
)
@click.option("--stand-by", is_flag=True, help="Wait while another process keeps in DIRECTORY, and go on when it ends.")
@click.option("--json", "as_json", is_flag=True, help="Print each state of the keeper as a JSON object, on one line.")
def keep(
    directory: Path, uri: str, replicas: str, store_bytes: int, replaces: bytes, stand_by: bool, as_json: bool
) -> None:
    """Run a keeper: store what is sent on a bus in DIRECTORY.

    Keepers make durable subscriptions of a bus possible. Those of a bus are a cell: of three, any two go on without the
    third. DIRECTORY is made if it is missing. A directory named like one of the commands, or nearly
    so, is written ./status.

    It runs until Ctrl-C, which waits for the disk. Exit codes: 1 any other failure, 2 a wrong option, 3 another process
    keeps in DIRECTORY, 4 the store is damaged, 5 somebody else owns it or may change it, 6 a newer version wrote it,
    7 the disk is full, 8 the disk failed, 130 Ctrl-C.

    \b
    Example: fjm2 keep /var/lib/fjm2
             fjm2 keep store --replicas 1 --uri "fjm2://?interface=127.0.0.1&ttl=0"
             fjm2 keep /var/lib/fjm2 --replaces 754787e2
             fjm2 keep status
             fjm2 keep check /var/lib/fjm2
    """
    run(_keep(directory, uri, config_of(store_bytes), int(replicas), replaces, stand_by, as_json))


async def _keep(
    directory: Path, uri: str, config: StoreConfig, replicas: int, replaces: bytes, stand_by: bool, as_json: bool
) -> int:
    with store_errors():
        if stand_by:
            store = await wait_for_store(directory, config, on_wait=lambda error: say(f"standing by: {error}"))
        else:
            store = await asyncio.to_thread(open_store, directory, config)
    tell = _teller(store, directory, as_json)
    collect_seldom()
    async with running_keeper(uri, store, members_wanted=replicas, on_state=tell, replaces=replaces) as keeper:
        with store_errors():
            await keeper.failed()
    return 0


def collect_seldom() -> None:
    """Have the garbage collector look at new objects less often, and never at those that are there now. What a keeper
    makes for messages is gone soon, and without its help."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, *gc.get_threshold()[1:])


def _teller(store: OpenStore, directory: Path, as_json: bool) -> Callable[[State, int], None]:
    """Return a function that prints the states of a keeper."""
    keeper_id = store.journal.identity.keeper_id.hex()
    if not as_json:
        say(f"keeper {keeper_id[:8]}, in {directory}")

    def tell(state: State, epoch: int) -> None:
        if as_json:
            line = {"keeper": keeper_id, "state": state.name.lower(), "epoch": epoch, "pid": os.getpid()}
            click.echo(json.dumps(line))
        else:
            say(f"{state.name.lower()}, epoch {epoch}")

    return tell
