"""Tests of the systemd units: they are valid, and the services can work under them."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "packaging" / "systemd").glob("*.service"))
KEEPER = ROOT / "packaging" / "systemd" / "fjm2-keep.service"
BIN = Path(sys.executable).parent
EXPOSURE_MAX = 25
"""Largest exposure allowed, in tenths: 25 is 2.5 of 10.

`systemd-analyze security` rates an exposure below 5.0 as OK.
"""
DEADLINE_S = 30.0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_valid_and_hardened(unit: Path, tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    analyze = require_tool("systemd-analyze")
    own = tmp_path / unit.name
    own.write_text(unit.read_text().replace("/opt/fjm2/bin", str(BIN)))
    verified = subprocess.run([analyze, "verify", "--man=no", own], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (verified.returncode, verified.stderr) == (0, "")
    words = [analyze, "security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE_MAX}", own]
    assert subprocess.run(words, capture_output=True, timeout=DEADLINE_S).returncode == 0


def test_the_gateways_unit_never_gives_up() -> None:
    """By default, systemd gives up after five starts in ten seconds: too soon for an interface that appears later."""
    text = (ROOT / "packaging" / "systemd" / "fjm2d.service").read_text()
    assert "\nStartLimitIntervalSec=0\n" in text.partition("[Service]")[0]


def settings_of(unit: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and line[0] != "#")


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit != KEEPER], ids=lambda unit: unit.stem)
def test_units_name_existing_commands_and_do_not_restart_on_wrong_settings(unit: Path, tmp_path: Path) -> None:
    settings = settings_of(unit)
    program, *arguments = settings["ExecStart"].replace("/opt/fjm2/bin", str(BIN)).split()
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("nonsense = 1\n")
    arguments[arguments.index("--config") + 1] = str(wrong)
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert f"{wrong}: nonsense" in done.stderr
    assert str(done.returncode) == settings["RestartPreventExitStatus"]


def keeper_words(directory: Path, options: str) -> list[str]:
    """Return the command of the keeper's unit, with a directory of its own."""
    settings = settings_of(KEEPER)
    command = settings["ExecStart"].replace("/opt/fjm2/bin/", "").replace("$FJM2_KEEP_OPTIONS", options)
    program, *words = command.replace(f"/var/lib/{settings['StateDirectory']}", str(directory)).split()
    return [str(BIN / program), *words]


def test_the_keepers_unit_does_not_restart_on_what_stays_wrong(tmp_path: Path) -> None:
    done = subprocess.run(keeper_words(tmp_path, "--replicas 2"), capture_output=True, text=True, timeout=DEADLINE_S)
    assert "'2' is not one of '1', '3', '5'" in done.stderr
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    refused = subprocess.run(keeper_words(shared, ""), capture_output=True, text=True, timeout=DEADLINE_S)
    assert "chmod go-w" in refused.stderr
    assert {str(done.returncode), str(refused.returncode)} <= set(
        settings_of(KEEPER)["RestartPreventExitStatus"].split()
    )


@pytest.mark.root
def test_the_keeper_works_without_any_capability(tmp_path: Path, port: int, require_tool: Callable[[str], str]) -> None:
    setpriv = require_tool("setpriv")
    if os.geteuid() != 0:
        pytest.skip("needs root, to give capabilities up")
    store = tmp_path / "store"
    options = f"--replicas 1 --store-bytes 16MiB --uri fjm2://239.192.57.91:{port}?interface=127.0.0.1&ttl=0"
    words = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *keeper_words(store, options)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            serving = next(line for line in process.stdout or () if '"serving"' in line)
        finally:
            process.terminate()
    assert json.loads(serving)["state"] == "serving"
    assert str(process.returncode) == settings_of(KEEPER)["SuccessExitStatus"]


@pytest.mark.root
def test_the_gateway_works_without_any_capability(
    tmp_path: Path, port: int, require_tool: Callable[[str], str]
) -> None:
    """The only effect of the capability that the unit grants is larger socket buffers."""
    setpriv = require_tool("setpriv")
    if os.geteuid() != 0:
        pytest.skip("needs root, to give capabilities up")
    file, key = tmp_path / "fjm2d.toml", tmp_path / "fjm2d.key"
    made = subprocess.run([BIN / "fjm2d", "keygen", key], capture_output=True, timeout=DEADLINE_S)
    assert made.returncode == 0
    file.write_text(
        f'key_file = "{key}"\nstate_directory = ""\n[wan]\nlisten = ["127.0.0.1:{port}"]\n[lan]\ninterface = "lo"\n'
        f'ttl = 0\nbeacon = "239.192.57.93:{port + 1}"\n[status]\nlisten = "127.0.0.1:{port}"\n'
        f'[[group]]\naddress = "239.192.57.92:{port + 1}"\n'
    )
    words = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", BIN / "fjm2d", "run"]
    process = subprocess.Popen([*words, "--config", file], stderr=subprocess.PIPE, text=True)
    with process:
        try:
            health = answer_of(f"http://127.0.0.1:{port}/healthz", process)
            capabilities = Path(f"/proc/{process.pid}/status").read_text()
            process.send_signal(signal.SIGHUP)
            reloaded = next(line for line in process.stderr or () if "reload" in line)
        finally:
            process.terminate()
    assert health == {"status": "ok", "faults": []}
    assert "CapEff:\t0000000000000000" in capabilities
    assert json.loads(reloaded)["event"] == "reloaded"
    assert process.returncode == 0


def answer_of(url: str, process: subprocess.Popen[str]) -> object:
    """Return the JSON that a URL answers. Try again until there is an answer. Fail if the process ends first."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
