"""Tests of the service's settings and commands: mistakes are reported, and help texts contain examples."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import command, environment, run


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("port = 99999", "port=99999: expected 0 to 65535"),
        ('port = "8750"', "port='8750': expected a whole number"),
        ("prot = 1", "prot: unknown, expected one of host, port, data"),
        ('page = "all"', "page=all: expected one of auto, open, token"),
        ('host = "localhost"', "host=localhost: expected an IP address"),
        ("stale_s = 5", "stale_s=5: expected more than heartbeat_s, which is 10"),
        ('certificate = "/nowhere"', "certificate=/nowhere: expected a readable file"),
        ("port = ", "not TOML"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_file_and_what_is_allowed(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "admin.toml"
    file.write_text(text)
    done = run(tmp_path / "x.sqlite", "run", "--check", "--config", str(file))
    assert done.returncode == 2
    assert told in done.stderr
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr


def test_all_faults_are_reported_at_once_with_their_origin(tmp_path: Path) -> None:
    file = tmp_path / "admin.toml"
    file.write_text('page = "all"\nunknown = 1\n')
    done = run(tmp_path / "x.sqlite", "run", "--check", "--config", str(file), port="many", heartbeat_s=-1)
    for told in (
        f"{file}: page=all",
        f"{file}: unknown",
        "FJM2ADMIN_PORT=many",
        "FJM2ADMIN_HEARTBEAT_S: heartbeat_s=-1",
    ):
        assert told in done.stderr


def test_the_environment_overrides_the_file_and_options_override_both(tmp_path: Path) -> None:
    file = tmp_path / "admin.toml"
    file.write_text("port = 1\nheartbeat_s = 7\n")
    assert run(tmp_path / "x.sqlite", "run", "--check", "--config", str(file), port=70_000).returncode == 2
    process = subprocess.run(
        [*command(tmp_path / "x.sqlite", "run", "--check", "--port", "80"), "--config", str(file)],
        env=environment(port=70_000) | {"PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stdout) == (0, "The settings are valid.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run"],
        ["token"],
        ["token", "create"],
        ["token", "list"],
        ["token", "revoke"],
        ["nodes"],
        ["nodes", "remove"],
    ],
)
def test_help_has_examples(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fjm2admin", *arguments, "--help"], capture_output=True, text=True, check=True
    )
    assert "Example: fjm2admin" in done.stdout


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    no_database = tmp_path / "no.sqlite"
    no_database.write_text("this is no database" * 100)
    for arguments, path in (
        (("nodes",), tmp_path / "none.sqlite"),
        (("run",), no_database),
        (("run",), tmp_path / "none" / "x.sqlite"),
    ):
        done = run(path, *arguments, port=0, advert_port=0)
        assert done.returncode == 1
        assert str(path.parent) in done.stderr
        assert "Traceback" not in done.stderr
