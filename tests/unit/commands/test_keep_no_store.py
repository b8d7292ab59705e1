"""A directory without a store is not a store in which all is well."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from fjm2.commands import main
from fjm2.keeper.store_directory import config_of, open_store


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["keep", *words])
    return done.exit_code, done.output


@pytest.mark.parametrize("command", ["check", "export"])
@pytest.mark.parametrize("is_used", [False, True])
def test_a_directory_without_a_store_is_refused(tmp_path: Path, command: str, is_used: bool) -> None:
    if is_used:
        (tmp_path / "a.txt").write_text("a")
    code, text = run(command, str(tmp_path))
    assert code == 1
    assert "no store is in this directory: expected that of a keeper" in text


def test_an_export_of_nothing_leaves_the_last_one_alone(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "backup.jsonl").write_text("{}\n")
    assert run("export", str(tmp_path / "store"), "--to", str(tmp_path / "backup.jsonl"))[0] == 1
    assert (tmp_path / "backup.jsonl").read_text() == "{}\n"


def test_a_store_without_messages_is_one(tmp_path: Path) -> None:
    open_store(tmp_path, config_of(8 << 20)).disk.shut()
    assert run("check", str(tmp_path)) == (0, f"nothing is damaged in {tmp_path}\n")
    assert run("export", str(tmp_path)) == (0, "0 messages\n")
