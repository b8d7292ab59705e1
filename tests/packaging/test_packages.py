"""Tests of the release: the contents of its archives, and the wheel in an otherwise empty environment."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import pytest
from built import ROOT, Environment, Packages, closure
from netns import Network, skip_where_impossible
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from reader import follow

from fjm2 import __version__
from fjm2.base.missing_extras import install_text

PACKAGES = {"fjm2": "fjm2", "fjm2admin": "fjm2admin", "fjm2bench": "bench", "fjm2d": "fjm2d"}
IMPORTS = {
    "fjm2": ["otel", "spark"],
    "fjm2d": ["gateway"],
    "fjm2admin": ["admin"],
    "bench": ["bench", "spark", "gateway", "dev"],
}
"""For each package, the extras whose requirements it may import."""
NOT_PACKAGED = {".pyc", ".orig", ".rej"}
PROGRAMS = ("fjm2", "fjm2admin", "fjm2-bench", "fjm2d")
URI = "fjm2://239.192.57.94:{port}?interface=127.0.0.1&ttl=0"


# The archives.


def test_nothing_is_warned_of_when_they_are_built(packages: Packages) -> None:
    assert not re.findall(r"(?im)^.*(?:warning|deprecat|not found).*$", packages.said)
    assert packages.wheel.name == f"fjm2-{__version__}-py3-none-any.whl"
    assert packages.sdist.name == f"fjm2-{__version__}.tar.gz"


def test_the_wheel_has_all_of_the_packages_and_nothing_else(packages: Packages) -> None:
    there = {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not path.is_relative_to(ROOT / folder / "__pycache__") and path.suffix not in NOT_PACKAGED
    }
    files = {name for name in packages.files() if ".dist-info/" not in name}
    assert files == there
    for package in PACKAGES:
        assert f"{package}/py.typed" in files
    assert {"fjm2admin/page/index.html", "fjm2bench/plans/quick.toml", "fjm2bench/report/report.css"} <= files
    assert packages.read("licenses/LICENSE") == (ROOT / "LICENSE").read_text()


def test_the_source_distribution_has_build_files_and_docs(packages: Packages) -> None:
    sources = packages.sources()
    assert {"LICENSE", "README.md", "CHANGELOG.md", "setup.cfg", "pyproject.toml", "docs/jms.md"} <= sources
    assert {"packaging/fjm2d.toml", "packaging/Dockerfile", "packaging/systemd/fjm2d.service"} <= sources
    tops = {name.partition("/")[0] for name in sources if "/" in name}
    assert tops == {"bench", "docs", "fjm2", "fjm2.egg-info", "fjm2admin", "fjm2d", "packaging"}
    assert not [name for name in sources if "__pycache__" in name or name.endswith(".pyc")]


def test_the_metadata_is_valid_and_the_description_is_the_readme(packages: Packages) -> None:
    text = packages.read("METADATA")
    found = Metadata.from_email(text, validate=True)
    assert (found.name, str(found.version), str(found.requires_python)) == ("fjm2", __version__, ">=3.11")
    assert found.description_content_type == "text/markdown"
    assert found.description is not None
    assert found.description.strip() == (ROOT / "README.md").read_text().strip()


def test_the_changelog_keeps_its_form_and_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"(?m)^## (.*)$", text)
    assert versions[0].startswith(f"[{__version__}] - ")
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - (unreleased|\d{4}-\d\d-\d\d)", one) for one in versions)
    kinds = set(re.findall(r"(?m)^### (.*)$", text))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_every_import_is_a_declared_requirement(packages: Packages) -> None:
    """A package that is installed only because another requirement needs it does not count."""
    owners = metadata.packages_distributions()
    asked = {extra: names_of(packages, extra, owners) for extra in ("", *packages.extras())}
    for folder, extras in IMPORTS.items():
        known = asked[""].union(*(asked[extra] for extra in extras))
        for path in (ROOT / folder).rglob("*.py"):
            for name in imports_of(path):
                assert name in known, f"{path.relative_to(ROOT)}: {name}"


def names_of(packages: Packages, extra: str, owners: Mapping[str, list[str]]) -> set[str]:
    """Return the modules that the requirements of an extra install. "" stands for the base requirements."""
    wanted = {canonicalize_name(one.name) for one in packages.requirements() if is_wanted(one, extra)}
    return {module for module, names in owners.items() if wanted & set(map(canonicalize_name, names))}


def is_wanted(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def imports_of(path: Path) -> Iterator[str]:
    """Return the names of all other packages that a module imports, at its top or within functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in {name.partition(".")[0] for name in names}:
            if name not in sys.stdlib_module_names and name not in PACKAGES:
                yield name


def test_extras_are_asked_for_by_the_makefile(packages: Packages) -> None:
    """The Makefile installs all extras. Otherwise the tests would run without the requirements of some of them."""
    (line,) = re.findall(r"-e '\.\[([a-z,]+)\]'", (ROOT / "Makefile").read_text())
    assert set(line.split(",")) == set(packages.extras())


# Installed elsewhere.


def test_each_program_prints_its_version_or_the_missing_extra(installed: Environment) -> None:
    for program in PROGRAMS:
        done = installed.run(program, "--version")
        if program == "fjm2d":
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr == f"Error: fjm2d needs cryptography: {install_text('gateway')}\n"
        else:
            assert (done.returncode, done.stdout, done.stderr) == (0, f"{program}, version {__version__}\n", "")


