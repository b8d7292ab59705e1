"""A keeper whose disk is lost for good: how long a new one takes to have everything, and what traffic has of it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from ..networks.namespaces import Host
from ..peers.base import Deadline, PeerTimeoutError
from .fjm2_cell import uri_of
from .processes import running
from .roles import Role, RoleOptions
from .servers import servers, until_resting
from .steady import rate_of, worst_second
from .trial import check, data_folder, one_host, served, subscribe

BEFORE_S = 5.0
"""Time of traffic with three keepers, with which the rest is compared."""
_ASK_S = "0.3s"
_LAG_S = 0.2
"""Traffic of this time may be on its way when keepers tell how far they are: they do not do so at one moment."""
_MEMBER = ("follower", "candidate", "recovering", "claiming", "serving")
"""States of members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Result of a replacement under traffic. Rates are messages a second."""

    follower_s: float
    """Time from the start of the new keeper until it is a member."""
    caught_up_s: float
    """Time from the start of the new keeper until it lacks nothing but what is on its way."""
    confirmed_before: float
    confirmed_meanwhile: float
    """Rate of the publisher until the new keeper has everything."""
    confirmed_worst: float
    """The same in the worst second."""
    delivered_before: float
    delivered_meanwhile: float
    delivered_worst: float


def measure_replacement(options: RoleOptions, system: str = "fjm2") -> Replacement:
    """Lose a follower's disk under traffic, and start a keeper in its place. `options.count` messages are kept for a
    subscriber that is away."""
    deadline = Deadline(options.timeout_s)
    with data_folder(options.folder) as folder, one_host() as host, ExitStack() as stack:
        options = replace(options, folder=folder)
        pids = stack.enter_context(served(host, system, options, deadline))
        _keep_some(host, system, options, deadline)
        until_resting(pids)
        follower = stack.enter_context(running(host, system, Role.FOLLOW, replace(options, number=1)))
        follower.line(deadline)
        publisher = stack.enter_context(running(host, system, Role.STEADY, options))
        publisher.line(deadline)
        publisher.tell_to_go_on()
        time.sleep(1 + BEFORE_S)
        lost = next(one for one in _status(host, options)["keepers"] if one["state"] == "follower")
        lost_ns = time.monotonic_ns()
        os.kill(lost["pid"], signal.SIGKILL)
        shutil.rmtree(folder / f"keeper{pids.index(lost['pid']) + 1}")
        began_ns = time.monotonic_ns()
        command = (sys.executable, "-m", "fjm2", "keep", str(folder / "new"), "--replaces", lost["keeper_id"])
        (new,) = stack.enter_context(servers([host.inside(*command, "--uri", uri_of(options.port))], folder))
        follower_ns = _when(host, options, deadline, new.pid, lambda one: one["state"] in _MEMBER)
        caught_up_ns = _when(host, options, deadline, new.pid, lambda one: one["lag"] <= options.per_s * _LAG_S)
        time.sleep(1.0)
        publisher.tell_to_go_on()
        sent = publisher.line(deadline)
        follower.tell_to_go_on()
        received = follower.line(deadline)
    check([received], sent["messages"])
    rates: dict[str, float] = {}
    for name, line in (("confirmed", sent), ("delivered", received)):
        samples = [(at, count) for at, count in line["samples"]]
        rates[f"{name}_before"] = rate_of(samples, lost_ns - BEFORE_S * 1e9, lost_ns)
        rates[f"{name}_meanwhile"] = rate_of(samples, began_ns, caught_up_ns)
        rates[f"{name}_worst"] = worst_second(samples, began_ns, caught_up_ns)
    return Replacement(follower_s=(follower_ns - began_ns) / 1e9, caught_up_s=(caught_up_ns - began_ns) / 1e9, **rates)


def _keep_some(host: Host, system: str, options: RoleOptions, deadline: Deadline) -> None:
    """Keep messages for a subscriber that is away."""
    subscribe(host, system, options, deadline)
    with running(host, system, Role.PUB, replace(options, warm_up=0)) as pub:
        pub.line(deadline)
        pub.tell_to_go_on()
        pub.line(deadline)


def _status(host: Host, options: RoleOptions) -> dict[str, Any]:
    command = (sys.executable, "-m", "fjm2", "keep", "status", "--uri", uri_of(options.port), "--duration", _ASK_S)
    told = subprocess.run(host.inside(*command, "--json"), capture_output=True, text=True, timeout=30, check=False)
    found: dict[str, Any] = json.loads(told.stdout or '{"keepers": []}')
    return found


def _when(
    host: Host, options: RoleOptions, deadline: Deadline, pid: int, is_so: Callable[[dict[str, Any]], bool]
) -> int:
    """Return the time at which something is heard to hold of what a keeper tells of itself.

    Each question starts a process, which takes seconds on a busy machine.
    """
    while True:
        for one in _status(host, options)["keepers"]:
            if one["pid"] == pid and is_so(one):
                return time.monotonic_ns()
        if deadline.left_s <= 0:
            raise PeerTimeoutError("catching up: not done in time")
