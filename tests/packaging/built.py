"""The packages, built as for a release, and environments in which they are installed.

`Environment` is a virtual environment with the wheel and exactly the requirements in the wheel's metadata. The
requirements are linked from the environment of the tests, so no network is needed. With `make packaging`, pip fetches
them instead.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable, Iterator
from email.message import Message
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
NOT_SOURCE = ("__pycache__", "*.egg-info", "build", "dist", "lab", "vectors", ".*")
DEADLINE_S = 300.0


class Packages:
    """A source distribution, and the wheel that is built from it."""

    def __init__(self, folder: Path) -> None:
        source = folder / "source"
        shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
        words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source]
        self.built = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, env=environment())
        assert self.built.returncode == 0, self.built.stdout + self.built.stderr
        (self.sdist,) = (folder / "dist").glob("*.tar.gz")
        (self.wheel,) = (folder / "dist").glob("*.whl")

    @property
    def said(self) -> str:
        return self.built.stdout + self.built.stderr

    def sources(self) -> set[str]:
        """Return the names of the source distribution's files, without its top folder."""
        with tarfile.open(self.sdist) as archive:
            return {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}

    def files(self) -> set[str]:
        """Return the names of the wheel's files."""
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    def read(self, name: str) -> str:
        """Return the text of a file in the wheel's .dist-info folder."""
        with zipfile.ZipFile(self.wheel) as archive:
            (path,) = [one for one in archive.namelist() if one.endswith(f".dist-info/{name}")]
            return archive.read(path).decode()

    def metadata(self) -> Message:
        return HeaderParser().parsestr(self.read("METADATA"))

    def requirements(self) -> list[Requirement]:
        return [Requirement(text) for text in self.metadata().get_all("Requires-Dist") or []]

    def extras(self) -> list[str]:
        return self.metadata().get_all("Provides-Extra") or []


class Environment:
    """A virtual environment with the wheel and the requirements in its metadata."""

    def __init__(self, folder: Path, packages: Packages) -> None:
        venv.create(folder, symlinks=True)
        self.bin = folder / "bin"
        self._site = next((folder / "lib").glob("python*")) / "site-packages"
        self._extras = folder / "extras"
        self._requirements = packages.requirements()
        link(closure(self._requirements, ""), self._site)
        pip = [sys.executable, "-m", "pip", "--python", folder, "--disable-pip-version-check", "--no-cache-dir"]
        words = [*pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", packages.wheel]
        subprocess.run(words, check=True, timeout=DEADLINE_S, env=environment())

    @property
    def activation(self) -> str:
        """Assignment by which a shell activates the environment."""
        return f'PATH={shlex.quote(str(self.bin))}:"$PATH"'

    def run(self, *words: str | Path, extra: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment. If `extra` is given, the requirements of this extra are available too."""
        variables = environment() | {"PATH": f"{self.bin}:{os.environ['PATH']}"} | more
        if extra:
            variables["PYTHONPATH"] = str(self._folder_of(extra))
        program = self.bin / str(words[0])
        return subprocess.run(
            [program, *words[1:]], capture_output=True, text=True, timeout=DEADLINE_S, env=variables, cwd=self.bin
        )

    def _folder_of(self, extra: str) -> Path:
        folder = self._extras / extra
        if not folder.exists():
            folder.mkdir(parents=True)
            present = {path.name for path in self._site.iterdir()}
            link((one for one in closure(self._requirements, extra)), folder, present)
        return folder


def environment() -> dict[str, str]:
    """Return the environment variables of this process, without those set for the tests."""
    names = ("FJM2", "PYTHON", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)}


def closure(requirements: Iterable[Requirement], extra: str) -> Iterator[metadata.Distribution]:
    """Return the installed distributions that satisfy the requirements, and recursively those that they require.

    Fail if an installed version does not satisfy a requirement.
    """
    found: set[tuple[str, str]] = set()
    left = [(one, extra) for one in requirements]
    while left:
        requirement, of_extra = left.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": of_extra}):
            continue
        distribution = metadata.distribution(requirement.name)
        assert requirement.specifier.contains(distribution.version, prereleases=True), f"{requirement} is not met"
        for wanted in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), wanted)
            if key not in found:
                found.add(key)
                left += [(Requirement(text), wanted) for text in distribution.requires or []]
                yield distribution


def link(distributions: Iterable[metadata.Distribution], folder: Path, but: Iterable[str] = ()) -> None:
    """Link the files of distributions into a folder on Python's path."""
    for distribution in distributions:
        for name in {path.parts[0] for path in distribution.files or [] if path.parts[0] not in ("..", *but)}:
            target = folder / name
            if not target.exists() and name != "__pycache__":
                target.symlink_to(distribution.locate_file(name))
