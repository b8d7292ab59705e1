"""Tests of the garbage collector of `fjm2 keep`."""

import subprocess
import sys

import pytest

PROGRAM = """
import gc
import weakref

from fjm2.commands.keep import collect_seldom


class Ring:
    def __init__(self):
        self.ring = self
        alive.add(self)


alive = weakref.WeakSet()
kept = [[] for _ in range(1000)]
collect_seldom()
assert gc.get_freeze_count() > len(kept)
collections = gc.get_stats()[0]["collections"]
most = 0
for _ in range(200_000):
    Ring()
    most = max(most, len(alive))
print(most, gc.get_stats()[0]["collections"] - collections)
"""


@pytest.mark.slow
def test_the_collector_runs_seldom_and_finds_all_that_is_new() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    most, collections = map(int, told.stdout.split())
    assert 1000 < most < 100_000
    assert collections < 200, "it runs each 700 objects by itself"
