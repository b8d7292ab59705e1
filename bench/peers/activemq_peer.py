"""ActiveMQ Classic by its own Java client: see `ActiveMqBench.java`, which is compiled on first use.

What is fastest and loses nothing: OpenWire over TCP without delay, loosely encoded; non-persistent messages on a topic,
sent without waiting for the broker and without a copy of the message, with neither ids nor timestamps; acknowledged
lazily and in batches; as many prefetched as can be; listeners called by the thread that reads the socket. The broker
keeps everything in memory and stores nothing; a topic that is full holds the publisher back. It is a process of its own
beside the publisher, which starts and ends it, and its time on the CPU counts as the publisher's. Before a run of so
many seconds, messages are sent for some time that do not count, so that all three are machine code when it begins.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ..commands.results import PingResult, PubResult
from .base import Deadline, PeerOptions, PeerTimeoutError
from .built import is_fresh, place

_SOURCE = Path(__file__).with_name("ActiveMqBench.java")
_JAVA = Path("/usr/share/java")
"""Debian's place for them."""
_JARS = ("activemq-client", "activemq-broker", "activemq-openwire-legacy", "geronimo-jms_1.1_spec")
_MORE_JARS = ("geronimo-j2ee-management-1.1-spec", "hawtbuf", "slf4j-api", "slf4j-nop")
_SETTINGS = ("-XX:+UseParallelGC", "-Xms256m", "-Xmx1g")
_WARM_UP_S = 3.0
_STOP_S = 5.0


class ActiveMq:
    """The adapter."""

    name = "activemq"

    def missing(self) -> str | None:
        for program in ("java", "javac"):
            if shutil.which(program) is None:
                return f"{program} is not installed"
        for jar in (*_JARS, *_MORE_JARS):
            if not _jar(jar).exists():
                return f"{_jar(jar)} is not there: libactivemq-java is not installed"
        return None if is_fresh(_classes(), _SOURCE) else _build()

    def pub(self, options: PeerOptions) -> PubResult:
        more: dict[str, float] = {"--receivers": options.receivers}
        if options.count is not None:
            more["--count"] = options.count
        if options.seconds is not None:
            more |= {"--seconds": options.seconds, "--warm-up-seconds": _WARM_UP_S}
        return PubResult(**_run_beside_broker("pub", options, more))

    def sub(self, options: PeerOptions) -> NoReturn:
        _become("sub", options, {} if options.is_verified else {"--no-verify": 1})

    def ping(self, options: PeerOptions) -> PingResult:
        more = {"--count": options.count or 1, "--warm-up": options.warm_up}
        return PingResult(**_run_beside_broker("ping", options, more))

    def echo(self, options: PeerOptions) -> NoReturn:
        _become("echo", options, {})


def _become(role: str, options: PeerOptions, more: Mapping[str, float]) -> NoReturn:
    argv = _argv(role, options, more)
    sys.stdout.flush()
    os.execvp(argv[0], argv)


def _run_beside_broker(role: str, options: PeerOptions, more: Mapping[str, float]) -> dict[str, Any]:
    """A publisher's line."""
    deadline = Deadline(options.timeout_s)
    with _broker(options, deadline) as broker:
        argv = _argv(role, options, {**more, "--broker": broker, "--timeout": max(deadline.left_s, 0.001)})
        with _child(argv) as child:
            line = _line(child, deadline, f"{role} of ActiveMQ")
            result: dict[str, Any] = json.loads(line)
            return result


@contextmanager
def _broker(options: PeerOptions, deadline: Deadline) -> Iterator[int]:
    """A broker that is there to be connected to; its process id. It leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="fjm2-bench-activemq-") as directory:
        argv = [*_argv("broker", options, {}), "--directory", directory]
        with _child(argv) as child:
            _line(child, deadline, "starting the broker")
            yield child.pid


@contextmanager
def _child(argv: list[str]) -> Iterator["subprocess.Popen[str]"]:
    child = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()


def _line(child: "subprocess.Popen[str]", deadline: Deadline, doing: str) -> str:
    """The next line that it prints. PeerTimeoutError with what it said instead."""
    assert child.stdout is not None
    assert child.stderr is not None
    if not select.select([child.stdout], [], [], deadline.left_s)[0]:
        deadline.check(doing)
    line = child.stdout.readline()
    if line:
        return line
    said = child.stderr.read().strip().splitlines()
    raise PeerTimeoutError(said[-1] if said else f"{doing}: it ended and said nothing")


def _argv(role: str, options: PeerOptions, more: Mapping[str, float]) -> list[str]:
    arguments: dict[str, object] = {
        "--address": options.publisher,
        "--port": options.port,
        "--size": options.size,
        "--properties": options.properties,
        "--timeout": options.timeout_s,
    }
    flat = [str(part) for pair in {**arguments, **more}.items() for part in pair]
    return ["java", *_SETTINGS, "-cp", _class_path(), _SOURCE.stem, role, *flat]


def _jar(name: str) -> Path:
    return _JAVA / f"{name}.jar"


def _class_path() -> str:
    return os.pathsep.join(map(str, (_classes(), *map(_jar, (*_JARS, *_MORE_JARS)))))


def _classes() -> Path:
    return place("activemq_bench.jar")


def _build() -> str | None:
    """What went wrong, if anything."""
    final = _classes()
    final.parent.mkdir(parents=True, exist_ok=True)
    # Made beside it and moved, so that two runs at once both see a whole program.
    with tempfile.TemporaryDirectory(dir=final.parent) as directory:
        classes, fresh = Path(directory, "classes"), Path(directory, "fresh.jar")
        jars = os.pathsep.join(map(str, map(_jar, (*_JARS, *_MORE_JARS))))
        for argv in (
            ["javac", "-Xlint:all,-path,-classfile,-processing", "-d", str(classes), "-cp", jars, str(_SOURCE)],
            ["jar", "--create", "--file", str(fresh), "-C", str(classes), "."],
        ):
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return f"it cannot be built: {done.stderr.strip()}"
        fresh.replace(final)
    return None


PEER = ActiveMq()
