"""Tests of labels of traces. Invalid labels are refused, or left out if they come from the environment."""

import math
import os
from typing import Any

import pytest

from fjm2.errors import ConfigError
from fjm2.record import Labels


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"run": ""}, "run=''"),
        ({"run": "a/b"}, "letters, digits"),
        ({"node": "x" * 129}, "1 to 128"),
        ({"node": None}, "node=None"),
        ({"role": 7}, "role=7"),
        ({"size": -1}, "size=-1: expected 0 or more"),
        ({"size": True}, "size=True"),
        ({"fanout": 1.5}, "fanout=1.5"),
        ({"loss": 1.01}, "loss=1.01: expected 0 to 1"),
        ({"loss": math.nan}, "loss=nan"),
        ({"rate_bps": 0}, "rate_bps=0"),
    ],
)
def test_invalid_labels_are_refused_with_the_reason(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Labels(**wrong)


def test_invalid_labels_of_the_environment_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    text = '{"run": "r1", "size": 1024, "loss": 7, "colour": "red", "role": "pub"}'
    labels = Labels.from_environment({"FJM2_TRACE_LABELS": text})
    assert (labels.run, labels.size, labels.loss, labels.role) == ("r1", 1024, None, "pub")
    assert "loss=7: expected 0 to 1" in caplog.text
    assert "colour: expected one of run, node" in caplog.text


@pytest.mark.parametrize("text", ["{", "[]", "7", "[" * 100_000, '{"run": NaN}', "\udcff"])
def test_any_environment_gives_labels(text: str, caplog: pytest.LogCaptureFixture) -> None:
    labels = Labels.from_environment({"FJM2_TRACE_LABELS": text})
    assert labels.run.endswith(labels.node)
    assert labels.node.endswith(f"-{os.getpid()}")
    assert "FJM2_TRACE_LABELS" in caplog.text
