"""Tests of the word behind `fjm2 keep`: a command, a directory, or a typo of a command, which must not become a store.

Only the arguments are read: no keeper runs.
"""

from pathlib import Path

import click
import pytest

from fjm2.commands import main

pytestmark = pytest.mark.usefixtures("empty")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def directory_of(*words: str) -> Path:
    """Return the directory that `fjm2 keep` would keep in, without running it."""
    assert isinstance(main, click.Group)
    with main.commands["keep"].make_context("keep", list(words)) as parsed:
        found = parsed.params["directory"]
    assert isinstance(found, Path)
    return found


@pytest.mark.parametrize(
    ("typo", "command"), [("stauts", "status"), ("chek", "check"), ("exprot", "export"), ("bnech", "bench")]
)
@pytest.mark.parametrize("options", [(), ("--replicas", "1")])
def test_a_typo_of_a_command_is_told(typo: str, command: str, options: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError) as raised:
        directory_of(*options, typo)
    assert raised.value.exit_code == 2
    assert raised.value.message == (
        f"no directory {typo}; did you mean `fjm2 keep {command}`? For a new store of that name: fjm2 keep ./{typo}"
    )


@pytest.mark.parametrize("word", ["store", "one", "data", "keeper-1", "./stauts", "stores/status", "/tmp/chek"])
def test_other_words_are_directories(word: str) -> None:
    assert directory_of(word) == Path(word)


def test_a_directory_that_exists_is_no_typo(empty: Path) -> None:
    (empty / "stauts").mkdir()
    assert directory_of("stauts") == Path("stauts")


def test_a_directory_may_have_the_name_of_a_command_behind_a_dot(empty: Path) -> None:
    assert directory_of("./status") == Path("status")
    (empty / "status").mkdir()
    assert directory_of("./status") == Path("status")
    with pytest.raises(click.BadParameter, match=r"a command has that name; write \./status for the directory"):
        directory_of("--replicas", "1", "status")
