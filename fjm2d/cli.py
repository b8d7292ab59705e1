"""The `fjm2d` command."""

import asyncio
import contextlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from fjm2 import __version__

from . import config as configuration
from . import logs
from .config import ENVIRONMENT_PREFIX, FILE_VARIABLE
from .errors import ConfigurationErrors, GatewayError, KeyFileError
from .keys import KeyPair
from .reading import show

CONFIGURATION_WRONG: Final = 2
"""Exit code: the settings or the key make no sense. 1 is any other failure."""
DEFAULT_FILE: Final = Path("/etc/fjm2/fjm2d.toml")
_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_STATUS_TIMEOUT_S: Final = 5.0

_config_option = click.option(
    "--config",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar=FILE_VARIABLE,
    help=f"TOML file with the settings.  [default: {DEFAULT_FILE} if there is one; env: {FILE_VARIABLE}]",
)


@click.group(context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="fjm2d")
def main() -> None:
    """The gateway of an FJM2 network: joins the multicast groups of LANs over the Internet, encrypted.

    \b
    Example: fjm2d keygen /etc/fjm2/fjm2d.key      # once; prints the public key, for the other gateways
             fjm2d check                      # whether the settings make sense
             fjm2d run                        # until Ctrl-C or SIGTERM; SIGHUP reads the settings again
             fjm2d status                     # how it is

    Exit codes: 0 fine, 1 failed, 2 the settings or the key are wrong.
    """


def _settings_told() -> str:
    lines = [
        "\b",
        "Settings of the file, with what they take. Those of tables can be given in the environment, too, as",
        f"{ENVIRONMENT_PREFIX}NAME or {ENVIRONMENT_PREFIX}TABLE_NAME; {ENVIRONMENT_PREFIX}GROUPS is a list of groups.",
    ]
    for key, told, allowed in configuration.settings():
        lines += [f"  {key}: {told}", f"      {allowed}"]
    return "\n".join(lines)


@main.command(epilog=_settings_told())
@_config_option
def run(path: Path | None) -> None:
    """Run the gateway.

    \b
    Example: fjm2d run
             fjm2d run --config site.toml
             FJM2D_LAN_INTERFACE=eth1 FJM2D_WAN_RATE=50mbit fjm2d run --config site.toml
    """
    from .running import Service  # with its libraries it takes a while that the other commands need not wait for

    path = _found(path)
    with _told():
        config = configuration.load(path, os.environ)
        keys = KeyPair.load(config.key_file)
        logs.set_up(config.log)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(Service(path, config, keys).run())


@main.command()
@_config_option
def check(path: Path | None) -> None:
    """Say whether the settings and the key make sense, and what they amount to.

    \b
    Example: fjm2d check --config site.toml && systemctl reload fjm2d
    """
    path = _found(path)
    with _told():
        config = configuration.load(path, os.environ)
        keys = KeyPair.load(config.key_file)
        own = [peer.name for peer in config.peers if peer.public_key == keys.public]
        if own:
            raise GatewayError(f"{path}: peer {own[0] or keys.public.text} has this gateway's own public key")
    click.echo(f"The settings{f' in {path}' if path else ''} are fine.")
    click.echo(f"gateway  {config.shown_name}, id {keys.public.id_text}, public key {keys.public.text}")
    click.echo(f"listens  UDP {', '.join(map(show, config.wan.listen))}")
    click.echo(f"carries  {', '.join(f'{show(group.address)} ({group.carry})' for group in config.groups)}")
    click.echo(f"peers    {len(config.peers)} named, {config.admin.url or 'no node list'}")


@main.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def keygen(file: Path) -> None:
    """Make a key pair. The private key goes into FILE, which only its owner may read; the public one is printed.

    \b
    Example: fjm2d keygen /etc/fjm2/fjm2d.key
    """
    with _told():
        keys = KeyPair.generate()
        keys.save(file)
    click.echo(keys.public.text)
    click.echo(f"id {keys.public.id_text}, fingerprint {keys.public.fingerprint}", err=True)
    click.echo(f"The private key is in {file}. Give the line above to the other gateways.", err=True)


@main.command()
@_config_option
@click.option("--json", "as_json", is_flag=True, help="All there is, as JSON.")
def status(path: Path | None, as_json: bool) -> None:
    """Ask the gateway that runs here how it is.

    \b
    Example: fjm2d status
             fjm2d status --json | jq .peers
    """
    with _told():
        config = configuration.load(_found(path), os.environ)
        if config.status.listen is None:
            raise GatewayError("status.listen is empty: the gateway tells nothing")
        found = _ask(f"http://{show(config.status.listen)}/status")
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _show_status(found)
    sys.exit(1 if found["faults"] else 0)


def _ask(url: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_STATUS_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise GatewayError(f"no gateway answers at {url}: {reason}") from None


def _show_status(status: dict[str, Any]) -> None:
    role = "forwards" if status["is_forwarder"] else "stands by"
    mates = f", with {', '.join(status['mates'])} on the same LAN" if status["mates"] else ""
    click.echo(f"{status['name']} ({status['id']}) has been up for {status['uptime_s']:.0f} s and {role}{mates}.")
    for fault in status["faults"]:
        click.echo(f"fault: {fault}")
    admin = status["admin"]
    if admin is not None:
        state = "answers" if admin["is_reached"] else f"is away ({admin['problem'] or 'not asked yet'})"
        click.echo(f"The node list {state}; version {admin['list_version']}.")
    click.echo(
        f"\n{'PEER':20} {'STATE':10} {'ADDRESS':24} {'RTT':>8} {'LOSS':>6} {'SENT':>9} {'RECEIVED':>9} {'DROPS':>7}"
    )
    for peer in status["peers"]:
        rtt = "-" if peer["rtt_ms"] is None else f"{peer['rtt_ms']:.1f} ms"
        click.echo(
            f"{peer['name'][:20]:20} {peer['state']:10} {peer['address'] or '-':24} {rtt:>8} {peer['loss_sent']:6.1%} "
            f"{_bytes(peer['bytes_sent']):>9} {_bytes(peer['bytes_received']):>9} {sum(peer['drops'].values()):7}"
        )
    click.echo(f"\n{'GROUP':24} {'WANTED HERE':12} {'NODES HERE':>10} {'BEYOND':>7}  WANTED BY")
    for group in status["groups"]:
        wanted = "yes" if group["is_wanted_here"] else "no"
        beyond = ", ".join(group["wanted_by"]) or "-"
        click.echo(
            f"{group['group']:24} {wanted:12} {group['nodes_on_lan']:10} {group['nodes_behind_peers']:7}  {beyond}"
        )


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _found(path: Path | None) -> Path | None:
    return path or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Mistakes are told one a line."""
    try:
        yield
    except ConfigurationErrors as error:
        for one in error.errors:
            click.echo(f"Error: {one}", err=True)
        sys.exit(CONFIGURATION_WRONG)
    except GatewayError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(CONFIGURATION_WRONG if isinstance(error, KeyFileError) else 1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
