"""`fjm2 doctor` beside real keepers."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from keepers import DEADLINE_S, Keepers, start_three, uri_of

pytestmark = pytest.mark.calm


def problems(port: int) -> set[str | None]:
    """Return the problems that the doctor finds with keepers, but for slow disks, which a busy machine has."""
    words = (sys.executable, "-m", "fjm2", "doctor", "--uri", uri_of(port), "--json")
    found = subprocess.run(words, capture_output=True, text=True, timeout=2 * DEADLINE_S)
    findings = json.loads(found.stdout)["findings"]
    assert any(finding["check"] == "keepers" for finding in findings), findings
    return {finding["problem"] for finding in findings if finding["check"] == "keepers"} - {"slow_sync"}


def test_the_doctor_finds_that_a_majority_is_missing(cell_of_three: Keepers) -> None:
    three = start_three(cell_of_three)
    assert problems(cell_of_three.port) <= {None}
    for keeper in three[:2]:
        keeper.end()
    cell_of_three.until(lambda: not cell_of_three.serving)
    assert problems(cell_of_three.port) == {"no_majority"}


def test_the_doctor_finds_two_cells(cell_of_one: Keepers, founded_three: Path) -> None:
    for name in "abc":
        shutil.copytree(founded_three / name, cell_of_one.folder / name)
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")
    start_three(cell_of_one)
    cell_of_one.until(lambda: one.state == "stranded")
    assert problems(cell_of_one.port) == {"two_cells"}
