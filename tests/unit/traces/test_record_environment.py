"""Tests of the recorder that environment variables ask for."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from recording import Counting, lines_of, until

from fjm2.base.readings import register_counted, unregister_counted
from fjm2.traces import environment as of_environment


@pytest.fixture
def fresh() -> Iterator[None]:
    """Make sure that no recorder of the environment exists before and after the test."""
    of_environment._forget()
    yield
    if of_environment._recorder is not None:
        of_environment._recorder.close()
    of_environment._forget()


@pytest.mark.usefixtures("fresh")
def test_the_environment_makes_a_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FJM2_TRACE_DIR", str(tmp_path))
    monkeypatch.setenv("FJM2_TRACE_LABELS", '{"run": "r", "node": "n", "system": "other", "size": 8}')
    monkeypatch.setenv("FJM2_TRACE_INTERVAL", "0.005")
    thing = Counting()
    register_counted(thing)
    thing.counts["session"]["a"] += 4
    path = tmp_path / "run=r" / "node=n.jsonl"
    until(lambda: path.exists() and '"a":4' in path.read_text())
    unregister_counted(thing)
    assert {(line["system"], line["layer"], line["size"]) for line in lines_of(path)} == {("other", "norm", 8)}


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FJM2_TRACE_INTERVAL", "soon"),
        ("FJM2_TRACE_INTERVAL", "nan"),
        ("FJM2_TRACE_INTERVAL", "-1"),
        ("FJM2_TRACE_BYTES_MAX", "1GB"),
        ("FJM2_TRACE_LABELS", "size=8"),
    ],
)
def test_wrong_settings_in_the_environment_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    monkeypatch.setenv("FJM2_TRACE_DIR", str(tmp_path))
    monkeypatch.setenv(name, value)
    register_counted(Counting())
    assert name in caplog.text
    until(lambda: bool(list(tmp_path.rglob("*.jsonl"))))


@pytest.mark.usefixtures("fresh")
def test_a_directory_that_cannot_be_made_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FJM2_TRACE_DIR", str(tmp_path / "file"))
    register_counted(Counting())
    register_counted(Counting())
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "file" in caplog.text


def test_without_the_variable_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FJM2_TRACE_DIR", raising=False)
    before = threading.active_count()
    register_counted(Counting())
    assert threading.active_count() == before
