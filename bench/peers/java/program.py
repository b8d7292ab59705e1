"""Java programs, which are compiled on first use and run as processes."""

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..base import Deadline, PeerOptions, PeerTimeoutError
from ..broker import dying_with_us, lack_of
from ..build_cache import is_fresh, path_of

_SHARED = Path(__file__).with_name("Bench.java")
_JAVA = Path("/usr/share/java")
"""Debian's folder of Java libraries."""
_SETTINGS = ("-XX:+UseParallelGC", "-Xms256m", "-Xmx1g")
_STOP_S = 5.0
"""Longest time for a virtual machine to end after SIGTERM."""
_GRACE_S = 2.0
"""Additional wait for a process whose time is up, so that it can print what it was doing."""
WARM_UP_S = 3.0
"""Time to send messages that do not count, so that everything is compiled to machine code before the measurement."""


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """A Java class with a main function in this folder."""

    main: str
    package: str
    """Debian package that contains all jars."""
    jars: tuple[str, ...]
    settings: tuple[str, ...] = ()
    """Additional options of the virtual machine."""

    def missing(self) -> str | None:
        """Compile the program if it is not up to date. Return a text that tells what is missing for that, or None."""
        for needed in ("java", "javac"):
            if lack := lack_of(needed):
                return lack
        for jar in self.jars:
            if not _jar(jar).exists():
                return f"{_jar(jar)} is not there: {self.package} is not installed"
        return None if all(is_fresh(self._classes, source) for source in self._sources) else self._build()

    def argv(self, role: str, options: PeerOptions, more: Mapping[str, object]) -> list[str]:
        arguments: dict[str, object] = {
            "--address": options.publisher,
            "--port": options.port,
            "--size": options.size,
            "--properties": options.properties,
            "--timeout": f"{options.timeout_s:g}",
        }
        return self.command(role, {**arguments, **more})

    def command(self, role: str, arguments: Mapping[str, object]) -> list[str]:
        """Return the command that runs a role with these arguments."""
        flat = [str(part) for pair in arguments.items() for part in pair]
        class_path = os.pathsep.join(map(str, (self._classes, *map(_jar, self.jars))))
        return ["java", *_SETTINGS, *self.settings, "-cp", class_path, self.main, role, *flat]

    def become(self, role: str, options: PeerOptions, more: Mapping[str, object]) -> NoReturn:
        become(self.argv(role, options, more))

    def run(self, role: str, options: PeerOptions, more: Mapping[str, object], deadline: Deadline) -> dict[str, Any]:
        """Run a process and return its result line."""
        with child(self.argv(role, options, {**more, "--left": f"{deadline.left_s:.3f}"})) as process:
            result: dict[str, Any] = json.loads(next_line(process, deadline, f"{role} of {self.main}"))
            return result

    @property
    def _sources(self) -> tuple[Path, Path]:
        return _SHARED.with_name(f"{self.main}.java"), _SHARED

    @property
    def _classes(self) -> Path:
        return path_of(f"{self.main}.jar")

    def _build(self) -> str | None:
        """Compile the program. Return a text that tells what went wrong, or None."""
        final = self._classes
        final.parent.mkdir(parents=True, exist_ok=True)
        # Compile to another name and rename, so that two runs at once both see a complete program.
        with tempfile.TemporaryDirectory(dir=final.parent) as directory:
            classes, fresh = Path(directory, "classes"), Path(directory, "fresh.jar")
            jars = os.pathsep.join(map(str, map(_jar, self.jars)))
            lint = "-Xlint:all,-path,-classfile,-processing"
            for argv in (
                ["javac", lint, "-d", str(classes), "-cp", jars, *map(str, self._sources)],
                ["jar", "--create", "--file", str(fresh), "-C", str(classes), "."],
            ):
                done = subprocess.run(argv, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    return f"it cannot be built: {done.stderr.strip()}"
            fresh.replace(final)
        return None


def become(argv: list[str]) -> NoReturn:
    """Go on as another program."""
    sys.stdout.flush()
    os.execvp(argv[0], argv)


@contextmanager
def child(argv: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a process with pipes until the context is left."""
    process = subprocess.Popen(
        dying_with_us(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def next_line(process: "subprocess.Popen[str]", deadline: Deadline, doing: str) -> str:
    """Return the next line of a process's output. Raise PeerTimeoutError with its error output if it ends instead."""
    assert process.stdout is not None
    assert process.stderr is not None
    if not select.select([process.stdout], [], [], deadline.left_s + _GRACE_S)[0]:
        deadline.check(doing)
    line = process.stdout.readline()
    if line:
        return line
    said = process.stderr.read().strip().splitlines()
    raise PeerTimeoutError(said[-1] if said else f"{doing}: the process ended and said nothing")


def _jar(name: str) -> Path:
    return _JAVA / f"{name}.jar"
