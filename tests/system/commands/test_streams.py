"""Test that commands do not change the mode of their standard output, which other processes may share."""

import os
import subprocess
import sys
import time

WRITES = """
import asyncio, uvloop
from fjm2.commands.support.streams import write

asyncio.Runner(loop_factory=uvloop.new_event_loop).run(write(b"x" * 300_000))
"""
DEADLINE_S = 30.0


def test_a_pipe_that_was_full_still_waits_for_its_reader() -> None:
    reading, writing = os.pipe()
    with subprocess.Popen((sys.executable, "-W", "error", "-c", WRITES), stdout=writing) as process:
        until = time.monotonic() + DEADLINE_S
        while os.get_blocking(writing) and time.monotonic() < until:
            time.sleep(0.01)  # the pipe is not full yet
        received = 0
        while received < 300_000:
            received += len(os.read(reading, 65_536))
        assert process.wait(DEADLINE_S) == 0
    assert os.get_blocking(writing)
    os.close(reading)
    os.close(writing)
