"""The `fjm2admin` command."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from time import time

import click
from click.core import ParameterSource

from fjm2 import __version__
from fjm2.base import logs
from fjm2.base.missing_extras import lack_of

from . import config as configuration
from .config import AdminConfig, Viewers
from .errors import AdminError, ConfigurationError
from .registry import tokens
from .registry.nodes import NAME_MAX, Silences, State, in_one_form
from .registry.store import Store, StoredNode
from .registry.tokens import Scope, Token

SETTINGS_WRONG = 2
"""Exit code for wrong settings, where trying again does not help. Any other failure is 1."""
_SERVICE_WRITES_S = 90.0
"""Longest time between two writes of a running service to its file."""
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="FJM2ADMIN_CONFIG",
    help="TOML file with settings.  [default: none; env: FJM2ADMIN_CONFIG]",
)
_data_option = click.option(
    "--data", help="SQLite file.  [default: the packaged service's, else ./fjm2admin.sqlite; env: FJM2ADMIN_DATA]"
)
_json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


@click.group(context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="fjm2admin")
def main() -> None:
    """The node list of an FJM2 network: gateways register here and learn of each other.

    \b
    Example: fjm2admin token create --name paris --node paris    # make a token for one gateway; it is shown once
             fjm2admin run                                       # serve the list, and a page at the URL it prints
             fjm2admin nodes                                     # list the nodes

    Exit codes: 0 success, 1 failure, 2 wrong settings.
    """


def _settings_help() -> str:
    lines = ["\b", "Settings, in the file by these names, in the environment as FJM2ADMIN_NAME:"]
    for name, text, allowed, default in configuration.settings():
        lines.append(f"  {name:16} {text}  [{default}{f'; {allowed}' if allowed else ''}]")
    return "\n".join(lines)


@main.command(epilog=_settings_help())
@_config_option
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1; env: FJM2ADMIN_HOST]")
@click.option("--port", type=click.IntRange(0, 65_535), help="TCP port.  [default: 8750; env: FJM2ADMIN_PORT]")
@_data_option
@click.option("--check", is_flag=True, help="Check the settings and exit.")
def run(config_path: Path | None, host: str | None, port: int | None, data: str | None, check: bool) -> None:
    """Serve the list and the page, until Ctrl-C or SIGTERM.

    \b
    Example: fjm2admin run
             fjm2admin run --config /etc/fjm2/fjm2admin.toml
             FJM2ADMIN_HOST=0.0.0.0 FJM2ADMIN_CERTIFICATE=chain.pem FJM2ADMIN_CERTIFICATE_KEY=key.pem fjm2admin run
    """
    try:
        # Loading the server takes half a second, and the other commands do not need it.
        from .web import server
    except ImportError as error:
        raise click.ClickException(lack_of(error, "fjm2admin", "admin")) from error
    with _reported_errors():
        config = configuration.load(config_path, os.environ, host=host, port=port, data=data)
        server.check(config)
        if check:
            click.echo("The settings are valid.")
            return
        logs.set_up("fjm2admin", config.log_level, config.log_format)
        server.run(config, lambda url: _print_start(config, url))
        click.echo("Stopped.", err=True)


def _print_start(config: AdminConfig, url: str) -> None:
    click.echo(f"Node list and page at {url}", err=True)
    click.echo(f"Nodes and tokens are kept in {config.data_path.resolve()}", err=True)
    if config.viewers is Viewers.TOKENS:
        click.echo("The page asks for a token: fjm2admin token create --scope view --name NAME", err=True)
    else:
        viewers = "Everyone who can reach it" if config.viewers is Viewers.EVERYONE else "Everyone on this host"
        click.echo(f"{viewers} may see the page; gateways need a token.", err=True)
    if not config.certificate and not config.is_loopback and not config.trusted_proxies:
        click.echo("Warning: without a certificate, tokens cross the network unencrypted.", err=True)
    if config.data_path.stat().st_mode & 0o077:
        click.echo(
            f"Warning: other users can read that file and its hashes of tokens: chmod 600 {config.data_path}", err=True
        )
    click.echo("Ctrl-C stops it.", err=True)


class _SettingsWrongError(click.ClickException):
    exit_code = SETTINGS_WRONG


@contextlib.contextmanager
def _reported_errors() -> Iterator[None]:
    """End the command with a message for expected errors."""
    try:
        yield
    except ConfigurationError as error:
        raise _SettingsWrongError(str(error)) from error
    except AdminError as error:
        raise click.ClickException(str(error)) from error
    except sqlite3.Error as error:
        raise click.ClickException(f"the file cannot be used: {error}") from error


@contextlib.contextmanager
def _open(config_path: Path | None, data: str | None, must_exist: bool) -> Iterator[Store]:
    with _reported_errors():
        config = configuration.load(config_path, os.environ, data=data)
        with contextlib.closing(Store(config.data_path, must_exist)) as store:
            yield store


@main.group()
def token() -> None:
    """Make, list and revoke tokens. A running service accepts a new token at once, refuses a revoked one within 2 s.

    \b
    Example: fjm2admin token create --name paris --node paris
             fjm2admin token create --name wall-screen --scope view
             fjm2admin token list
             fjm2admin token revoke paris
    """


class _PrintableName(click.ParamType[str]):
    """Name of a node or token."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            name = in_one_form(value)
        except ValueError:
            name = ""
        if not name or len(value) > NAME_MAX:
            self.fail(
                f"{value!r}: expected 1 to {NAME_MAX} printable characters, without blanks at either end", param, ctx
            )
        return name


