"""Tests that a subcommand of `fjm2` is imported only when it is used."""

import subprocess
import sys

import click
import pytest

from fjm2.commands import main

LOADED = """
import sys
from fjm2.commands import main
assert main(["norm", "recv", "--help"], standalone_mode=False) == 0
print(*(name for name in sys.modules if name.startswith("fjm2.")), file=sys.stderr)
"""


def test_who_asks_for_one_does_not_wait_for_the_others() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "fjm2.commands.norm_recv" in loaded
    assert loaded.isdisjoint(
        {"fjm2.commands.norm_send", "fjm2.commands.doctor", "fjm2.doctor", "fjm2.jms", "fjm2.watch"}
    )


PUBLISHING = """
import gc
import sys
from fjm2.commands import main
before = gc.get_freeze_count()
assert main(["pub", "--help"], standalone_mode=False) == 0
print("rich" in sys.modules, gc.isenabled(), gc.get_freeze_count() - before > 10_000, file=sys.stderr)
"""


def test_who_publishes_waits_neither_for_the_progress_bar_nor_for_the_garbage_collector() -> None:
    words = [sys.executable, "-W", "error", "-c", PUBLISHING]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["False", "True", "True"]


def test_all_of_them_are_there_under_their_names() -> None:
    assert isinstance(main, click.Group)
    assert len(main.commands) > 10
    for name, command in main.commands.items():
        assert command.name == name


def test_what_there_is_not_is_not_there() -> None:
    assert isinstance(main, click.Group)
    assert "nothing" not in main.commands
    with pytest.raises(KeyError):
        main.commands["nothing"]
