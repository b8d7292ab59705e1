"""`fjm2 doctor`: says what keeps a bus from working, and what to do."""

import json
import logging
import socket
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator

import click
from rich.console import Console
from rich.status import Status

from fjm2.base.errors import ConfigError
from fjm2.base.interrupts import INTERRUPTED
from fjm2.base.quantities import counted
from fjm2.bus.config import BusConfig
from fjm2.doctor import Finding, Listener, Scene, Verdict, examine, exit_code, look, probe
from fjm2.norm.net.udp_socket import check_platform

from .support.bus_options import BusUri
from .support.common import Duration, is_quiet

_COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.FAULT: "red", Verdict.UNKNOWN: "blue"}


@click.command()
@click.option(
    "--uri",
    type=BusUri(may_be_peer=True),
    envvar="FJM2_URI",
    show_envvar=True,
    default="fjm2://",
    show_default="fjm2://239.192.57.40:5740",
    help="URI of the bus, as its members use it.",
)
@click.option("--listen", is_flag=True, help="Answer probes of another host, until Ctrl-C.")
@click.option(
    "--probe",
    "address",
    is_flag=False,
    flag_value="",
    metavar="[ADDRESS]",
    help="Probe the hosts that listen, in both directions. ADDRESS (or a name) is probed by unicast, too.",
)
@click.option(
    "--watch",
    "watch_s",
    type=Duration(1, 86_400),
    help="With --probe: watch for this long whether multicast stops. 5min detects switches that forget members.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Duration(is_low_open=True),
    help="With --listen: end after this time.  [default: until Ctrl-C]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.option("-v", "--verbose", is_flag=True, help="Print advice about unknown results, too.")
def doctor(
    uri: str,
    listen: bool,
    address: str | None,
    watch_s: float | None,
    timeout_s: float | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Find out what keeps a bus from working on this host, and what to do about it.

    Checks interface, route, buffers, firewall, MTU, clock and more, sends to the group without leaving this host, and
    listens for two seconds for members of the bus. Nothing is changed. Root can check more.

    Between two hosts: --listen on one, --probe on the other.

    The exit code is 0 if nothing is wrong, 1 if there are warnings, 2 if there are faults, 130 after Ctrl-C.

    \b
    Example: fjm2 doctor --uri 'fjm2://239.192.57.40:5740?interface=eth0'
             fjm2 doctor --listen                   # on one host
             fjm2 doctor --probe --watch 300        # on another
    """
    _check_options(listen, address, watch_s, timeout_s)
    logging.getLogger("fjm2.norm").setLevel(logging.ERROR)  # the findings say the same in more detail
    try:
        scene = look(BusConfig.from_uri(uri))
        code = _listen(scene, timeout_s, as_json) if listen else _examine(scene, address, watch_s, as_json, verbose)
    except KeyboardInterrupt:
        # The signal may arrive between creating a socket and its `with`. The process ends here, and closes the socket.
        warnings.simplefilter("ignore", ResourceWarning)
        code = INTERRUPTED
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    except BrokenPipeError:
        raise  # the reader has read enough
    except OSError as error:
        raise click.ClickException(error.strerror or str(error)) from error
    sys.exit(code)


def _check_options(listen: bool, address: str | None, watch_s: float | None, timeout_s: float | None) -> None:
    if listen and address is not None:
        raise click.UsageError("--listen and --probe: expected one of them, on different hosts")
    if watch_s is not None and address is None:
        raise click.UsageError("--watch is only valid with --probe")
    if timeout_s is not None and not listen:
        raise click.UsageError("--timeout is only valid with --listen")


def _examine(scene: Scene, address: str | None, watch_s: float | None, as_json: bool, verbose: bool) -> int:
    findings: list[Finding] = []
    with Status("examining", console=Console(stderr=True)) if not is_quiet(as_json) else _Silent() as status:
        for finding in _findings(scene, address, watch_s, status.update):
            findings.append(finding)
            if not as_json:
                _print(finding, verbose)
    code = exit_code(findings)
    if as_json:
        told = {"uri": scene.bus.to_uri(), "exit_code": code, "findings": [one.as_dict() for one in findings]}
        click.echo(json.dumps(told))
    else:
        _print_summary(findings)
    return code


def _findings(
    scene: Scene, address: str | None, watch_s: float | None, tell: Callable[[str], None]
) -> Iterator[Finding]:
    place = None if address is None else _resolved(address, scene)
    yield from examine(scene, listens=address is None)
    if address is not None:
        yield from probe(scene, place, watch_s, tell)


def _resolved(address: str, scene: Scene) -> str | None:
    """Return the IP address of a host that is given by address or name. Return None if `address` is empty."""
    if not address:
        return None
    try:
        found = socket.getaddrinfo(address, scene.door_port, scene.udp.family, socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        kind = "IPv6" if scene.is_ipv6 else "IPv4"
        raise click.UsageError(f"--probe {address}: expected the {kind} address of a host, or its name") from None
    return str(found[0][4][0])


class _Silent:
    """A stand-in for the status line that shows nothing, for output without a terminal."""

    def __enter__(self) -> "_Silent":
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, text: str) -> None: ...


def _print(finding: Finding, verbose: bool) -> None:
    verdict = finding.verdict
    head = click.style(f"{verdict.value:<8}", fg=_COLOURS[verdict], bold=verdict is Verdict.FAULT)
    click.echo(f"{head} {finding.check.replace('_', ' ')}: {finding.text}")
    if verdict in (Verdict.WARNING, Verdict.FAULT) or verbose:
        for line in finding.advice:
            click.echo(f"{'':9}→ {line}")


def _print_summary(findings: Iterable[Finding]) -> None:
    verdicts = [one.verdict for one in findings]
    faults, warnings = verdicts.count(Verdict.FAULT), verdicts.count(Verdict.WARNING)
    unseen = verdicts.count(Verdict.UNKNOWN)
    click.echo()
    if not faults and not warnings:
        click.echo(f"Nothing is wrong{f', as far as could be checked ({unseen} unknown)' if unseen else ''}.")
    else:
        click.echo(f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}, {unseen} unknown.")


def _listen(scene: Scene, timeout_s: float | None, as_json: bool) -> int:
    check_platform()
    if scene.place is None:
        raise ConfigError(scene.problem)
    if not scene.udp.is_multicast:
        raise ConfigError(f"{scene.bus.group} is the address of one host: expected a multicast group to listen in")
    with Listener(scene) as listener:
        click.echo(
            f"listening in {scene.group} port {scene.udp.port} on {scene.interface.name}; on the other host: "
            f"fjm2 doctor --probe {listener.address}",
            err=True,
        )
        try:
            listener.run(timeout_s, lambda host: click.echo(f"probed by {host}", err=True))
            code = 0
        except KeyboardInterrupt:
            code = INTERRUPTED
        answerer = listener.answerer
        if as_json:
            told = {"hosts": sorted(listener.hosts), "answered": answerer.answered, "refused": answerer.refused}
            click.echo(json.dumps(told))
        else:
            hosts = counted(len(listener.hosts), "host")
            click.echo(f"answered {counted(answerer.answered, 'probe')} of {hosts}", err=True)
    return code