@token.command()
@click.option("--name", required=True, type=_PrintableName(), help="Name of the token in lists.")
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in Scope]),
    default=Scope.GATEWAY.value,
    show_default=True,
    help="gateway: register and update nodes. view: read everything. admin: read everything, and remove nodes.",
)
@click.option(
    "--node",
    type=_PrintableName(),
    help="Make the token valid for the node of this name only.  [default: any free name]",
)
@_config_option
@_data_option
def create(name: str, scope: str, node: str | None, config_path: Path | None, data: str | None) -> None:
    """Make a token, and print it. The file keeps only its hash, so that it cannot be shown again.

    \b
    Example: fjm2admin token create --name paris --node paris
             fjm2admin token create --name wall-screen --scope view > token.txt
    """
    if node is not None and scope != Scope.GATEWAY:
        raise click.UsageError("--node needs a token of scope gateway")
    text, made = tokens.make(name, Scope(scope), node, time())
    with _open(config_path, data, must_exist=False) as store:
        store.add_token(made)
        where = store.path.resolve()
    click.echo(text)
    limit = f", for the node {node!r} only" if node else ""
    click.echo(f"Token {name!r} of scope {scope}{limit}, in {where}. Keep it: it is not shown again.", err=True)


@token.command("list")
@_json_option
@_config_option
@_data_option
def list_tokens(as_json: bool, config_path: Path | None, data: str | None) -> None:
    """List the names and scopes of all tokens, but not the tokens themselves.

    \b
    Example: fjm2admin token list
    """
    with _open(config_path, data, must_exist=True) as store:
        found = store.tokens()
    if as_json:
        click.echo(json.dumps([_token_entry(one) for one in found], indent=2))
        return
    rows = [
        (one.id, one.name, one.scope.value, one.node or "any", _when(one.created_at), _when(one.used_at), _fate(one))
        for one in found
    ]
    _table(("ID", "NAME", "SCOPE", "NODE", "CREATED", "LAST USED", "STATE"), rows, "There are no tokens.")


def _token_entry(one: Token) -> dict[str, object]:
    return {
        "id": one.id,
        "name": one.name,
        "scope": one.scope.value,
        "node": one.node,
        "created_at": one.created_at,
        "used_at": one.used_at,
        "revoked_at": one.revoked_at,
    }


def _fate(one: Token) -> str:
    return "good" if one.is_live else "revoked"


