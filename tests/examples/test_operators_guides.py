"""The operators' guides: the settings that they show are fine, and the commands of docs/admin.md run in order."""

import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from test_docs import BLOCKS, Block

pytest.importorskip("fastapi", reason="the extra `admin` is not installed")
pytest.importorskip("cryptography", reason="the extra `gateway` is not installed")

BIN = Path(sys.executable).parent
DEADLINE_S = 30.0
SETTINGS = [block for block in BLOCKS if block.language == "toml"]
GROUP = '\n[[group]]\naddress = "239.192.57.40:5740"\n'


def run(*words: str | Path, folder: Path) -> str:
    """What a command prints. It has to succeed."""
    program, *rest = words
    done = subprocess.run(
        [BIN / str(program), *rest], capture_output=True, text=True, timeout=DEADLINE_S, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_settings_of_both_services() -> None:
    assert {block.page for block in SETTINGS} >= {"gateway.md", "admin.md"}


@pytest.mark.parametrize("block", [one for one in SETTINGS if one.page == "gateway.md"], ids=str)
def test_settings_of_gateways_are_fine(block: Block, tmp_path: Path) -> None:
    own, file = tmp_path / "own.key", tmp_path / "fjm2d.toml"
    run("fjm2d", "keygen", own, folder=tmp_path)
    text = block.code
    for place in ("LYON", "PARIS"):
        key = run("fjm2d", "keygen", tmp_path / place, folder=tmp_path).strip()
        text = text.replace(f"{place}_KEY", key)
    settings = tomllib.loads(text)
    # The key is where it was made; what shows one table only has the rest at its defaults.
    text = (
        text.replace(f'"{settings["key_file"]}"', f'"{own}"')
        if "key_file" in settings
        else f'key_file = "{own}"\n{text}'
    )
    file.write_text(text if "group" in settings else text + GROUP)
    said = run("fjm2d", "check", "--config", file, folder=tmp_path)
    assert f"The settings in {file} are fine." in said
    assert f"{len(settings.get('peer', []))} named, {settings.get('admin', {}).get('url', 'no node list')}" in said


@pytest.mark.parametrize("block", [one for one in SETTINGS if one.page == "admin.md"], ids=str)
def test_settings_of_the_service_are_fine(block: Block, tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    form = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x -keyout key.pem"
    words = [require_tool("openssl"), *form.split(), "-out", "chain.pem"]
    subprocess.run(words, check=True, capture_output=True, cwd=tmp_path)
    file = tmp_path / "fjm2admin.toml"
    file.write_text(block.code.replace("/etc/fjm2/", f"{tmp_path}/"))
    assert run("fjm2admin", "run", "--check", "--config", file, folder=tmp_path) == "The settings are fine.\n"


def test_the_commands_of_the_nodes_list_run_in_order(tmp_path: Path) -> None:
    """But for those that serve, and those of the host's root."""
    blocks = [block for block in BLOCKS if (block.page, block.language) == ("admin.md", "bash")]
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.code.splitlines()]
    own = [words for words in lines if words[0] == "fjm2admin" and words[1] != "run"]
    assert len(own) >= 5
    said = [run(*words, folder=tmp_path) for words in own]
    tokens = [text for text in said if text.startswith("fjm2_")]
    assert len(set(tokens)) == sum("create" in words for words in own)
    listed = run("fjm2admin", "token", "list", folder=tmp_path)
    states = {line.split()[1]: line.split()[-1] for line in listed.splitlines()[1:]}
    assert states == {"paris": "good", "wall": "good", "rome": "revoked"}


def test_what_is_installed_is_what_the_service_expects() -> None:
    """The files that the guides have root install, at their places in the units."""
    for page, unit in (("gateway.md", "fjm2d"), ("admin.md", "fjm2admin")):
        lines = [
            shlex.split(line)
            for block in BLOCKS
            if (block.page, block.language) == (page, "bash")
            for line in block.code.splitlines()
        ]
        installed = {words[-1] for words in lines if words[:2] == ["sudo", "install"]}
        text = (Path(__file__).parents[2] / "packaging" / "systemd" / f"{unit}.service").read_text()
        assert f"/etc/fjm2/{unit}.toml" in installed & set(text.split())
        assert f"User={unit}" in text
        assert ["sudo", "useradd", "--system", unit] in lines
        programs = {line.split()[0].removeprefix("ExecStart=") for line in text.splitlines() if "ExecStart=" in line}
        assert programs == {f"/opt/fjm2/bin/{unit}"}
        assert ["sudo", "python3", "-m", "venv", "/opt/fjm2"] in lines