def lacking(extra: str) -> str:
    """Return a pattern for the advice to install an extra."""
    return re.escape(install_text(extra))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("fjm2admin", "run", "--check"), rf"fjm2admin needs \w+: {lacking('admin')}"),
        (("fjm2-bench", "traces", "report", "."), rf"fjm2-bench traces needs \w+: {lacking('spark')}"),
        (("fjm2-bench", "traces", "ingest", ".", "w"), rf"fjm2-bench traces needs \w+: {lacking('spark')}"),
        (("fjm2-bench", "traces", "scale"), "--verify needs duckdb: pip install duckdb, or give --no-verify"),
        (("fjm2-bench", "scale", "--plot", "x.png"), rf"--plot needs matplotlib: {lacking('bench')}"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_commands_say_which_extra_they_lack(installed: Environment, words: tuple[str, ...], told: str) -> None:
    done = installed.run(*words)
    assert done.returncode in (1, 2)
    assert re.fullmatch(rf"(Usage: .*\nTry .*\n\n)?Error: {told}\n", done.stderr)


def test_it_is_the_wheel_that_runs_and_nothing_else_is_there(installed: Environment) -> None:
    code = (
        "import importlib.util, fjm2, fjm2.jms.blocking, fjm2.norm.sim, fjm2.record, fjm2.watch, fjm2.doctor\n"
        "print(fjm2.__file__, *(importlib.util.find_spec(name) is None for name in ('pip', 'pytest', 'fastapi')))"
    )
    done = installed.run("python", "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    place, *others = done.stdout.split()
    assert Path(place).is_relative_to(installed.bin.parent)
    assert others == ["True", "True", "True"]


def test_the_doctor_runs(installed: Environment, port: int) -> None:
    done = installed.run("fjm2", "doctor", "--json", FJM2_URI=URI.format(port=port))
    assert done.stderr == ""
    assert json.loads(done.stdout)["exit_code"] == done.returncode
    assert done.returncode in (0, 1, 2)


def test_type_checkers_see_the_types(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from fjm2.errors import WireError\n\nWireError(1, 'x')\n")
    words = [sys.executable, "-m", "mypy", "--strict", "--python-executable", installed.bin / "python"]
    done = subprocess.run(
        [*words, "--cache-dir", tmp_path / "cache", "mine.py"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.count("error: ") == 2, done.stdout
    assert 'incompatible type "int"; expected "str"' in done.stdout


# The quick start, as a reader has it.


@pytest.mark.root
@pytest.mark.nightly
def test_the_quick_start_runs_verbatim(installed: Environment, tmp_path: Path) -> None:
    skip_where_impossible("ip", "bash")
    with Network() as network:
        said = follow(ROOT / "docs" / "quickstart.md", network.namespace(), tmp_path, installed.activation)
    assert len(said) >= 8
    assert any("ABC 17.25" in text for text in said)


# Extras: what each asks for is enough.


def test_extra_admin(installed: Environment, tmp_path: Path) -> None:
    data = str(tmp_path / "data.sqlite")
    done = installed.run("fjm2admin", "run", "--check", extra="admin", FJM2ADMIN_DATA=data)
    assert (done.returncode, done.stdout, done.stderr) == (0, "The settings are valid.\n", "")


def test_extra_gateway(installed: Environment, tmp_path: Path) -> None:
    key, settings = tmp_path / "key", tmp_path / "fjm2d.toml"
    made = installed.run("fjm2d", "keygen", key, extra="gateway")
    settings.write_text(
        (ROOT / "packaging" / "fjm2d.toml")
        .read_text()
        .replace('# key_file = "/etc/fjm2/fjm2d.key"', f'key_file = "{key}"')
    )
    code = "import fjm2d.admin.directory, fjm2d.service, fjm2d.cli; fjm2d.cli.main()"
    words = ("python", "-W", "error", "-c", code, "check", "--json", "--config", settings)
    done = installed.run(*words, extra="gateway")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["public_key"] == made.stdout.strip()


def test_extra_bench(installed: Environment) -> None:
    code = (
        "import importlib.util\nfrom fjm2bench.comparison.trial import OURS, SYSTEMS\n"
        "from fjm2bench.peers import load\n"
        "print([lack for one in SYSTEMS if one not in OURS and (lack := load(one).missing())])\n"
        "assert all(map(importlib.util.find_spec, ('matplotlib', 'zfec')))"
    )
    done = installed.run("python", "-c", code, extra="bench")
    assert done.returncode == 0, done.stderr
    for package in ("cyclonedds", "eclipse-zenoh", "nats-py", "nats-server", "paho-mqtt", "pyzmq", "stomp.py"):
        assert f"{package} is not installed" not in done.stdout


def test_extra_spark(installed: Environment) -> None:
    code = (
        "import fjm2bench.traces.ingest, fjm2bench.traces.refresh, fjm2bench.traces.stream, fjm2bench.report\n"
        "from fjm2bench.report import build\nimport pandas, pyspark.sql"
    )
    done = installed.run("python", "-c", code, extra="spark")
    assert done.returncode == 0, done.stderr


def test_versions_of_all_extras_are_met(packages: Packages) -> None:
    for extra in packages.extras():
        assert list(closure(packages.requirements(), extra)), extra


def test_the_version_is_written_once() -> None:
    assert "version = attr: fjm2.base.version.__version__" in (ROOT / "setup.cfg").read_text()
    assert "version" not in tomllib.loads((ROOT / "pyproject.toml").read_text()).get("project", {})
    written = [path for path in (ROOT / "fjm2").rglob("*.py") if f'"{__version__}"' in path.read_text()]
    assert written == [ROOT / "fjm2" / "base" / "version.py"]