@token.command()
@click.argument("name")
@_config_option
@_data_option
def revoke(name: str, config_path: Path | None, data: str | None) -> None:
    """Revoke the token of this NAME or id. Its nodes become stale; a new token made with --node brings one back.

    \b
    Example: fjm2admin token revoke paris
    """
    with _open(config_path, data, must_exist=True) as store:
        if not store.revoke_token(name, time()):
            raise click.ClickException(f"no live token has the name or id {name!r}; see fjm2admin token list")
    click.echo(f"Token {name!r} is revoked.", err=True)


@main.group(invoke_without_command=True)
@_json_option
@_config_option
@_data_option
@click.pass_context
def nodes(ctx: click.Context, as_json: bool, config_path: Path | None, data: str | None) -> None:
    """List the nodes in the file, or remove some.

    \b
    Example: fjm2admin nodes
             fjm2admin nodes --json
             fjm2admin nodes remove paris
    """
    if ctx.invoked_subcommand is not None:
        is_config_given = ctx.get_parameter_source("config_path") is ParameterSource.COMMANDLINE
        if data is not None or as_json or is_config_given:
            raise click.UsageError(f"options go after the command: fjm2admin nodes {ctx.invoked_subcommand} ...")
        return
    with _reported_errors():
        config = configuration.load(config_path, os.environ, data=data)
    with _open(config_path, data, must_exist=True) as store:
        found, saved_at = store.nodes(), store.saved_at()
    silences = Silences(config.stale_s, config.gone_s, config.forget_s)
    # While no service writes to the file, nodes do not become more silent.
    now = time() if time() < saved_at + _SERVICE_WRITES_S else saved_at
    entries = [_node_entry(one, silences.state_after(now - one.last_seen)) for one in found]
    if as_json:
        click.echo(json.dumps(entries, indent=2))
        return
    if found and now == saved_at:
        click.echo(f"No service has written to the file since {_when(saved_at)}: states are as of then.", err=True)
    rows = [
        (
            one.profile.id,
            one.profile.name,
            str(entry["state"]),
            one.profile.lan or "-",
            ", ".join(one.profile.endpoints),
            one.profile.version,
            _ago(one.last_seen),
        )
        for one, entry in zip(found, entries, strict=True)
    ]
    _table(("ID", "NAME", "STATE", "LAN", "ENDPOINTS", "SOFTWARE", "LAST HEARD"), rows, "No node has registered.")


def _node_entry(one: StoredNode, state: State) -> dict[str, object]:
    profile = one.profile
    return {
        "id": profile.id,
        "name": profile.name,
        "state": state.value,
        "lan": profile.lan,
        "public_key": profile.public_key,
        "endpoints": profile.endpoints,
        "groups": profile.groups,
        "version": profile.version,
        "address": one.address,
        "registered_at": one.registered_at,
        "last_seen": one.last_seen,
    }


@nodes.command()
@click.argument("names", nargs=-1, required=True)
@_config_option
@_data_option
def remove(names: tuple[str, ...], config_path: Path | None, data: str | None) -> None:
    """Remove nodes by NAME or id, with their history. To keep a gateway from registering again, revoke its token first.

    \b
    Example: fjm2admin nodes remove paris
    """
    with _open(config_path, data, must_exist=True) as store:
        profiles = [one.profile for one in store.nodes()]
        # If a name looks like another node's id, the id wins.
        ids = {one.name: one.id for one in profiles} | {one.id: one.id for one in profiles}
        unknown = [name for name in names if name not in ids]
        if unknown:
            raise click.ClickException(f"no node has the name or id {unknown[0]!r}; see fjm2admin nodes")
        count = store.remove_nodes({ids[name] for name in names})
    click.echo(f"Removed {count} node{'s' if count != 1 else ''}.", err=True)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], empty: str) -> None:
    if not rows:
        click.echo(empty, err=True)
        return
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _when(at: float | None) -> str:
    return "never" if at is None else datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def _ago(at: float) -> str:
    seconds = max(0, round(time() - at))
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"
