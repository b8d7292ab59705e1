"""The `fjm2d` command."""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from fjm2 import __version__
from fjm2.base import logs
from fjm2.base.interrupts import end_at_interrupts, importing
from fjm2.base.quantities import counted
from fjm2.base.tables import Column, Row, print_table
from fjm2.errors import ConfigError
from fjm2.norm.net.interfaces import find_interface
from fjm2.norm.net.udp_socket import check_platform

from . import config as configuration
from .config import DEFAULT_FILE, ENVIRONMENT_PREFIX, FILE_VARIABLE, GatewayConfig
from .errors import ConfigurationErrors, GatewayError, KeyFileError
from .keys import KeyPair, readable_by_others
from .loops import loop_factory
from .values import show

CONFIGURATION_WRONG: Final = 2
"""Exit code for wrong settings or a wrong key. Any other failure is 1."""
_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_STATUS_TIMEOUT_S: Final = 5.0
"""Longest wait for an answer of the running gateway, which is on this host."""

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
             fjm2d check                      # check the settings and the key
             fjm2d run                        # until Ctrl-C or SIGTERM; SIGHUP reloads the settings
             fjm2d status                     # show the state of the running gateway

    Exit codes: 0 success, 1 failure, 2 wrong settings or a wrong key.
    """


def _settings_help() -> str:
    lines = [
        "\b",
        "Settings of the file, with allowed values. Those of tables can also be given in the environment, as",
        f"{ENVIRONMENT_PREFIX}NAME or {ENVIRONMENT_PREFIX}TABLE_NAME; {ENVIRONMENT_PREFIX}GROUPS is a list of groups.",
    ]
    for key, meaning, allowed in configuration.settings():
        lines += [f"  {key}: {meaning}", f"      {allowed}"]
    return "\n".join(lines)


@main.command(epilog=_settings_help())
@_config_option
def run(path: Path | None) -> None:
    """Run the gateway.

    \b
    Example: fjm2d run
             fjm2d run --config site.toml
             FJM2D_LAN_INTERFACE=eth1 FJM2D_WAN_RATE=50mbit fjm2d run --config site.toml
    """
    with importing():
        from .service import Service  # slow to import, and the other commands do not need it

    path = _found(path)
    with _errors_shown():
        _check_platform()
        config = configuration.load(path, os.environ)
        keys = KeyPair.load(config.key_file)
        configuration.check_own_key(path, config, keys.public)
        logs.set_up("fjm2d", config.log.level, config.log.format)
        end_at_interrupts()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(Service(path, config, keys).run())
        end_at_interrupts()


@main.command()
@_config_option
@click.option("--json", "as_json", is_flag=True, help="Print the effective settings as JSON.")
def check(path: Path | None, as_json: bool) -> None:
    """Check the settings and the key, and show the most important settings.

    The exit code is 1 if the settings are valid, but not on this host, which lacks the network interface.

    \b
    Example: fjm2d check --config site.toml && systemctl reload fjm2d
             fjm2d check --json | jq -r .public_key
    """
    path = _found(path)
    with _errors_shown():
        config = configuration.load(path, os.environ)
        keys = KeyPair.load(config.key_file)
        configuration.check_own_key(path, config, keys.public)
    warning = readable_by_others(config.admin.token_file) if config.admin.token_file else ""
    if warning:
        click.echo(f"Warning: {warning}", err=True)
    problem = _missing_interface(config)
    if as_json:
        click.echo(json.dumps(_summary(config, keys), indent=2))
    else:
        click.echo(f"The settings{f' in {path}' if path else ''} are valid.")
        click.echo(f"gateway  {config.shown_name}, id {keys.public.id_text}, public key {keys.public.text}")
        click.echo(f"listens  UDP {', '.join(map(show, config.wan.listen))}")
        click.echo(f"carries  {', '.join(f'{show(group.address)} ({group.carry})' for group in config.groups)}")
        click.echo(f"peers    {len(config.peers)} named, {config.admin.url or 'no node list'}")
    if problem:
        raise click.ClickException(f"on this host, the gateway would not start: {problem}")


def _missing_interface(config: GatewayConfig) -> str:
    """Return a text if this host lacks the interface of the LAN. The settings may be for another host."""
    for group in config.groups:
        host = group.address[0]
        try:
            find_interface(config.lan.interface, socket.AF_INET6 if ":" in host else socket.AF_INET, host)
        except ConfigError as error:
            return str(error)
    return ""


def _summary(config: GatewayConfig, keys: KeyPair) -> dict[str, object]:
    return {
        "name": config.shown_name,
        "id": keys.public.id_text,
        "public_key": keys.public.text,
        "listen": [show(one) for one in config.wan.listen],
        "groups": [{"address": show(one.address), "carry": one.carry} for one in config.groups],
        "peers": len(config.peers),
        "admin": config.admin.url or None,
    }


@main.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def keygen(file: Path) -> None:
    """Make a key pair. Write the private key to FILE, which only its owner may read, and print the public key.

    \b
    Example: fjm2d keygen /etc/fjm2/fjm2d.key
    """
    with _errors_shown():
        keys = KeyPair.generate()
        keys.save(file)
    click.echo(keys.public.text)
    click.echo(f"Give the line above to the other gateways. The private key is in {file}.", err=True)
    click.echo(f"id {keys.public.id_text}, fingerprint {keys.public.fingerprint}", err=True)


@main.command()
@_config_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole status as JSON.")
def status(path: Path | None, as_json: bool) -> None:
    """Show the state of the gateway that runs on this host.

    \b
    Example: fjm2d status
             fjm2d status --json | jq .peers
    """
    with _errors_shown():
        config = configuration.load(_found(path), os.environ)
        if config.status.listen is None:
            raise GatewayError(
                "status.listen is empty, so the gateway has no status server; set it, as in 127.0.0.1:5743"
            )
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
            found: Any = json.load(answer)
    except (http.client.HTTPException, ValueError, RecursionError):
        found = None
    except OSError as error:
        raise GatewayError(f"no gateway answers at {url}: {getattr(error, 'reason', error)}") from None
    if not isinstance(found, dict) or "is_forwarder" not in found:
        raise GatewayError(f"what answers at {url} is no gateway: expected the place that status.listen names")
    return found


_GROUP_COLUMNS = (
    Column("GROUP"),
    Column("WANTED HERE"),
    Column("NODES HERE", 1),
    Column("BEYOND", 2),
    Column("WANTED BY", is_text=True),
)
_PEER_COLUMNS = (
    Column("PEER", is_text=True),
    Column("STATE"),
    Column("ROLE", 6),
    Column("ADDRESS", 5),
    Column("RTT"),
    Column("LOSS OUT", 2),
    Column("LOSS IN", 2),
    Column("RATE", 3),
    Column("QUEUE", 4),
    Column("SENDS", 1),
    Column("RECEIVES", 1),
    Column("SENT", 7),
    Column("RECEIVED", 7),
    Column("DROPS"),
)


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
    _show_peers(status["peers"])
    groups = [
        Row(
            (
                group["group"],
                "yes" if group["is_wanted_here"] else "no",
                f"{group['nodes_on_lan']:,}",
                f"{group['nodes_behind_peers']:,}",
                ", ".join(group["wanted_by"]) or "-",
            )
        )
        for group in status["groups"]
    ]
    click.echo()
    print_table(Console(), _GROUP_COLUMNS, groups)
    for group in status["groups"]:
        if any(group["drops"].values()):
            click.echo(f"dropped of {group['group']}: {_reasons(group['drops'])}")
    for side, drops in status["drops"].items():
        if drops:
            click.echo(f"not acted on, {side}: {_reasons(drops)}")


def _show_peers(peers: list[dict[str, Any]]) -> None:
    rows: list[Row] = []
    for peer in peers:
        rtt = "-" if peer["rtt_ms"] is None else f"{peer['rtt_ms']:.1f} ms"
        role = "-" if peer["state"] != "up" else "forwards" if peer["is_forwarder"] else "stands by"
        cells = (
            *(peer["name"], peer["state"], role, peer["address"] or "-", rtt),
            *(f"{peer['loss_sent']:.1%}", f"{peer['loss_received']:.1%}", _rate(peer), _bytes(peer["queue_bytes"])),
            *(_bits(peer["sent_bps"]), _bits(peer["received_bps"])),
            *(_bytes(peer["bytes_sent"]), _bytes(peer["bytes_received"]), f"{sum(peer['drops'].values()):,}"),
        )
        rows.append(Row(cells))
    click.echo()
    print_table(Console(), _PEER_COLUMNS, rows)
    for peer in peers:
        if peer["drops"]:
            click.echo(f"dropped of {peer['name']}: {_reasons(peer['drops'])}")
        if peer["state"] != "up":
            calls, answers = peer["handshakes_sent"], peer["handshakes_answered"]
            told = f"called {counted(calls, 'time')}, its own calls answered {counted(answers, 'time')}"
            click.echo(f"{peer['name']} is not connected: {told}")


def _rate(peer: dict[str, Any]) -> str:
    """Return a link's rate as text, with a ~ if the rate is measured."""
    bps = peer["rate_bps"]
    return "none" if bps is None else f"{'~' if peer['is_rate_measured'] else ''}{_bits(bps)}"


def _bits(bps: float) -> str:
    unit, size = next((unit, size) for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)) if bps >= size or size == 1e3)
    return f"{bps / size:.3g} {unit}bit/s"


def _reasons(drops: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(drops.items(), key=lambda one: -one[1]) if count)


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _check_platform() -> None:
    try:
        check_platform()
    except ConfigError as error:
        raise GatewayError(str(error)) from None


def _found(path: Path | None) -> Path | None:
    # Not Path.exists, which raises if a directory may not be read.
    return path or (DEFAULT_FILE if os.path.exists(DEFAULT_FILE) else None)


@contextlib.contextmanager
def _errors_shown() -> Iterator[None]:
    """Print the errors of the block, one on each line, and exit with the code for them."""
    try:
        yield
    except ConfigurationErrors as error:
        for one in error.errors:
            click.echo(f"Error: {one}", err=True)
        sys.exit(CONFIGURATION_WRONG)
    except GatewayError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(CONFIGURATION_WRONG if isinstance(error, KeyFileError) else 1)
