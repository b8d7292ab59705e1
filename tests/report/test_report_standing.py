"""Tests of the Markdown table of FJM2's ratios to other systems: they are ratios of medians, in the right direction."""

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")

from fjm2bench.report.ratios import markdown_of
from fjm2bench.report.warehouse import Result


def result(system: str, figure: str, value: float, *, loss: float = 0.0, fault: str = "") -> Result:
    layer = {"fjm2-jms": "jms", "fjm2": "norm"}.get(system, "messages")
    labels = {"fault": fault} if fault else {}
    return Result(
        run="r",
        t=0.0,
        system=system,
        layer=layer,
        scenario="lan",
        size=1024,
        fanout=1,
        loss=loss,
        rate_bps=None,
        r={figure: value},
        labels=labels,
    )


def test_more_than_one_is_better_whatever_is_measured() -> None:
    rates = [("fjm2-jms", 100.0), ("fjm2", 900.0), ("zenoh", 300.0), ("nats", 1.0), ("nats", 8.0), ("nats", 10.0)]
    results = [result(system, "msgs_per_s", value) for system, value in rates]
    results += [result("fjm2", "p50_us", 80.0), result("zenoh", "p50_us", 20.0), result("nats", "p50_us", 800.0)]
    results.append(result("pyzmq", "msgs_per_s", 7.0, fault="1 lost"))
    lines = markdown_of(results, [("Cores", "2")]).splitlines()
    assert "| throughput | Zenoh (Python) | NATS (Python) |" in lines
    assert "| 1 KiB to 1, JMS | **0.33** | 12 |" in lines
    assert "| 1 KiB to 1, NORM | 3.0 | 112 |" in lines
    assert "| 1 KiB, NORM | **0.25** | 10 |" in lines
    assert lines[-1] == "Cores: 2"


def test_cost_of_loss_is_relative_to_the_same_system() -> None:
    results = [result("fjm2", "msgs_per_s", value, loss=loss) for loss, value in ((0.0, 200.0), (0.01, 150.0))]
    assert "| 1 KiB to 1, 1 % lost | 75% |" in markdown_of(results, []).splitlines()
    assert "lost" not in markdown_of(results[1:], [])
