"""The lab, run by hand as root: `python -m tests.lab`. Ctrl-C ends it."""

import argparse
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "system")]

from gateways import ADMIN_PORT, Admin, make_gateways, uri  # noqa: E402
from internet import Internet  # noqa: E402

_NAMES = "a1 a2 b1 c1"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument(
        "--rate", type=float, metavar="MBIT", help="rate of the Internet towards each LAN [default: no limit]"
    )
    parser.add_argument("--delay", type=float, metavar="MS", default=0.0, help="one-way delay [default: none]")
    parser.add_argument("--loss", type=float, metavar="PART", default=0.0, help="share of datagrams lost [default: 0]")
    parser.add_argument("--no-gateways", action="store_true", help="make only hosts and links")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell may start this program with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        lab = stack.enter_context(Internet())
        if options.rate:
            stack.enter_context(lab.rate(options.rate))
        if options.delay:
            stack.enter_context(lab.delay(options.delay / 1e3))
        if options.loss:
            stack.enter_context(lab.loss(options.loss))
        if not options.no_gateways:
            _start_gateways(lab, stack, f"{options.rate:g}mbit" if options.rate else "none")
        _print_guide(lab)
        while True:
            signal.pause()


def _start_gateways(lab: Internet, stack: contextlib.ExitStack, rate: str) -> None:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fjm2-lab-")))
    admin, gateways = Admin(lab, folder), make_gateways(lab, folder, _NAMES, rate=rate).values()
    for gateway in gateways:
        gateway.know_admin(admin.address, admin.token(gateway.name))
    stack.enter_context(admin)
    for gateway in gateways:
        stack.enter_context(gateway)
        print(f"gateway {gateway.name} runs with {gateway.config_path}")
    print(f"admin runs at http://{admin.address}:{ADMIN_PORT} in its namespace")


def _print_guide(lab: Internet) -> None:
    for site in lab.sites.values():
        lan = f"LAN {site.name.upper()}"
        for number, host in enumerate(site.hosts, start=1):
            print(f"{lan}     host {number}      ip netns exec {host.name}")
        for gateway in site.gateways:
            print(f"{lan}     gateway {gateway.name}  ip netns exec {gateway.namespace.name}  {gateway.address}")
    print(f"Internet  router      ip netns exec {lab.router.name}")
    print(f"Internet  admin       ip netns exec {lab.admin.name}  {lab.admin_address}")
    print("For example:")
    for host, words in ((lab["c"].hosts[0], "sub demo"), (lab["a"].hosts[0], "pub demo hello")):
        print(f"  ip netns exec {host.name} {sys.executable} -m fjm2 {words} --uri '{uri()}'")
    print("Ctrl-C ends it.", flush=True)


if __name__ == "__main__":
    main()
